"""What holds of every figure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from distributary.papers import FIGURES, Claim, run_figure, write_figure
from distributary.papers.milo import curves
from tests.papers.cases import progress, quick

# Columns and number of rows of a quick run.
SHAPES = {
    "adler-fig2": (
        ("instance", "c_inf", "fbm", "ubm", "ran", "rse", "rre", "occ", "oca", "best"),
        30,
    ),
    "adler-fig3": (("setting", "groups", "algorithm", "instances", "overhead"), 4 * 17 * 5 + 4),
    "adler-fig4": (
        ("flows", "groups", "algorithm", "instances", "cost", "cost_over_c_inf"),
        4 * 5 + 1,
    ),
    "adler-asymmetric": (
        ("flows", "users", "groups", "algorithm", "instances", "cost_over_c_inf"),
        4 * 6,
    ),
    "adler-weights": (
        ("w1", "setting", "groups", "algorithm", "instances", "overhead_over_c_inf"),
        2 * 2 * (2 * 5 + 1),
    ),
    "banavar-steps": (
        ("reading", "subscriptions", "matching", "draws", "steps", "lowest", "highest"),
        2 * 3 * 7,
    ),
    "banavar-load": (
        ("policy", "matching_percent", "subscriptions", "max_rate", "full_rate"),
        2 + 2 + 1,
    ),
    "banavar-queues": (("rate_ratio", "events_per_s", "time", "waiting"), 4 * 41),
    "banavar-drops": (
        ("policy", "queue", "events_per_s", "wanted", "delivered", "delay_95_s"),
        2 * 2 * 2,
    ),
    "banavar-lateral": (("place", "quantity", "at", "value"), 2 * 13),
    "banavar-batches": (("brokers", "period_s", "changes_per_s", "events_per_s"), 5 * 13),
    "tock-fig4": (("market", "symbols", "followed_symbols", "follows", "messages_per_s"), 10),
    "tock-fig5": (("wanted_flows", "h", "alpha", "alpha_fit", "beta", "beta_fit", "r2"), 2 * 4),
    "tock-fig6": (
        ("algorithm", "alpha", "beta", "groups", "sessions", "floors", "relative_cost"),
        3 * (6 + 5 + 4 + 3 + 2) + 3,
    ),
    "tock-fig7": (
        ("groups", "sessions", "algorithm", "floors", "relative_cost", "lowest", "highest"),
        3 * 4 + 5 * 4 + 1,
    ),
    "tock-outliers": (
        (
            "plan",
            "most_receivers",
            "extra_allowed",
            "unicast_flows",
            "unicast_links",
            "sent",
            "goodput_percent",
            "relative_cost",
        ),
        3,
    ),
    "tock-unicast-flooding": (
        (
            "floor",
            "symbols_mean",
            "symbols_max",
            "symbols_min",
            "unicast_copies",
            "flooding_goodput",
        ),
        5,
    ),
}

TABLE = ("model", "algorithm", "seed", "maintenance", "dissemination", "cost", "overhead")
CURVES = curves.COLUMNS
SHAPES |= {
    "chen-fig1": (("policy", "broker", "time", "waiting"), 3615),
    "chen-fig7": (("dimensions", "policy", "quantity", "at", "value"), 1827),
    "chen-fig8": (("unsubscriptions", "policy", "quantity", "at", "value"), 1287),
    "chen-fig9": (("degree", "policy", "quantity", "at", "value"), 1287),
    "chen-fig10": (("policy", "quantity", "at", "value"), 609),
    "chen-fig12": (("setting", "policy", "quantity", "at", "value"), 981),
    "chen-readings": (("setting", "reading", "policy", "quantity", "at", "value"), 18 * 14),
    "milo-table2": (TABLE, 9),
    "milo-table3": (TABLE, 12),
    "milo-fig5": (CURVES, 102),
    "milo-fig6": (CURVES, 68),
    "milo-fig7": (CURVES, 85),
    "milo-fig8": (CURVES, 153),
    "milo-fig9": (CURVES, 492),
    "milo-overlay": (
        (
            *("model", "algorithm", "seed", "way", "maintenance", "dissemination", "cost"),
            *("excess", "plain_excess", "hops", "control", "clusters", "users"),
        ),
        20,
    ),
    "milo-scales": (
        (
            *("varied", "share", "model", "topics", "users", "algorithm", "seed"),
            *("maintenance", "dissemination", "cost", "overhead"),
        ),
        30,
    ),
}

# Calculated a second time with the slow tests alone; the figures of the same paper tell by default.
LONG_TWICE = (
    *("adler-fig3", "adler-asymmetric", "adler-weights"),
    *("banavar-steps", "tock-fig6", "tock-fig7", "tock-outliers"),
)

# Whole networks are simulated for the first, and a real receiver is measured for the last: their
# own tests try small parts of them by default.
LONG = (
    *("banavar-load", "banavar-queues", "banavar-drops", "banavar-lateral", "banavar-batches"),
    *("chen", "milo", "tock-fig5"),
)
MEASURED = ("tock-fig5",)  # no two runs are alike


def _each_of(names: Iterable[str], long: tuple[str, ...] = LONG) -> pytest.MarkDecorator:
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "name", [pytest.param(each, marks=slow if each.startswith(long) else ()) for each in names]
    )


each_figure = _each_of(FIGURES)
each_computed_figure = _each_of(
    (name for name in FIGURES if name not in MEASURED), (*LONG, *LONG_TWICE)
)


def test_every_figure_is_in_the_catalogue_with_a_summary() -> None:
    assert set(FIGURES) == set(SHAPES)
    assert all(
        recipe.name == name and 10 < len(recipe.summary) < 80 for name, recipe in FIGURES.items()
    )


@each_figure
def test_a_quick_run_has_the_stated_columns_and_rows(name: str) -> None:
    figure = quick(name)
    assert (figure.columns, len(figure.rows)) == SHAPES[name]
    assert all(len(row) == len(figure.columns) for row in figure.rows)


@each_figure
def test_the_text_sets_ours_beside_the_papers_and_the_independent_numbers(name: str) -> None:
    text = quick(name).text
    for words in ("ours", "paper", "independent", "section", f"]({name}.svg)", f"]({name}.csv)"):
        assert words in text
    assert all(claim.ours in text and claim.says in text for claim in quick(name).claims)


@each_figure
def test_a_table_has_as_many_cells_in_every_row_as_in_its_header(name: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", quick(name).text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


@each_figure
def test_the_chart_is_small_valid_svg_without_a_date(name: str) -> None:
    chart = quick(name).chart
    assert ElementTree.fromstring(chart).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(chart.encode()) < 300_000
    assert "<dc:date>" not in chart


@each_computed_figure
def test_the_same_seed_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    write_figure(quick(name), tmp_path / "once")
    write_figure(run_figure(name, quick=True), tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "once").iterdir())
    assert files == [f"{name}.csv", f"{name}.md", f"{name}.svg"]
    for file in files:
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_another_seed_gives_other_numbers_and_says_so() -> None:
    other = run_figure("adler-fig2", quick=True, seed=1)
    assert other.rows != quick("adler-fig2").rows
    assert other.command == "distributary paper run adler-fig2 --quick --seed 1"


def test_the_written_table_can_be_read_back(tmp_path: Path) -> None:
    figure = quick("tock-fig7")
    write_figure(figure, tmp_path)
    with (tmp_path / "tock-fig7.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == figure.columns
    assert [(row[1], row[2]) for row in rows] == [(str(row[1]), row[2]) for row in figure.rows]
    assert [float(row[4]) for row in rows] == pytest.approx([row[4] for row in figure.rows], 1e-5)


@each_figure
def test_progress_ends_where_it_said_it_would(name: str) -> None:
    steps = progress(name)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[0].done == 0
    assert steps[-1].done == steps[-1].total


def test_an_unknown_figure_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"'adler-fig9'; there are adler-fig2, "):
        run_figure("adler-fig9")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must be at least 0, not -1"):
        run_figure("tock-fig4", seed=-1)


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ((True, True), "reproduced"),
        ((True, False), "partly reproduced"),
        ((False, False), "not reproduced"),
    ],
)
def test_the_verdict_counts_the_claims_that_hold(holds: tuple[bool, ...], verdict: str) -> None:
    claims = tuple(Claim("it falls", "section 9", "it does", held) for held in holds)
    assert replace(quick("tock-fig4"), claims=claims).verdict == verdict
