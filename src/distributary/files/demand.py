"""The tables of a demand: who wants which flows, and the rates of the flows."""

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
from distributary.files.columns import Column, ColumnKind, Fault, Faults
from distributary.files.faults import input_fault, show_path, show_value
from distributary.files.fingerprints import fingerprint
from distributary.files.tables import (
    FileTable,
    encode_names,
    read_rows,
    read_table,
    set_aside,
    write_table,
)
from distributary.model import Demand, FloatArray, Interest, Rates, Unit

T = TypeVar("T")

INTEREST = (Column("receiver", ColumnKind.TEXT), Column("flow", ColumnKind.TEXT))
RATES = (
    Column("flow", ColumnKind.TEXT),
    Column("rate", ColumnKind.AMOUNT),
    Column("size", ColumnKind.AMOUNT, optional=True),
    Column("peak", ColumnKind.AMOUNT, optional=True),
)
AMOUNTS = ("rate", "size", "peak")


@dataclass(frozen=True, slots=True)
class Intake(Generic[T]):
    """What was read from a table, and how many of its `rows` were duplicates or bad.

    `rows` counts all rows: the used ones, the duplicates and the bad ones.
    """

    value: T
    rows: int
    duplicates: int
    bad: tuple[BadRow, ...] = ()

    @property
    def used(self) -> int:
        """The number of rows that are neither duplicates nor bad."""
        return self.rows - self.duplicates - len(self.bad)

    @property
    def reasons(self) -> dict[str, int]:
        """The number of bad rows by kind of fault."""
        return count_reasons(self.bad)


def read_interest(path: str | os.PathLike[str]) -> Intake[Interest]:
    """Read (receiver, flow) pairs from a file or a folder of part files."""
    return _collect_interest(read_table(path, INTEREST))


def read_rates(path: str | os.PathLike[str]) -> Intake[Rates]:
    """Read the rate of each flow, and size and peak if given, from a file or a folder of parts."""
    table = _read_rate_rows(path)
    if table.bad:
        raise bad_rows_error(table.bad)
    return _collect_rates(table)


def _collect_interest(table: FileTable) -> Intake[Interest]:
    receivers, receiver_codes = table.names("receiver")
    flows, flow_codes = table.names("flow")
    interest = Interest.from_codes(receivers, flows, receiver_codes, flow_codes)
    rows = table.rows + len(table.bad)
    return Intake(interest, rows, table.rows - interest.pairs, table.bad)


def _collect_rates(table: FileTable) -> Intake[Rates]:
    flows, codes = table.names("flow")
    _, first = np.unique(codes, return_index=True)
    rate, size, peak = (table.amounts(word)[first] if table.has(word) else None for word in AMOUNTS)
    assert rate is not None
    rates = Rates(flows, rate, size, peak)
    rows = table.rows + len(table.bad)
    return Intake(rates, rows, table.rows - len(flows), table.bad)


def _read_rate_rows(path: str | os.PathLike[str]) -> FileTable:
    """Read the rows of the rates; a row that contradicts an earlier one of its flow is bad."""
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
                faults.setdefault(index, _rate_conflict(table, word, index, int(earlier[index])))
    return set_aside(table, faults)


def read_labels(
    path: str | os.PathLike[str], column: str, flows: tuple[str, ...]
) -> tuple[str, ...]:
    """Read each flow's label, such as its market, from a column of the rates."""
    table = read_rows(path, (Column("flow", ColumnKind.TEXT), Column(column, ColumnKind.TEXT)))
    names, codes = table.names("flow")
    labels, label_codes = table.names(column)
    label_of = {names[code]: labels[label] for code, label in zip(codes, label_codes, strict=True)}
    for flow in flows:
        if flow not in label_of:
            raise input_fault(
                path,
                f"flow {show_value(flow)} has no {column}",
                value=flow,
                remedy=f"give each wanted flow a row with its {column}",
            )
    return tuple(label_of[flow] for flow in flows)


def write_interest(interest: Interest, path: str | os.PathLike[str]) -> None:
    """Write (receiver, flow) pairs, sorted by receiver."""
    receiver = np.repeat(
        np.arange(len(interest.receivers), dtype=np.int32), np.diff(interest.receiver_offsets)
    )
    columns = {
        "receiver": encode_names("receiver", interest.receivers, receiver),
        "flow": encode_names("flow", interest.flows, interest.receiver_flows),
    }
    write_table(pa.table(columns), path)


def write_rates(rates: Rates, path: str | os.PathLike[str]) -> None:
    """Write the rate of each flow, and size and peak if known."""
    columns = {
        "flow": encode_names("flow", rates.flows, np.arange(len(rates.flows), dtype=np.int32)),
        "rate": pa.array(rates.rate),
    }
    for word, values in (("size", rates.size), ("peak", rates.peak)):
        if values is not None:
            columns[word] = pa.array(values)
    write_table(pa.table(columns), path)


def _rate_conflict(table: FileTable, word: str, index: int, earlier: int) -> Fault:
    flow = table.columns["flow"][index].as_py()
    value, before = (table.columns[word][row].as_py() for row in (index, earlier))
    path, row = table.place(earlier)
    where = f"row {row}" if path == table.place(index)[0] else f"{path}, row {row}"
    error = table.fault(
        index,
        f"flow {show_value(flow)} has {word} {value!r} here but {before!r} in {where}",
        value=flow,
        remedy="keep one row per flow",
    )
    return Fault(f"another {word} than an earlier row of its flow", error)


