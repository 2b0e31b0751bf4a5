"""Tables of constraints: receivers' caps, pinned flows, and sets of flows."""

from __future__ import annotations

import os
from typing import TypeVar

import numpy as np

from distributary.files.columns import Column, ColumnKind
from distributary.files.faults import show_value
from distributary.files.tables import FileTable, read_table

V = TypeVar("V")

CAPS = (Column("receiver", ColumnKind.TEXT), Column("rate", ColumnKind.AMOUNT))
PINS = (Column("flow", ColumnKind.TEXT), Column("group", ColumnKind.NUMBER))
SETS = (Column("set", ColumnKind.TEXT), Column("flow", ColumnKind.TEXT))


def read_receiver_caps(path: str | os.PathLike[str]) -> dict[str, float]:
    """Read (receiver, rate): the highest rate of each receiver, in messages per second."""
    table = read_table(path, CAPS)
    return map_names(table, "receiver", table.amounts("rate").tolist())


def read_pins(path: str | os.PathLike[str]) -> dict[str, int]:
    """Read (flow, group): the group that a flow must be in."""
    table = read_table(path, PINS)
    groups = table.numbers("group")
    negative = np.flatnonzero(groups < 0)
    if len(negative):
        index = int(negative[0])
        raise table.fault(
            index,
            f"group {groups[index]} is below 0",
            value=int(groups[index]),
            remedy="number the groups from 0",
        )
    return map_names(table, "flow", groups.tolist())


def read_flow_sets(path: str | os.PathLike[str]) -> tuple[frozenset[str], ...]:
    """Read (set, flow): sets of flows that must be placed together, or apart."""
    table = read_table(path, SETS)
    set_names, set_codes = table.names("set")
    flow_names, flow_codes = table.names("flow")
    members: list[set[str]] = [set() for _ in set_names]
    for code, flow in zip(set_codes, flow_codes, strict=True):
        members[code].add(flow_names[flow])
    return tuple(frozenset(names) for names in members)


def map_names(table: FileTable, column: str, values: list[V]) -> dict[str, V]:
    """Map the names in a column to the values; a name with two different values is an error."""
    names, codes = table.names(column)
    found: dict[str, V] = {}
    for index, (code, value) in enumerate(zip(codes, values, strict=True)):
        name = names[code]
        if found.setdefault(name, value) != value:
            raise table.fault(
                index,
                f"{column} {show_value(name)} has {value} here and {found[name]} before",
                value=name,
                remedy="give it once",
            )
    return found
