"""The tables a demand is read from: who wants what, and how fast it flows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from distributary.errors import InputError, MissingRateError
from distributary.files.columns import Column, Kind
from distributary.files.faults import input_fault, shown
from distributary.files.fingerprints import fingerprint
from distributary.files.tables import Table, encoded, first_row, read_table, write_table
from distributary.model import Demand, IndexArray, IntArray, Interest, Rates

T = TypeVar("T")

INTEREST = (Column("receiver", Kind.TEXT), Column("flow", Kind.TEXT))
RATES = (
    Column("flow", Kind.TEXT),
    Column("rate", Kind.AMOUNT),
    Column("size", Kind.AMOUNT, optional=True),
    Column("peak", Kind.AMOUNT, optional=True),
)


@dataclass(frozen=True, slots=True)
class Intake(Generic[T]):
    """What was read, from how many rows, and how many of those only repeated another."""

    value: T
    rows: int
    duplicates: int


def read_interest(path: str | os.PathLike[str]) -> Intake[Interest]:
    """Read (receiver, flow) pairs from a file or a folder of part files."""
    table = read_table(path, INTEREST)
    receivers, receiver_codes = table.names("receiver")
    flows, flow_codes = table.names("flow")
    interest = Interest.from_codes(receivers, flows, receiver_codes, flow_codes)
    return Intake(interest, table.rows, table.rows - interest.pairs)


def read_rates(path: str | os.PathLike[str]) -> Intake[Rates]:
    """Read each flow's rate, with size and peak if given, from a file or a folder of part files."""
    table = read_table(path, RATES)
    flows, codes = table.names("flow")
    _, first = np.unique(codes, return_index=True)
    for word in ("rate", "size", "peak"):
        if table.has(word):
            _check_agreement(table, word, codes, first)
    rate, size, peak = (
        table.amounts(word)[first] if table.has(word) else None for word in ("rate", "size", "peak")
    )
    assert rate is not None
    rates = Rates(flows, rate, size, peak)
    return Intake(rates, table.rows, table.rows - len(flows))


def read_labels(
    path: str | os.PathLike[str], column: str, flows: tuple[str, ...]
) -> tuple[str, ...]:
    """Read what a column of the rates says of each flow, such as its market."""
    table = read_table(path, (Column("flow", Kind.TEXT), Column(column, Kind.TEXT)))
    names, codes = table.names("flow")
    labels, label_codes = table.names(column)
    label_of = {names[code]: labels[label] for code, label in zip(codes, label_codes, strict=True)}
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


def _check_agreement(table: Table, word: str, codes: IndexArray, first: IntArray) -> None:
    values = table.amounts(word)
    index = first_row(values != values[first[codes]])
    if index is not None:
        raise _conflict(table, word, index, int(first[codes[index]]))


def _conflict(table: Table, word: str, index: int, earlier: int) -> InputError:
    flow = table.columns["flow"][index].as_py()
    value, before = (table.columns[word][row].as_py() for row in (index, earlier))
    path, row = table.place(earlier)
    where = f"row {row}" if path == table.place(index)[0] else f"{path}, row {row}"
    return table.fault(
        index,
        f"flow {shown(flow)} has {word} {value!r} here but {before!r} in {where}",
        value=flow,
        remedy="keep one row per flow",
    )


@dataclass(frozen=True, slots=True, eq=False)
class ReadDemand:
    """A demand and where it came from: the two tables with their counts."""

    demand: Demand
    interest: Intake[Interest]
    rates: Intake[Rates]

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


def read_demand(
    interest_path: str | os.PathLike[str],
    rates_path: str | os.PathLike[str],
    *,
    on_peak: bool = False,
) -> ReadDemand:
    """Read both tables and put each wanted flow's rate, or its peak rate, beside it."""
    interest, rates = read_interest(interest_path), read_rates(rates_path)
    if on_peak and rates.value.peak is None:
        raise input_fault(
            rates_path, "has no column 'peak' to plan on", remedy="add one, or plan on the mean"
        )
    try:
        demand = Demand.of(interest.value, rates.value, on_peak=on_peak)
    except MissingRateError as error:
        raise MissingRateError(error.flows, path=os.fspath(rates_path)) from None
    except ValueError as error:
        raise _unusable(rates_path, error) from None
    return ReadDemand(demand, interest, rates)


def _unusable(path: str | os.PathLike[str], error: ValueError) -> InputError:
    return input_fault(path, str(error), remedy="give the rates in a larger unit")
