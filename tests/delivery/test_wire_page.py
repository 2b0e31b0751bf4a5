"""Checks the tables of docs/wire.md, from which others implement the protocol, against the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from distributary.delivery import directory_wire, portion_wire, wire

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


def read_layout(heading: str) -> str:
    """The fixed fields of the first table behind a heading, as a struct's format."""
    table = PAGE[PAGE.index(heading) :].split("| --- | --- | --- |\n", 1)[1].split("\n\n", 1)[0]
    layout = "<"
    for offset, kind in re.findall(r"^\| (\d+) \| (\d+ bytes|\w+)", table, re.MULTILINE):
        assert struct.calcsize(layout) == int(offset), (heading, offset)
        if kind.endswith(" bytes"):
            layout += f"{kind.split()[0]}s"
        layout += CODES.get(kind, "")  # text and payloads have no fixed size, and come last
    return layout


@pytest.mark.parametrize(
    ("heading", "encoded"),
    [
        ("### Header", wire.HEADER),
        ("A *message*", wire.MESSAGE_HEADER),
        ("A *range*", wire._RANGE),
        ("A *position*", wire._POSITION),
        ("An *announcement*", wire._ANNOUNCEMENT),
        ("A *block*", directory_wire._BLOCK),
        ("An *entry*", directory_wire._ENTRY),
        ("An *inquiry* (", portion_wire._INQUIRY),
        ("A *portion* (", portion_wire._PORTION),
    ],
)
def test_the_page_has_the_layout_that_the_code_writes(heading: str, encoded: struct.Struct) -> None:
    assert read_layout(heading) == encoded.format


def test_the_page_lists_every_kind_of_packet() -> None:
    table = PAGE[PAGE.index("### Kinds") : PAGE.index("### Bodies")]
    listed = re.findall(r"^\| (\d+) \| (\w+)", table, re.MULTILINE)
    names = {"confirmation": "CONFIRM"}
    expected = {kind.value: kind.name for kind in wire.PacketKind}
    assert {int(kind): names.get(name, name.upper()) for kind, name in listed} == expected


def test_the_page_lists_every_kind_of_record() -> None:
    table = PAGE[PAGE.index("| kind | record |") :].split("\n\n", 1)[0]
    listed = re.findall(r"^\| (\d+) \| (\w+)", table, re.MULTILINE)
    expected = {kind.value: kind.name for kind in directory_wire.RecordKind}
    assert {int(kind): name.upper() for kind, name in listed} == expected
