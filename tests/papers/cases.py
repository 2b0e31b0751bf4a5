"""What the tests of this folder share: each figure, run quickly and once per process."""

from __future__ import annotations

from functools import cache

from distributary.papers import Figure, run_figure
from distributary.papers.figure import Cell
from distributary.planning import Step


@cache
def _run(name: str) -> tuple[Figure, list[Step]]:
    steps: list[Step] = []
    return run_figure(name, quick=True, progress=steps.append), steps


def quick(name: str) -> Figure:
    return _run(name)[0]


def progress(name: str) -> list[Step]:
    return _run(name)[1]


def by_column(figure: Figure) -> list[dict[str, Cell]]:
    return [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]


def verdicts(figure: Figure) -> dict[str, bool]:
    return {claim.says: claim.holds for claim in figure.claims}