@dataclass(frozen=True, slots=True, eq=False)
class ReadDemand:
    """A demand and the two tables that it was read from, with their row counts.

    `floored` is the number of wanted flows without a rate that were given the floor.
    """

    demand: Demand
    interest: Intake[Interest]
    rates: Intake[Rates]
    floored: int = 0

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes that identify the inputs, independent of format and row order."""
        return {
            "interest": fingerprint(self.interest.value),
            "rates": fingerprint(self.rates.value),
        }

    @property
    def unwanted_flows(self) -> int:
        """The number of flows with a rate that nobody wants; a plan leaves them out."""
        return len(self.rates.value.flows) - len(self.interest.value.flows)

    @property
    def bad(self) -> tuple[BadRow, ...]:
        """All rows that were set aside."""
        return self.interest.bad + self.rates.bad


def read_demand(
    interest_path: str | os.PathLike[str],
    rates_path: str | os.PathLike[str],
    *,
    on_peak: bool = False,
    max_bad: float = 0.0,
    floor: float | None = None,
    count: Unit = "messages",
) -> ReadDemand:
    """Read both tables and combine them into the rate, or the peak rate, of each wanted flow.

    Up to a share of `max_bad` of each table's rows may be bad: they are set aside and the rest is
    used. Wanted flows without a rate get the `floor`, if one is given. With `count="bytes"`, rates
    are in bytes per second. Otherwise a `BadTablesError`
    reports everything that is wrong with both tables.
    """
    if not 0 <= max_bad <= 1:
        raise ValueError(f"max_bad must be a share from 0 to 1, not {max_bad}")
    if floor is not None and not (floor > 0 and math.isfinite(floor)):
        raise ValueError(f"the floor must be a finite rate above 0, not {floor}")
    wanted, rated = read_rows(interest_path, INTEREST), _read_rate_rows(rates_path)
    _check_bad(wanted, rated, max_bad, floor)
    interest, rates = _collect_interest(wanted), _collect_rates(rated)
    if on_peak and rates.value.peak is None:
        raise input_fault(
            rates_path, "has no column 'peak' to plan on", remedy="add one, or plan on the mean"
        )
    if count == "bytes" and rates.value.size is None:
        raise input_fault(
            rates_path,
            "has no column 'size' to count bytes by",
            remedy="add the bytes of a message of each flow, or count messages",
        )
    floored = 0
    if floor is not None:
        rates, floored = _apply_floor(rates, interest.value.flows, floor)
    try:
        demand = Demand.of(interest.value, rates.value, on_peak=on_peak, count=count)
    except MissingRateError as error:
        raise MissingRateError(error.flows, path=os.fspath(rates_path)) from None
    except ValueError as error:
        raise _rates_fault(rates_path, error) from None
    return ReadDemand(demand, interest, rates, floored)


def write_quarantine(bad: Sequence[BadRow], path: str | os.PathLike[str]) -> None:
    """Write bad rows as a table with the columns file, row, reason and raw."""
    columns = {
        "file": pa.array([show_path(row.path) for row in bad], pa.string()),
        "row": pa.array([row.row for row in bad], pa.int64()),
        "reason": pa.array([row.reason for row in bad], pa.string()),
        "raw": pa.array([row.raw for row in bad], pa.string()),
    }
    write_table(pa.table(columns), path)


def _check_bad(wanted: FileTable, rated: FileTable, max_bad: float, floor: float | None) -> None:
    """Raise one error about everything wrong with the tables, if it is too much to continue."""
    bad = wanted.bad + rated.bad
    if not bad:
        return
    too_many = any(len(one.bad) > max_bad * (one.rows + len(one.bad)) for one in (wanted, rated))
    missing = [] if floor is not None else _flows_without_rate(wanted, rated)
    if not (too_many or missing) and wanted.rows and rated.rows:
        return
    if too_many:  # a flow whose row is among the bad ones is reported there
        named = {row.values.get("flow") for row in rated.bad}
        missing = [flow for flow in missing if flow not in named]
    if len(bad) == 1 and not missing and not max_bad:
        raise bad_rows_error(bad)
    more: list[str] = []
    if missing:
        others = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        more = [f"flow {show_value(missing[0])} has interest but no rate{others}"]
    rows = wanted.rows + rated.rows + len(bad)
    allowed = f", more than {max_bad:.3%}" if max_bad and too_many else ""
    more.append(f"in all {len(bad):,} of {rows:,} rows cannot be used{allowed}")
    remedy = "mend them, or allow more with --max-bad" if too_many else "mend them"
    if missing:
        remedy += "; --floor gives flows a rate"
    raise bad_rows_error(wanted.bad, rated.bad, more=more, remedy=remedy)


def _flows_without_rate(wanted: FileTable, rated: FileTable) -> list[str]:
    known = set(rated.names("flow")[0]) if rated.rows else set()
    return [flow for flow in wanted.names("flow")[0] if flow not in known] if wanted.rows else []


def _apply_floor(
    rates: Intake[Rates], flows: tuple[str, ...], floor: float
) -> tuple[Intake[Rates], int]:
    """Add the wanted flows without a rate: the floor as rate and peak, the mean as size."""
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


def _rates_fault(path: str | os.PathLike[str], error: ValueError) -> InputError:
    return input_fault(path, str(error), remedy="give the rates in a larger unit")
