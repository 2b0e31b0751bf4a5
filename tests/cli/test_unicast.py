"""Some flows by unicast, from the command line to the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, Ran

FLOOR = ("--interest", "w/interest.parquet", "--rates", "w/rates.parquet")
PLAN = ("plan", *FLOOR, "--groups", "5", "--sessions", "20", "--budget", "100ms")


@pytest.fixture
def floor(cli: CommandLine) -> CommandLine:
    """A small trading floor in files."""
    generated = cli(
        "generate", "trading-floor", "--symbols", "600", "--receivers", "40", "--out", "w",
        "--share-of-market", "0.05",
    )  # fmt: skip
    assert generated.status == 0
    return cli


def document(ran: Ran) -> dict[str, dict[str, float]]:
    assert ran.status == 0, ran.err
    found: dict[str, dict[str, float]] = ran.document
    return found


def test_unicast_saves_and_evaluate_shows_it(floor: CommandLine) -> None:
    plain = document(floor(*PLAN, "--out", "plain", "--json"))
    mixed = document(floor(*PLAN, "--unicast-receivers", "1", "--out", "mixed", "--json"))
    assert plain["unicast"] == {"flows": 0, "links": 0, "rate": 0, "extra_rate": 0, "saving": 0}
    assert mixed["filtering"]["excess"] < plain["filtering"]["excess"]
    more = mixed["channel"]["sent"] - plain["channel"]["sent"]
    assert mixed["unicast"]["extra_rate"] == pytest.approx(more)
    assert mixed["unicast"]["flows"] == mixed["unicast"]["links"] > 0
    assert mixed["unicast"]["saving"] > 0
    priced = document(floor("evaluate", "mixed", *FLOOR, "--json"))
    for key in ("valid", "filtering", "channel", "operating", "unicast"):
        assert priced[key] == mixed[key]
    told = floor("evaluate", "mixed", *FLOOR)
    assert f"{mixed['unicast']['flows']:,} flows go by unicast" in told.out
    assert "unicast over" not in floor("evaluate", "plain", *FLOOR).out
    manifest = json.loads((floor.folder / "mixed" / "plan.json").read_text())
    assert manifest["parameters"]["unicast"] == {
        "max_receivers": 1, "max_links": None, "max_rate": None,
    }  # fmt: skip
    assert manifest["costs"]["unicast"] == mixed["unicast"]


def test_limits_hold(floor: CommandLine) -> None:
    few = ("--unicast-receivers", "3", "--unicast-links", "30", "--unicast-rate", "50")
    limited = document(floor(*PLAN, *few, "--out", "p", "--json"))
    unicast = limited["unicast"]
    assert limited["valid"]
    assert 0 < unicast["links"] <= 30
    assert unicast["extra_rate"] <= 50
    free = document(floor(*PLAN, "--unicast-receivers", "3", "--out", "p", "--json"))
    assert free["unicast"]["links"] > 30
    assert free["filtering"]["excess"] < limited["filtering"]["excess"]


def test_the_same_seed_gives_the_same_bytes(floor: CommandLine) -> None:
    asked = (*PLAN, "--unicast-receivers", "2")
    for out in ("one", "two"):
        assert floor(*asked, "--out", out).status == 0
    files = [
        {path.name: path.read_bytes() for path in (floor.folder / out).iterdir()}
        for out in ("one", "two")
    ]
    assert files[0] == files[1]
    assert "unicast.parquet" in files[0]


def test_a_plan_that_needs_no_unicast_has_none(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    """With a group for each flow nothing is wasted, so nothing is gained."""
    asked = ("plan", *inputs, "--groups", "4", "--budget", "0.1", "--unicast-receivers", "1")
    mixed = document(cli(*asked, "--out", "mixed", "--json"))
    assert mixed["filtering"]["excess"] == 0
    assert mixed["unicast"]["links"] == 0
    assert not list((cli.folder / "mixed").glob("unicast*"))
    assert "unicast" not in json.loads((cli.folder / "mixed" / "plan.json").read_text())["costs"]


def test_every_term_goes_with_every_other(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    asked = ("plan", *inputs, "--groups", "2", "--budget", "0.1")
    assert cli(*asked, "--out", "old").status == 0
    terms = (
        *("--from", "old", "--max-moves", "1", "--group-cap", "9"),
        *("--unicast-receivers", "1", "--unicast-links", "2", "--max-sent", "1.5"),
    )
    told = document(cli(*asked, *terms, "--out", "new", "--json"))
    assert told["valid"]
    assert len({move["flow"] for move in told["moves"]}) <= 1
    assert told["unicast"]["links"] <= 2


@pytest.mark.parametrize("format_name", ["csv", "cyclonedds", "nats", "aeron"])
def test_export_leaves_unicast_to_the_sender(floor: CommandLine, format_name: str) -> None:
    floor(*PLAN, "--unicast-receivers", "1", "--out", "p")
    links = document(floor("evaluate", "p", *FLOOR, "--json"))["unicast"]["links"]
    ran = floor("export", "p", *FLOOR[:2], "--format", format_name, "--out", "out")
    assert ran.status == 0, ran.err
    assert "the sender has to send them" in ran.err
    if format_name == "csv":
        rows = (floor.folder / "out" / "unicast.csv").read_text().splitlines()
        assert rows[0] == '"receiver","flow"'
        assert len(rows) == links + 1


def test_the_page_counts_unicast_as_delivered(floor: CommandLine) -> None:
    mixed = document(floor(*PLAN, "--unicast-receivers", "1", "--out", "p", "--json"))
    ran = floor("report", "p", *FLOOR, "--no-compare", "--out", "page.html")
    assert ran.status == 0, ran.err
    page = Path(floor.folder / "page.html").read_text()
    assert f": it sends {mixed['unicast']['flows']} flows by unicast and puts the others" in page
    assert "This plan is not valid" not in page
    assert "every wanted flow is delivered" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--unicast-links", "3"), "need --unicast-receivers"),
        (("--unicast-rate", "3"), "need --unicast-receivers"),
        (("--unicast-receivers", "0"), "unicast-receivers"),
        (("--unicast-receivers", "1", "--unicast-links", "-1"), "unicast-links"),
        (("--unicast-receivers", "1", "--unicast-rate", "nan"), "unicast-rate"),
        (("--unicast-receivers", "1", "--algorithm", "UBM"), "user-merge"),
        (("--unicast-receivers", "1", "--algorithm", "kmeans"), "only best"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    assert cli("plan", *inputs, "--groups", "2", "--out", "old").status == 0
    ran = cli("plan", *inputs, "--groups", "2", "--out", "p", *words)
    assert ran.status == 2
    assert said in ran.err
    assert not (cli.folder / "p").exists()
