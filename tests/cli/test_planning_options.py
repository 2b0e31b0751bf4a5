"""What `distributary plan` takes besides sizes: a plan to start from, a column, limits, peaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, Ran
from tests.cli.test_bad_input import assert_one_line

QUICK = ("--budget", "0.05s")


def plan_to(cli: CommandLine, inputs: tuple[str, ...], out: str, *more: str) -> Ran:
    groups = () if "--groups" in more else ("--groups", "2")
    return cli("plan", *inputs, *groups, *QUICK, "--out", out, *more)


def groups_in(folder: Path) -> dict[str, int]:
    """Each flow's group, as the tables of a plan in CSV have it."""
    placed, sessions = (
        [line.split(",") for line in (folder / f"{name}.csv").read_text().split()[1:]]
        for name in ("placements", "sessions")
    )
    group = dict(sessions)
    return {flow.strip('"'): int(group[session]) for flow, session in placed}


@pytest.fixture
def yesterday(cli: CommandLine, inputs: tuple[str, ...]) -> str:
    """A plan that can be improved: made without a look at who wants what."""
    ran = plan_to(cli, inputs, "yesterday", "--algorithm", "by-name")
    assert ran.status == 0, ran
    return "yesterday"


# --- a plan to start from ------------------------------------------------------------------------


def test_with_no_moves_allowed_the_plan_is_yesterdays(
    cli: CommandLine, inputs: tuple[str, ...], yesterday: str
) -> None:
    ran = plan_to(cli, inputs, "today", "--from", yesterday, "--max-moves", "0", "--json")
    assert ran.status == 0, ran
    assert ran.document["moves"] == []
    for table in ("placements", "sessions", "subscriptions"):
        name = f"{table}.parquet"
        assert (cli.folder / "today" / name).read_bytes() == (
            cli.folder / yesterday / name
        ).read_bytes()


def test_new_flows_are_listed_as_moves_from_nowhere(
    cli: CommandLine, inputs: tuple[str, ...], yesterday: str
) -> None:
    with (cli.folder / "interest.csv").open("a") as table:
        table.write("ann,unheard\nnew,b\n")
    words = ("--from", yesterday, "--max-moves", "0")
    ran = plan_to(cli, inputs, "today", *words, "--json")
    assert ran.status == 0, ran
    (move,) = ran.document["moves"]
    assert move["flow"] == "unheard"
    assert move["before"] is None
    assert len(move["after"]) == 2
    said = plan_to(cli, inputs, "today", *words)
    assert said.status == 0
    assert "0 flows move, 1 are new" in said.out
    assert "unheard: new -> session {}, group {}".format(*move["after"]) in said.out


