"""Checks the reports in docs/delivery.md, which scripts read, against what is printed."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from distributary.cli.multicast_lines import MessageLines
from distributary.delivery import Report
from distributary.delivery.actions import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Reports") : PAGE.index("## Events by their content")]
LINES = re.findall(r"^\| `(\{.*?\})` \|", SECTION, re.MULTILINE)
KINDS = {kind.__name__.lower(): kind for kind in get_args(Report)}


def test_the_page_lists_every_report() -> None:
    assert sorted(json.loads(line)["report"] for line in LINES) == sorted(KINDS)


@pytest.mark.parametrize("line", LINES)
def test_a_report_is_printed_as_the_page_has_it(line: str) -> None:
    found = json.loads(line)
    report = msgspec.convert(found, KINDS[found.pop("report")], strict=True)
    printed: list[bytes] = []
    MessageLines(printed.append, None, asyncio.Event()).report(report)
    assert printed == [line.encode() + b"\n"]


def test_the_page_explains_every_reason() -> None:
    for reason in get_args(Reason):
        assert f"`{reason}`" in SECTION
