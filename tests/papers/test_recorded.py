"""The recorded pages of docs/papers are whole, full runs, and made by the figures there are."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from distributary.papers import FIGURES
from distributary.papers.chen.telling import name_seeds
from distributary.papers.index import read_page
from tests.papers.test_figures import MEASURED, SHAPES

RECORDED = Path(__file__).parents[2] / "docs/papers"
NOT_FIGURES = {"README", "in-a-hurry"}
PAGES = sorted({path.stem for path in RECORDED.glob("*.md")} - NOT_FIGURES)


def test_every_figure_is_recorded_with_its_table_and_its_chart() -> None:
    assert set(PAGES) == set(FIGURES)
    for ending in ("csv", "svg"):
        assert sorted(path.stem for path in RECORDED.glob(f"*.{ending}")) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_recorded_page_is_a_full_run_with_the_default_seed(name: str) -> None:
    page = read_page(RECORDED / f"{name}.md")
    assert page.command == f"distributary paper run {name}"
    assert page.claims
    text = (RECORDED / f"{name}.md").read_text(encoding="utf-8")
    assert ("Measured: numbers differ" in text) == (name in MEASURED)
    assert "\n## What ours adds\n" in text


@pytest.mark.parametrize("name", PAGES)
def test_a_recorded_table_has_the_columns_of_the_figure(name: str) -> None:
    with (RECORDED / f"{name}.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    columns, in_a_quick_run = SHAPES[name]
    assert tuple(header) == columns
    assert len(rows) >= in_a_quick_run
    assert all(len(row) == len(columns) for row in rows)


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("chen-fig")])
def test_a_recorded_page_of_chen_was_run_with_every_seed(name: str) -> None:
    assert name_seeds(False, 0) in (RECORDED / f"{name}.md").read_text(encoding="utf-8")
