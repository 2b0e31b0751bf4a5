"""The tables that describe a network of brokers: its links, and the broker of each receiver."""

from __future__ import annotations

import os
from collections.abc import Mapping

from distributary.files.columns import Column, ColumnKind
from distributary.files.tables import read_table
from distributary.model import Topology
from distributary.model.topology import LONGEST_DELAY_S

__all__ = ["read_homes", "read_links"]

LINKS = (
    Column("a", ColumnKind.TEXT),
    Column("b", ColumnKind.TEXT),
    Column("delay", ColumnKind.AMOUNT, optional=True),
)
HOMES = (Column("receiver", ColumnKind.TEXT), Column("broker", ColumnKind.TEXT))
DEFAULT_DELAY = 0.001


def read_links(path: str | os.PathLike[str]) -> Topology:
    """Read (a, b) rows, each a link between two brokers, and optionally its delay in seconds."""
    table = read_table(path, LINKS)
    columns = [table.names(column) for column in ("a", "b")]
    ends = [[names[code] for code in codes.tolist()] for names, codes in columns]
    delays = table.amounts("delay").tolist() if table.has("delay") else [DEFAULT_DELAY] * table.rows
    links: dict[tuple[str, str], float] = {}
    for row, (a, b, delay) in enumerate(zip(*ends, delays, strict=True)):
        if a == b or (a, b) in links or (b, a) in links:
            raise table.fault(
                row,
                "links a broker with itself, or repeats a link",
                value=f"{a}, {b}",
                remedy="give each link once",
            )
        if delay > LONGEST_DELAY_S:
            raise table.fault(
                row,
                f"a delay of {delay:g} seconds",
                value=delay,
                remedy=f"give it in seconds, at most {LONGEST_DELAY_S:g}",
            )
        links[a, b] = delay
    try:
        return Topology(links)
    except ValueError as error:
        remedy = "connect all brokers with each other"
        raise table.fault(0, str(error), value=os.fspath(path), remedy=remedy) from None


def read_homes(path: str | os.PathLike[str], topology: Topology) -> Mapping[str, str]:
    """Read (receiver, broker) rows: the broker that each receiver is connected to."""
    table = read_table(path, HOMES)
    receivers, who = table.names("receiver")
    brokers, where = table.names("broker")
    homes: dict[str, str] = {}
    known = set(topology.brokers)
    for row, (receiver, broker) in enumerate(zip(who.tolist(), where.tolist(), strict=True)):
        if brokers[broker] not in known:
            remedy = "name one of the brokers of --links"
            raise table.fault(row, "there is no such broker", value=brokers[broker], remedy=remedy)
        if receivers[receiver] in known:
            remedy = "give the receiver another name"
            reason = "a receiver has the name of a broker"
            raise table.fault(row, reason, value=receivers[receiver], remedy=remedy)
        homes[receivers[receiver]] = brokers[broker]
    return homes
