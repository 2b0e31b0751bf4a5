"""The tables that a stream keeps: last actions, messages per slot of time, and ids of messages.

Each can be merged in any grouping and order of its rows, which is what `buckets` asks for. All rows
about one thing have the same `key`: a hash of the receiver and the flow, of the flow, or of the id.
Two things may have the same key, so names are always compared as well.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distributary.pipeline.buckets import TableKind

__all__ = ["ACTIONS", "IDS", "KINDS", "SLOTS", "keep_last_actions"]

Longs = npt.NDArray[np.int64]

_TIME = pa.timestamp("us", tz="UTC")


def keep_last_actions(rows: pa.Table) -> pa.Table:
    """The last action of each receiver and flow: by time, then by its place in the input."""
    if not rows.num_rows:
        return rows
    key, ts = rows["key"].to_numpy(), rows["ts"].cast(pa.int64()).to_numpy()
    order = np.lexsort((ts, key))
    key, ts = key[order], ts[order]
    again = key[1:] == key[:-1]
    keep = np.ones(len(key), np.bool_)
    keep[:-1] = ~again
    hard = _find_hard(rows, order, again, ts)
    if len(hard):
        keep[hard] = False
        keep[hard[_last_of_each_pair(rows.take(pa.array(order[hard])))]] = True
    return rows.take(pa.array(order[keep]))


def _find_hard(rows: pa.Table, order: Longs, again: npt.NDArray[np.bool_], ts: Longs) -> Longs:
    """The places in `order` of all rows with a key that names two pairs, or one pair at one time.

    Of other keys the latest row is the last action.
    """
    later = np.flatnonzero(again) + 1
    one, other = (
        rows.select(["receiver", "flow"]).take(pa.array(order[at])) for at in (later, later - 1)
    )
    differ = [pc.not_equal(one[name], other[name]).to_numpy() for name in ("receiver", "flow")]
    doubtful: Longs = later[differ[0] | differ[1] | (ts[later] == ts[later - 1])]
    if not len(doubtful):
        return doubtful
    group = np.cumsum(np.append([0], ~again))
    return np.flatnonzero(np.isin(group, group[doubtful]))


def _last_of_each_pair(rows: pa.Table) -> Longs:
    """The indices of the last actions, by sorting all columns: slow, but right for any rows."""
    least = np.iinfo(np.int64).min
    for name, lowest in (("file", ""), ("block", least), ("line", least)):
        filled = pc.fill_null(rows[name], lowest)  # a row without a place comes before the others
        rows = rows.set_column(rows.column_names.index(name), name, filled)
    names = ["receiver", "flow", "ts", "file", "block", "line", "on"]
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    pairs = rows.select(["receiver", "flow"]).take(order)
    last = np.ones(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        one, next_ = pairs.slice(0, rows.num_rows - 1), pairs.slice(1)
        differ = [pc.not_equal(one[name], next_[name]).to_numpy() for name in ("receiver", "flow")]
        last[:-1] = differ[0] | differ[1]
    indices: Longs = order.to_numpy()[last]
    return indices


def _add_slots(rows: pa.Table) -> pa.Table:
    """The sums per flow and slot."""
    sums = [(name, "sum") for name in ("messages", "bytes", "sized")]
    added = rows.group_by(["key", "flow", "slot"]).aggregate(sums)
    added = added.rename_columns([name.removesuffix("_sum") for name in added.column_names])
    order = np.lexsort((added["slot"].to_numpy(), added["key"].to_numpy()))
    return added.select(SLOTS.schema.names).take(pa.array(order)).cast(SLOTS.schema)


def _join_ids(rows: pa.Table) -> pa.Table:
    """Each id once, with its latest time."""
    latest = rows.group_by(["key", "id"]).aggregate([("ts", "max")])
    latest = latest.rename_columns(
        ["ts" if name == "ts_max" else name for name in latest.column_names]
    )
    order = np.argsort(latest["key"].to_numpy(), kind="stable")
    return latest.select(IDS.schema.names).take(pa.array(order)).cast(IDS.schema)


ACTIONS: Final = TableKind(
    "actions",
    pa.schema(
        [
            ("key", pa.int64()),
            ("receiver", pa.string()),
            ("flow", pa.string()),
            ("ts", _TIME),
            ("on", pa.bool_()),
            ("file", pa.string()),
            ("block", pa.int64()),
            ("line", pa.int64()),
        ]
    ),
    keep_last_actions,
    ("receiver", "flow", "file"),
)
SLOTS: Final = TableKind(
    "slots",
    pa.schema(
        [
            ("key", pa.int64()),
            ("flow", pa.string()),
            ("slot", pa.int64()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("sized", pa.int64()),
        ]
    ),
    _add_slots,
    ("flow",),
    expiry="slot",
)
IDS: Final = TableKind(
    "ids",
    pa.schema([("key", pa.int64()), ("id", pa.string()), ("ts", _TIME)]),
    _join_ids,
    (),
    expiry="ts",
)
KINDS: Final = (ACTIONS, SLOTS, IDS)
