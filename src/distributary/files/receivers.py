"""A table of receivers: what a message costs each, and the most that may reach it."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field

from distributary.files.columns import Column, ColumnKind
from distributary.files.constraints import map_names
from distributary.files.faults import input_fault, show_value
from distributary.files.tables import read_table

__all__ = ["ReceiverTable", "read_receivers"]

RECEIVERS = (
    Column("receiver", ColumnKind.TEXT),
    Column("weight", ColumnKind.AMOUNT, optional=True),
    Column("rate", ColumnKind.AMOUNT, optional=True),
)


@dataclass(frozen=True, slots=True)
class ReceiverTable:
    """By name: `weights`, what a message costs a receiver, and `rates`, its caps."""

    weights: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)


def read_receivers(
    path: str | os.PathLike[str], known: Collection[str] | None = None
) -> ReceiverTable:
    """Read (receiver, weight, rate), where weight or rate may be left out.

    If `known` are given, any other receiver is an error.
    """
    table = read_table(path, RECEIVERS)
    columns = [name for name in ("weight", "rate") if table.has(name)]
    if not columns:
        raise input_fault(
            path,
            "has neither a column weight nor a column rate",
            remedy="add what a message costs each receiver, or the most that may reach it",
        )
    names, codes = table.names("receiver")
    if known is not None:
        expected = set(known)
        for index, code in enumerate(codes):
            if names[code] not in expected:
                raise table.fault(
                    index,
                    f"receiver {show_value(names[code])} is not in the interest",
                    value=names[code],
                    remedy="correct the name, or take the row out",
                )
    values = {
        column: map_names(table, "receiver", table.amounts(column).tolist()) for column in columns
    }
    return ReceiverTable(values.get("weight", {}), values.get("rate", {}))
