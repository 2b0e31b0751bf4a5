"""The tables a demand is read from: who wants what, and how fast it flows."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from distributary.errors import InputError, MissingRateError
from distributary.files.bad_rows import BadRow, bad_rows_error, count_reasons
from distributary.files.columns import Column, Fault, Faults, Kind
from distributary.files.faults import input_fault, shown, told
from distributary.files.fingerprints import fingerprint
from distributary.files.tables import (
    Table,
    encoded,
    read_rows,
    read_table,
    set_aside,
    write_table,
)
from distributary.model import Demand, FloatArray, Interest, Rates

T = TypeVar("T")

INTEREST = (Column("receiver", Kind.TEXT), Column("flow", Kind.TEXT))
RATES = (
    Column("flow", Kind.TEXT),
    Column("rate", Kind.AMOUNT),
    Column("size", Kind.AMOUNT, optional=True),
    Column("peak", Kind.AMOUNT, optional=True),
)
AMOUNTS = ("rate", "size", "peak")


@dataclass(frozen=True, slots=True)
class Intake(Generic[T]):
    """What was read, from how many rows, how many of those only repeated another, and the bad ones.

    `rows` are those used, the duplicates and the bad ones together.
    """

    value: T
    rows: int
    duplicates: int
    bad: tuple[BadRow, ...] = ()

    @property
    def used(self) -> int:
        """Rows that say something of their own."""
        return self.rows - self.duplicates - len(self.bad)

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows are bad, by the kind of fault."""
        return count_reasons(self.bad)


def read_interest(path: str | os.PathLike[str]) -> Intake[Interest]:
    """Read (receiver, flow) pairs from a file or a folder of part files."""
    return _interest_of(read_table(path, INTEREST))


def read_rates(path: str | os.PathLike[str]) -> Intake[Rates]:
    """Read each flow's rate, with size and peak if given, from a file or a folder of part files."""
    table = _read_rate_rows(path)
    if table.bad:
        raise bad_rows_error(table.bad)
    return _rates_of(table)


def _interest_of(table: Table) -> Intake[Interest]:
    receivers, receiver_codes = table.names("receiver")
    flows, flow_codes = table.names("flow")
    interest = Interest.from_codes(receivers, flows, receiver_codes, flow_codes)
    rows = table.rows + len(table.bad)
    return Intake(interest, rows, table.rows - interest.pairs, table.bad)


def _rates_of(table: Table) -> Intake[Rates]:
    flows, codes = table.names("flow")
    _, first = np.unique(codes, return_index=True)
    rate, size, peak = (table.amounts(word)[first] if table.has(word) else None for word in AMOUNTS)
    assert rate is not None
    rates = Rates(flows, rate, size, peak)
    rows = table.rows + len(table.bad)
    return Intake(rates, rows, table.rows - len(flows), table.bad)


def _read_rate_rows(path: str | os.PathLike[str]) -> Table:
    """The rows of the rates; one that contradicts an earlier row of its flow is bad."""
    table = read_rows(path, RATES)
    if not table.rows:
        return table
    codes = table.names("flow")[1]
    _, first = np.unique(codes, return_index=True)
    earlier = first[codes]
    faults: Faults = {}
    for word in AMOUNTS:
        if table.has(word):
            values = table.amounts(word)
            for index in np.flatnonzero(values != values[earlier]).tolist():
                faults.setdefault(index, _conflict(table, word, index, int(earlier[index])))
    return set_aside(table, faults)


def read_labels(
    path: str | os.PathLike[str], column: str, flows: tuple[str, ...]
) -> tuple[str, ...]:
    """Read what a column of the rates says of each flow, such as its market."""
    table = read_rows(path, (Column("flow", Kind.TEXT), Column(column, Kind.TEXT)))
    names, codes = table.names("flow")
    labels, label_codes = table.names(column)
    label_of = {names[code]: labels[label] for code, label in zip(codes, label_codes, strict=True)}
    for flow in flows:
        if flow not in label_of:
            raise input_fault(
                path,
                f"flow {shown(flow)} has no {column}",
                value=flow,
                remedy=f"give each wanted flow a row with its {column}",
            )
    return tuple(label_of[flow] for flow in flows)


def write_interest(interest: Interest, path: str | os.PathLike[str]) -> None:
    """Write (receiver, flow) pairs, receiver by receiver."""
    receiver = np.repeat(
        np.arange(len(interest.receivers), dtype=np.int32), np.diff(interest.receiver_offsets)
    )
    columns = {
        "receiver": encoded("receiver", interest.receivers, receiver),
        "flow": encoded("flow", interest.flows, interest.receiver_flows),
    }
    write_table(pa.table(columns), path)


def write_rates(rates: Rates, path: str | os.PathLike[str]) -> None:
    """Write each flow's rate, and size and peak if known."""
    columns = {
        "flow": encoded("flow", rates.flows, np.arange(len(rates.flows), dtype=np.int32)),
        "rate": pa.array(rates.rate),
    }
    for word, values in (("size", rates.size), ("peak", rates.peak)):
        if values is not None:
            columns[word] = pa.array(values)
    write_table(pa.table(columns), path)


def _conflict(table: Table, word: str, index: int, earlier: int) -> Fault:
    flow = table.columns["flow"][index].as_py()
    value, before = (table.columns[word][row].as_py() for row in (index, earlier))
    path, row = table.place(earlier)
    where = f"row {row}" if path == table.place(index)[0] else f"{path}, row {row}"
    error = table.fault(
        index,
        f"flow {shown(flow)} has {word} {value!r} here but {before!r} in {where}",
        value=flow,
        remedy="keep one row per flow",
    )
    return Fault(f"another {word} than an earlier row of its flow", error)


