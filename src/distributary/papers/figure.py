"""A reproduced figure: its numbers, its chart, its text, and the three files written for it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributary.files.replacing import replace_file
from distributary.papers.wording import sentence_case, table

__all__ = ["DEFAULT_SEED", "HOLDS", "Cell", "Claim", "Figure", "write_figure"]

DEFAULT_SEED = 0

HOLDS = "holds"  # the verdict on a claim, on the page

Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper in our words, its source, our result, and whether that agrees."""

    says: str
    source: str
    ours: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A reproduced figure of a paper.

    `rows` are the numbers behind the chart, `chart` is SVG. `shown` describes what was run,
    `comparison` holds the tables with ours beside theirs, and `notes` say what the paper leaves
    open and how we read it; all three are Markdown.
    """

    name: str
    title: str
    source: str
    shown: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    chart: str
    comparison: str
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    quick: bool
    seed: int
    own: str = ""  # Markdown: by how much our own algorithm is better, or where it is not
    measured: bool = False  # on this machine, rather than computed from the seed

    @property
    def command(self) -> str:
        """The command that reproduces this figure."""
        quick = " --quick" if self.quick else ""
        seed = f" --seed {self.seed}" if self.seed != DEFAULT_SEED else ""
        return f"distributary paper run {self.name}{quick}{seed}"

    @property
    def verdict(self) -> str:
        """Whether all, some or none of the paper's claims hold here."""
        held = sum(claim.holds for claim in self.claims)
        if held == len(self.claims):
            return "reproduced"
        return "partly reproduced" if held else "not reproduced"

    @property
    def text(self) -> str:
        """The figure as a Markdown page, our numbers beside the paper's."""
        caution = ["*A quick run: few repetitions, so take every verdict as a hint.*"]
        sections = [
            f"# {self.title}",
            f"{self.source}. {sentence_case(self.verdict)}: {_tally(self.claims)}.",
            *(caution if self.quick else []),
            f"![{self.title}]({self.name}.svg)",
            self.shown,
            "## Ours beside theirs",
            self.comparison,
            "## What the paper claims",
            table(
                ("the paper's claim", "where", "ours", "verdict"),
                ((c.says, c.source, c.ours, _word(c)) for c in self.claims),
            ),
            *(["## What ours adds", self.own] if self.own else []),
            "## How it was read",
            "\n".join(f"- {note}" for note in self.notes),
            "## Again",
            f"    {self.command} --out DIR",
            f"{self._again} The numbers are in [{self.name}.csv]({self.name}.csv).",
        ]
        return "\n\n".join(sections) + "\n"

    @property
    def _again(self) -> str:
        if self.measured:
            return "Measured: numbers differ from run to run and from machine to machine."
        return f"Seed {self.seed}; the same seed gives the same bytes."


def write_figure(figure: Figure, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write NAME.csv, NAME.svg and NAME.md into the folder, each atomically."""
    contents = {
        "csv": _csv_text(figure.columns, figure.rows),
        "svg": figure.chart,
        "md": figure.text,
    }
    paths = tuple(Path(folder) / f"{figure.name}.{ending}" for ending in contents)
    for path, content in zip(paths, contents.values(), strict=True):
        _write(path, content)
    return paths


def _tally(claims: Sequence[Claim]) -> str:
    held = sum(claim.holds for claim in claims)
    return f"{held} of {len(claims)} claims hold"


def _word(claim: Claim) -> str:
    return HOLDS if claim.holds else "**does not hold**"


def _csv_text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """The rows as CSV with six significant digits; further digits may vary by machine."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows
    )
    return file.getvalue()


def _write(path: Path, content: str) -> None:
    with replace_file(path) as file:
        file.write(content.encode())
