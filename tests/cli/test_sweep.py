"""`distributary sweep`: the table, the document, the files, and wrong usage."""

from __future__ import annotations

import csv
import sys

import pytest
from plotly.offline import get_plotlyjs

from distributary.model import Demand
from distributary.planning import Progress, Request, Solution, plan
from distributary.planning.sweep import sweep
from tests.cli.conftest import CommandLine

# By name: the default may go by the clock.
ITERATIVE = ("--algorithm", "iterative")
POINT_KEYS = {
    *("groups", "sessions", "alpha", "beta", "relative_excess", "excess", "work", "seconds"),
    *("flooding_excess", "used_groups", "used_sessions", "cut_short", "compared_with"),
    *("saved_per_group", "saved_share_per_group", "worse", "knee"),
    *("most_sessions", "most_sessions_per_group", "channel_cost"),
}


@pytest.fixture
def floor(cli: CommandLine) -> tuple[str, ...]:
    """A demand that is large enough to have a knee."""
    ran = cli(
        "generate", "trading-floor", "--symbols", "400", "--receivers", "30", "--out", "w",
        "--share-of-market", "0.1", "--format", "csv",
    )  # fmt: skip
    assert ran.status == 0
    return ("--interest", "w/interest.csv", "--rates", "w/rates.csv", *ITERATIVE)


def test_the_table_has_a_row_for_each_point_and_a_sentence_about_the_knee(
    cli: CommandLine, floor: tuple[str, ...]
) -> None:
    ran = cli("sweep", *floor, "--groups", "2,5,10,40", "--sessions", "40")
    assert ran.status == 0, ran
    rows = [line.split() for line in ran.out.splitlines() if line.startswith(" ")]
    points = [row for row in rows if row[0].isdigit()]
    assert [row[:2] for row in points] == [["2", "40"], ["5", "40"], ["10", "40"], ["40", "40"]]
    marked = [row for row in points if "knee" in row]
    assert len(marked) == 1
    assert f"40 sessions: from {marked[0][0]} groups on, ten more groups save at most" in ran.out
    assert not list(cli.folder.glob("sweep*"))