def test_no_more_flows_move_than_allowed_and_each_is_named(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    # b and c change places: each is with flows that its receivers do not want.
    cli.write("interest.csv", "receiver,flow\nann,a\nann,b\nbob,c\nbob,d\n")
    cli.write("market.csv", "flow,rate,market\na,9,x\nb,1,y\nc,1,x\nd,9,y\n")
    rates = ("--interest", "interest.csv", "--rates", "market.csv")
    assert plan_to(
        cli, rates, "yesterday", "--algorithm", "by-column", "--column", "market"
    ).status == 0  # fmt: skip
    moved = {}
    for allowed in (0, 1, 2, 9):
        words = ("--from", "yesterday", "--max-moves", str(allowed))
        document = plan_to(cli, rates, "today", *words, "--json").document
        moved[allowed] = [move["flow"] for move in document["moves"]]
        said = plan_to(cli, rates, "today", *words).out
        assert f"{len(moved[allowed])} flows move, 0 are new" in said
        for move in document["moves"]:
            before = "session {}, group {}".format(*move["before"])
            after = "session {}, group {}".format(*move["after"])
            assert f"{move['flow']}: {before} -> {after}" in said
    assert moved[0] == []
    assert len(moved[1]) == 1
    assert moved[2] == moved[9] == ["b", "c"]


def test_without_max_moves_a_plan_is_improved_freely(
    cli: CommandLine, inputs: tuple[str, ...], yesterday: str
) -> None:
    ran = plan_to(cli, inputs, "today", "--from", yesterday, "--json")
    assert ran.status == 0, ran
    before = json.loads((cli.folder / yesterday / "plan.json").read_text())
    assert ran.document["filtering"]["work"] <= before["costs"]["filtering"]["work"]


def assert_refused(ran: Ran, *said: str) -> None:
    assert ran.status == 2, ran
    assert ran.out == ""
    assert "Traceback" not in ran.err
    for words in said:
        assert words in ran.err


def test_max_moves_without_a_plan_to_start_from_is_refused(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert_refused(plan_to(cli, inputs, "today", "--max-moves", "3"), "start from")
    assert not (cli.folder / "today").exists()


def test_another_algorithm_does_not_start_from_a_plan(
    cli: CommandLine, inputs: tuple[str, ...], yesterday: str
) -> None:
    ran = plan_to(cli, inputs, "today", "--from", yesterday, "--algorithm", "kmeans")
    assert_refused(ran, "only best", "kmeans")


def test_a_plan_to_start_from_that_is_not_there_is_named(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert_one_line(plan_to(cli, inputs, "today", "--from", "nowhere"), "nowhere")


@pytest.mark.parametrize("max_moves", [(), ("--max-moves", "1")], ids=["freely", "one move"])
def test_a_plan_larger_than_asked_for_is_one_line_of_error(
    cli: CommandLine, inputs: tuple[str, ...], yesterday: str, max_moves: tuple[str, ...]
) -> None:
    ran = plan_to(cli, inputs, "today", "--from", yesterday, "--groups", "1", *max_moves)
    assert ran.status in (1, 2), ran
    assert "Traceback" not in ran.err
    assert "defect" not in ran.err
    assert "2 groups" in ran.err


# --- the clock -----------------------------------------------------------------------------------


def test_a_plan_says_that_the_clock_ended_its_search_on_the_terminal_and_in_plan_json(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli("generate", "two-class", "--flows", "40", "--receivers", "40", "--out", "w")
    hard = ("--interest", "w/interest.parquet", "--rates", "w/rates.parquet", "--groups", "6")
    words = ("--algorithm", "optimal", "--budget", "1ms", "--out", "cut")
    said = cli("plan", *hard, *words)
    assert said.status == 0, said
    assert "cut short" in said.err
    assert json.loads((cli.folder / "cut/plan.json").read_text())["cut_short"] is True
    assert cli("plan", *hard, *words, "--json").document["cut_short"] is True

    ended = plan_to(cli, inputs, "ended", "--algorithm", "optimal", "--budget", "10m")
    assert ended.status == 0, ended
    assert "cut short" not in ended.err
    assert json.loads((cli.folder / "ended/plan.json").read_text())["cut_short"] is False


# --- habits --------------------------------------------------------------------------------------


def test_by_column_keeps_each_market_in_one_group(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("rates.csv", "flow,rate,market\na,1,NY\nb,2,LN\nc,3,NY\nd,4,LN\nunheard,5,TK\n")
    ran = plan_to(
        cli, inputs, "p", "--algorithm", "by-column", "--column", "market", "--format", "csv"
    )
    assert ran.status == 0, ran
    group = groups_in(cli.folder / "p")
    assert group["a"] == group["c"] != group["b"] == group["d"]


def test_a_column_that_is_not_there_is_named(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    ran = plan_to(cli, inputs, "p", "--algorithm", "by-column", "--column", "market")
    assert_one_line(ran, "rates.csv", "market")


@pytest.mark.parametrize(
    "words",
    [
        ("--algorithm", "hash", "--column", "market"),
        ("--column", "market"),
        ("--algorithm", "by-column"),
    ],
)
def test_a_column_goes_with_by_column_and_only_with_it(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(plan_to(cli, inputs, "p", *words), "--column")


# --- limits --------------------------------------------------------------------------------------


def test_a_plan_keeps_to_caps_pins_and_sets(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("pins.csv", "flow,group\na,1\n")
    cli.write("together.csv", "set,flow\n1,b\n1,c\n")
    cli.write("apart.csv", "set,flow\nx,a\nx,d\n")
    cli.write("caps.csv", "receiver,rate\nann,10\n")
    ran = plan_to(
        cli, inputs, "p", "--groups", "2", "--group-cap", "9", "--pins", "pins.csv", "--together",
        "together.csv", "--apart", "apart.csv", "--receiver-caps", "caps.csv", "--format", "csv",
    )  # fmt: skip
    assert ran.status == 0, ran
    group = groups_in(cli.folder / "p")
    assert group["a"] == 1
    assert group["b"] == group["c"]
    assert group["d"] != group["a"]
    rate = {"a": 1, "b": 2, "c": 3, "d": 4}
    for g in (0, 1):
        assert sum(rate[flow] for flow in group if group[flow] == g) <= 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group-cap", "3.5"), ("'d'", "4", "3.5")),
        (("--group-cap", "4"), ("10", "8")),
        (("--receiver-cap", "6"), ("'cyd'", "7", "6")),
    ],
)
def test_limits_that_cannot_hold_are_one_line_with_the_reason(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    assert_one_line(plan_to(cli, inputs, "p", *words), "infeasible", *said)
    assert not (cli.folder / "p").exists()


@pytest.mark.parametrize("words", [("--group-cap", "0"), ("--receiver-cap", "0")])
def test_a_cap_of_nothing_is_refused(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(plan_to(cli, inputs, "p", *words), "cap")


def test_only_best_keeps_to_limits(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    assert_refused(plan_to(cli, inputs, "p", "--group-cap", "9", "--algorithm", "kmeans"), "best")


# --- peaks ---------------------------------------------------------------------------------------

PEAKS = "flow,rate,peak\na,1,10\nb,2,20\nc,3,3\nd,4,4\n"


def test_caps_look_at_peaks_and_costs_only_if_asked_to(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("rates.csv", PEAKS)
    assert_one_line(plan_to(cli, inputs, "p", "--group-cap", "18"), "'b'", "20", "18")
    calm, busy = (
        plan_to(cli, inputs, "p", "--plan-on", on, "--json").document for on in ("mean", "peak")
    )
    assert calm["filtering"]["work"] < busy["filtering"]["work"]


def test_there_is_no_planning_on_peaks_without_them(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert_one_line(plan_to(cli, inputs, "p", "--plan-on", "peak"), "rates.csv", "peak")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("b,2,fast", "'fast'"),
        ("b,2,0", "peak is 0.0"),
        ("b,2,-1", "peak is -1.0"),
        ("b,2,inf", "peak is inf"),
        ("b,2,NaN", "peak is nan"),
        ("b,2,", "peak is missing"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_bad_peak_is_refused_like_a_bad_rate(
    cli: CommandLine, inputs: tuple[str, ...], kind: str, row: str, said: str
) -> None:
    name = f"rates.{kind}"
    flow, rate, peak = row.split(",")
    if kind == "csv":
        cli.write(name, f"flow,rate,peak\na,1,10\n{row}\nc,3,3\nd,4,4\n")
    else:
        value = {"fast": '"fast"', "inf": "1e999", "": "null"}.get(peak, peak)
        cli.write(
            name,
            '{"flow":"a","rate":1,"peak":10}\n'
            f'{{"flow":"{flow}","rate":{rate},"peak":{value}}}\n'
            '{"flow":"c","rate":3,"peak":3}\n{"flow":"d","rate":4,"peak":4}\n',
        )
    ran = plan_to(cli, (*inputs[:3], name), "p")
    assert_one_line(ran, f"{name}, row 2", said)
