"""What a stream knows: its tables on disk, and in memory what a batch needs of them.

**On disk**, in hash buckets (`buckets`): the last action of each receiver and flow, the messages
per flow and slot of time, and the ids of messages that may still come again (`kept_tables`). A
batch adds its own rows and merges a bounded number of older ones.

**In memory**, read once at the start: the demand (`live_demand`) and the messages per slot
(`message_counts`). So a batch knows what it changes without reading the tables. Only for two
opposite actions at the same time does it look up their places in the input, in the files that may
have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distributary.pipeline.buckets import BucketTable, TableKind
from distributary.pipeline.job import StreamJob
from distributary.pipeline.kept_tables import ACTIONS, IDS, KINDS, SLOTS, keep_last_actions
from distributary.pipeline.ledger import Ledger, LedgerState
from distributary.pipeline.live_demand import DemandChange, LiveDemand
from distributary.pipeline.message_counts import MessageCounts
from distributary.pipeline.times import to_micros, to_time

__all__ = ["BatchRows", "KeptState", "rate_span"]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The usable rows of a batch, aggregated: rows of each table of the state."""

    actions: pa.Table
    slots: pa.Table
    ids: pa.Table

    def of(self, kind: TableKind) -> pa.Table:
        """The rows of a table."""
        rows: pa.Table = getattr(self, kind.name)
        return rows


def rate_span(state: LedgerState, job: StreamJob) -> tuple[datetime, datetime] | None:
    """The start and end of the window of rates; None before the first message."""
    horizon = _first_slot(state, job)
    if state.first is None or state.latest is None or horizon is None:
        return None
    start = max(state.first, horizon)
    return to_time(start), to_time(max(state.latest, start + 1_000_000))


class KeptState:
    """The state of a stream, from a ledger's last commit on.

    After an error a new one must be made: what is in memory may be ahead of the ledger.
    """

    def __init__(self, job: StreamJob, ledger: Ledger, step: Callable[[str], None]) -> None:
        self._job, self._ledger, self._step = job, ledger, step
        self._messages = MessageCounts()
        self.demand = LiveDemand()
        state = ledger.state
        loaded = [
            self._messages.add(rows, _first_slot(state, job) or 0)
            for rows in ledger.table(SLOTS).read(_first_slot(state, job))
        ]
        totals = pa.concat_tables(loaded) if loaded else None
        self.loaded = self.demand.load(self._read_actions(), totals, self._seconds(state))

    def apply(
        self, rows: BatchRows, state: LedgerState, folder: Path
    ) -> tuple[LedgerState, DemandChange]:
        """Take a batch's rows into memory and, with files in `folder`, into the tables."""
        messages = None
        first_slot = _first_slot(state, self._job)
        if rows.slots.num_rows and first_slot is not None:
            messages = self._messages.add(rows.slots, first_slot)
        change = self.demand.apply(
            _in_micros(rows.actions), messages, self._seconds(state), self._settle_ties
        )
        tables = dict(state.tables)
        for kind in KINDS:
            if rows.of(kind).num_rows:
                horizon = {SLOTS: first_slot, IDS: self._watermark(state)}.get(kind)
                tables[kind.name] = self._store(kind, rows.of(kind), folder, horizon).stored
        return replace(state, tables=tables), change

    def _store(
        self, kind: TableKind, rows: pa.Table, folder: Path, horizon: int | None
    ) -> BucketTable:
        """Add rows to a table and do some of its merging."""
        self._step(f"writing the {kind.name}")
        table = self._ledger.table(kind).append(rows, folder)
        for merged in table.compact(rows.num_rows, folder, horizon):
            self._step(f"merging the {kind.name}")
            table = merged
        return table

    def _settle_ties(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each action is later than the stored one of the same time, by their places."""
        stored = self._ledger.table(ACTIONS).find(rows["key"].to_numpy())
        last = keep_last_actions(pa.concat_tables([stored, rows.cast(ACTIONS.schema)]))
        names = zip(last["receiver"].to_pylist(), last["flow"].to_pylist(), strict=True)
        on = dict(zip(names, last["on"].to_pylist(), strict=True))
        tied = zip(*(rows[name].to_pylist() for name in ("receiver", "flow", "on")), strict=True)
        return np.array([on[receiver, flow] == own for receiver, flow, own in tied])

    def _read_actions(self) -> Iterator[pa.Table]:
        return map(_in_micros, self._ledger.table(ACTIONS).read())

    def _seconds(self, state: LedgerState) -> float:
        span = rate_span(state, self._job)
        if span is None:
            return self._job.rate_window.total_seconds()
        return (span[1] - span[0]).total_seconds()

    def _watermark(self, state: LedgerState) -> int | None:
        return None if state.latest is None else state.latest - to_micros(self._job.late)


def _first_slot(state: LedgerState, job: StreamJob) -> int | None:
    """The start of the first slot in the window of rates; None before the first message."""
    if state.latest is None:
        return None
    earliest = state.latest - to_micros(job.rate_window)
    return earliest - earliest % state.slot_us


def _in_micros(actions: pa.Table) -> pa.Table:
    at = actions.column_names.index("ts")
    return actions.set_column(at, "ts", actions["ts"].cast(pa.int64()))