def test_the_table_keeps_its_figures_whole_on_a_narrow_terminal(
    cli: CommandLine, floor: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in cli("sweep", *floor, "--groups", "2,5,10", "--sessions", "40").out


def test_the_document_holds_points_knees_and_counts(
    cli: CommandLine, floor: tuple[str, ...]
) -> None:
    ran = cli(
        "sweep", *floor, "--groups", "2,5,5,20", "--sessions", "10,40", "--alpha", "0.1,1.6",
        "--beta", "1.9,0.4", "--json",
    )  # fmt: skip
    assert ran.status == 0, ran
    assert ran.err == ""
    document = ran.document
    assert all(set(point) == POINT_KEYS for point in document["points"])
    # Two pairs of prices; of 2, 5 and 20 groups the last does not fit into 10 sessions.
    assert len(document["points"]) == 2 * (2 + 3)
    assert (document["asked"], document["repeated"], document["skipped"]) == (16, 4, 2)
    assert document["capped"] == 0
    assert document["algorithm"] == "iterative"
    assert [(knee["alpha"], knee["most_sessions"]) for knee in document["knees"]] == [
        (0.1, 10),
        (0.1, 40),
        (1.6, 10),
        (1.6, 40),
    ]
    assert document["knees"][0]["groups"] is None
    assert document["knees"][0]["explained"].startswith("no knee: ")
    knees = {
        (point["alpha"], point["most_sessions"]): point["groups"]
        for point in document["points"]
        if point["knee"]
    }
    assert knees == {
        (knee["alpha"], knee["most_sessions"]): knee["groups"]
        for knee in document["knees"]
        if knee["groups"] is not None
    }


def test_files_hold_the_same_points_and_a_self_contained_page(
    cli: CommandLine, floor: tuple[str, ...]
) -> None:
    words = ("sweep", *floor, "--groups", "2,5,20", "--sessions-per-group", "1,3", "--seed", "7")
    ran = cli(*words, "--out", "new/folder")
    assert ran.status == 0, ran
    folder = cli.folder / "new/folder"
    assert sorted(path.name for path in folder.iterdir()) == ["sweep.csv", "sweep.html"]

    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    points = cli(*words, "--json").document["points"]
    assert len(rows) == len(points) == 6
    for row, point in zip(rows, points, strict=True):
        assert set(row) == POINT_KEYS
        for key in POINT_KEYS - {"seconds"}:
            assert row[key] == "" if point[key] is None else float(row[key]) == point[key], key

    page = (folder / "sweep.html").read_text(encoding="utf-8")
    own = page.replace(get_plotlyjs(), "")
    assert len(own) < len(page)
    assert "http://" not in own
    assert "https://" not in own
    assert "w/interest.csv" in own
    assert "--sessions-per-group 1,3" in own

    assert cli(*words, "--out", "again").status == 0
    assert (cli.folder / "again/sweep.html").read_text(encoding="utf-8") == page


def test_what_is_cut_repeated_or_skipped_is_said(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    ran = cli("sweep", *inputs, *ITERATIVE, "--groups", "2,3,3,99", "--sessions", "2,99")
    assert ran.status == 0, ran
    # The four wanted flows cut (99, 2), (2, 99), (3, 99) twice and (99, 99).
    assert "5 of 8 combinations with more groups or sessions than the 4 flows: reduced" in ran.out
    assert "2 of 8 combinations that repeat another: planned once" in ran.out
    assert "2 of 8 combinations with fewer sessions than groups: skipped" in ran.out
    assert "unheard" not in ran.out
    assert "1 flows that nobody wants" in ran.err


def test_one_alpha_goes_with_every_beta(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    document = cli("sweep", *inputs, *ITERATIVE, "--groups", "1,2", "--beta", "1,2,3", "--json")
    pairs = [(point["alpha"], point["beta"]) for point in document.document["points"]]
    assert pairs == [(1, 1), (1, 1), (1, 2), (1, 2), (1, 3), (1, 3)]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--groups", ""),
        ("--groups", "10,,20"),
        ("--groups", "0,10"),
        ("--groups", "ten"),
        ("--groups", "1.5"),
        ("--groups", "2", "--sessions", "-3"),
        ("--groups", "2", "--sessions", ""),
        ("--groups", "2", "--sessions-per-group", "x"),
        ("--groups", "2", "--sessions", "2", "--sessions-per-group", "2"),
        ("--groups", "3,4", "--sessions", "1,2"),
        ("--groups", "2", "--alpha", "1,2,3", "--beta", "1,2"),
        ("--groups", "2", "--alpha", "high"),
        ("--groups", "2", "--alpha", "nan"),
        ("--groups", "2", "--alpha", "0", "--beta", "0"),
        ("--groups", "2", "--algorithm", "magic"),
        ("--groups", "2", "--budget", "soon"),
        ("--groups", "2", "--seed", "-1"),
        ("--groups", "2", "--out", "rates.csv"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_writes_nothing(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    out = () if "--out" in words else ("--out", "sweep")
    ran = cli("sweep", *inputs, *words, *out)
    assert ran.status == 2, ran
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert not (cli.folder / "sweep").exists()


def test_ctrl_c_writes_nothing(
    cli: CommandLine, inputs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_at_three(demand: Demand, request: Request, progress: Progress) -> Solution:
        if request.size.groups == 3:
            raise KeyboardInterrupt
        return plan(demand, request, progress)

    # The package may name a function as it names this module.
    monkeypatch.setattr(sys.modules[sweep.__module__], "plan", interrupted_at_three)
    ran = cli("sweep", *inputs, *ITERATIVE, "--groups", "1,2,3", "--out", "sweep")
    assert ran.status == 130
    assert "interrupted" in ran.err
    assert ran.out == ""
    assert not (cli.folder / "sweep").exists()
