"""A stopwatch, and tables that record where they were measured."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numba
import numpy as np

T = TypeVar("T")

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

`make bench` writes this page, and `python -m benchmarks NAME` a single section. Times are medians
of several runs in one process unless stated otherwise. Compare ratios, not times: machines differ.
"""


@dataclass(frozen=True)
class Section:
    """One table of the page, with its text."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remarks: str = ""

    def markdown(self) -> str:
        """The section in Markdown, as the page shows it."""
        lines = [f"## {self.title}", "", self.about, "", format_table(self.columns, self.rows)]
        return "\n".join([*lines, *(["", self.remarks] if self.remarks else [])]) + "\n"


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head = (columns, ["---"] * len(columns))
    return "\n".join("| " + " | ".join(row) + " |" for row in (*head, *rows))


def timed(run: Callable[[], T], times: int = 5) -> tuple[T, float]:
    """The answer, and the median seconds of several runs after one to warm up."""
    answer = run()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        answer = run()
        seconds.append(time.perf_counter() - began)
    return answer, statistics.median(seconds)


def shown_seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def update_page(name: str, section: Section, order: list[str]) -> None:
    """Replace a section of the page, with the commit it was run at; other sections stay."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = dict(re.findall(r"<!-- begin (\w+) -->\n(.*?)<!-- end \1 -->", page, re.DOTALL))
    parts[name] = f"{section.markdown()}\n{_provenance()}\n"
    body = "\n".join(
        f"<!-- begin {one} -->\n{parts[one]}<!-- end {one} -->\n" for one in order if one in parts
    )
    PAGE.write_text(f"{HEAD}\n{body}", encoding="utf-8")


def _provenance() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=PAGE.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = ", with uncommitted changes" if git("status", "--porcelain", "--", "../src") else ""
    return (
        f"*Commit {git('rev-parse', '--short=12', 'HEAD')}{changed}; {os.cpu_count()} cores "
        f"({platform.machine()}), Python {platform.python_version()}, NumPy {np.__version__}, "
        f"Numba {numba.__version__}.*"
    )