@dataclass(frozen=True, slots=True, eq=False)
class ReadDemand:
    """A demand and where it came from: the two tables with their counts.

    `floored` is how many wanted flows had no rate and were given the floor.
    """

    demand: Demand
    interest: Intake[Interest]
    rates: Intake[Rates]
    floored: int = 0

    @property
    def fingerprints(self) -> dict[str, str]:
        """What identifies the inputs, whatever their format and row order."""
        return {
            "interest": fingerprint(self.interest.value),
            "rates": fingerprint(self.rates.value),
        }

    @property
    def unwanted_flows(self) -> int:
        """How many flows have a rate but nobody who wants them: a plan leaves them out."""
        return len(self.rates.value.flows) - len(self.interest.value.flows)

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """Every row that was put aside."""
        return self.interest.bad + self.rates.bad


def read_demand(
    interest_path: str | os.PathLike[str],
    rates_path: str | os.PathLike[str],
    *,
    on_peak: bool = False,
    max_bad: float = 0.0,
    floor: float | None = None,
) -> ReadDemand:
    """Read both tables and put each wanted flow's rate, or its peak rate, beside it.

    Up to a share of `max_bad` of each table's rows may be at fault: they are put aside, and what is
    left is used. Flows that are wanted and have no rate get the `floor`, if one is given. Else all
    that is wrong with both tables is raised at once, as a `BadTablesError`.
    """
    if not 0 <= max_bad <= 1:
        raise ValueError(f"max_bad must be a share from 0 to 1, not {max_bad}")
    if floor is not None and not (floor > 0 and math.isfinite(floor)):
        raise ValueError(f"the floor must be a finite rate above 0, not {floor}")
    wanted, rated = read_rows(interest_path, INTEREST), _read_rate_rows(rates_path)
    _check_bad(wanted, rated, max_bad, floor)
    interest, rates = _interest_of(wanted), _rates_of(rated)
    if on_peak and rates.value.peak is None:
        raise input_fault(
            rates_path, "has no column 'peak' to plan on", remedy="add one, or plan on the mean"
        )
    floored = 0
    if floor is not None:
        rates, floored = _with_floor(rates, interest.value.flows, floor)
    try:
        demand = Demand.of(interest.value, rates.value, on_peak=on_peak)
    except MissingRateError as error:
        raise MissingRateError(error.flows, path=os.fspath(rates_path)) from None
    except ValueError as error:
        raise _unusable(rates_path, error) from None
    return ReadDemand(demand, interest, rates, floored)


def write_quarantine(bad: Sequence[BadRow], path: str | os.PathLike[str]) -> None:
    """Write bad rows to a table: file, row, reason, raw."""
    columns = {
        "file": pa.array([told(row.path) for row in bad], pa.string()),
        "row": pa.array([row.row for row in bad], pa.int64()),
        "reason": pa.array([row.reason for row in bad], pa.string()),
        "raw": pa.array([row.raw for row in bad], pa.string()),
    }
    write_table(pa.table(columns), path)


def _check_bad(wanted: Table, rated: Table, max_bad: float, floor: float | None) -> None:
    """Raise all that is wrong with the tables at once, if it is too much to go on."""
    bad = wanted.bad + rated.bad
    if not bad:
        return
    too_many = any(len(one.bad) > max_bad * (one.rows + len(one.bad)) for one in (wanted, rated))
    missing = [] if floor is not None else _flows_without_rate(wanted, rated)
    if not (too_many or missing) and wanted.rows and rated.rows:
        return
    if too_many:  # a flow whose row is among the bad ones was told already
        named = {row.values.get("flow") for row in rated.bad}
        missing = [flow for flow in missing if flow not in named]
    if len(bad) == 1 and not missing and not max_bad:
        raise bad_rows_error(bad)
    more: list[str] = []
    if missing:
        others = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        more = [f"flow {shown(missing[0])} has interest but no rate{others}"]
    rows = wanted.rows + rated.rows + len(bad)
    allowed = f", more than {max_bad:.3%}" if max_bad and too_many else ""
    more.append(f"in all {len(bad):,} of {rows:,} rows cannot be used{allowed}")
    remedy = "mend them, or allow more with --max-bad" if too_many else "mend them"
    if missing:
        remedy += "; --floor gives flows a rate"
    raise bad_rows_error(wanted.bad, rated.bad, more=more, remedy=remedy)


def _flows_without_rate(wanted: Table, rated: Table) -> list[str]:
    known = set(rated.names("flow")[0]) if rated.rows else set()
    return [flow for flow in wanted.names("flow")[0] if flow not in known] if wanted.rows else []


def _with_floor(
    rates: Intake[Rates], flows: tuple[str, ...], floor: float
) -> tuple[Intake[Rates], int]:
    """The rates with those of silent flows: the floor, a mean size, the floor for a peak."""
    value = rates.value
    silent = sorted(set(flows) - set(value.flows))
    if not silent:
        return rates, 0
    names = (*value.flows, *silent)
    order = sorted(range(len(names)), key=names.__getitem__)

    def extend(known: FloatArray | None, filling: float) -> FloatArray | None:
        if known is None:
            return None
        return np.concatenate([known, np.full(len(silent), filling)])[order]

    rate = extend(value.rate, floor)
    assert rate is not None
    size = extend(value.size, 0.0 if value.size is None else float(value.size.mean()))
    peak = extend(value.peak, floor)
    whole = Rates(tuple(names[index] for index in order), rate, size, peak)
    return replace(rates, value=whole), len(silent)


def _unusable(path: str | os.PathLike[str], error: ValueError) -> InputError:
    return input_fault(path, str(error), remedy="give the rates in a larger unit")
