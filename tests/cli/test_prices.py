"""`evaluate` and `report` price a plan as it was made, unless told otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_bad_input import assert_one_line


def plan_at(cli: CommandLine, inputs: tuple[str, ...], *prices: str) -> Any:
    ran = cli(
        "plan", *inputs, "--groups", "2", "--sessions", "3", "--budget", "0.05s", "--out", "plan",
        "--json", *prices,
    )  # fmt: skip
    assert ran.status == 0, ran
    return ran.document


def rewrite(plan: Path, **parameters: object) -> None:
    path = plan / "plan.json"
    document = json.loads(path.read_text())
    document["parameters"] |= parameters
    path.write_text(json.dumps(document))


@pytest.fixture
def calibration(cli: CommandLine) -> str:
    numbers = {"alpha0": 0.25, "alpha1": 2.0, "beta0": 3.0, "beta1": 8.0}
    cli.write("prices.json", json.dumps({"format": 1, **numbers}))
    return "prices.json"


def test_evaluate_prices_a_calibrated_plan_as_plan_did(
    cli: CommandLine, inputs: tuple[str, ...], calibration: str
) -> None:
    planned = plan_at(cli, inputs, "--calibration", calibration)
    evaluated = cli("evaluate", "plan", *inputs, "--json").document
    assert evaluated["filtering"] == planned["filtering"]
    assert evaluated["prices"] == {
        "alpha": 0.5,  # of a message in a full packet
        "beta": 4.0,
        "packet_prices": {
            "alpha0": 0.25, "alpha1": 2.0, "beta0": 3.0, "beta1": 8.0, "heartbeats": 1.0
        },
    }  # fmt: skip
    said = "prices: alpha = 0.25 + 2 a packet, beta = 3 + 8 a packet, of up to 8 messages or 1 ms"
    assert said in cli("evaluate", "plan", *inputs).out


def test_a_report_shows_the_prices_of_its_plan(
    cli: CommandLine, inputs: tuple[str, ...], calibration: str
) -> None:
    plan_at(cli, inputs, "--calibration", calibration)
    assert cli("report", "plan", *inputs, "--no-compare").status == 0
    page = (cli.folder / "report.html").read_text(encoding="utf-8")
    assert "α = 0.25 + 2 a packet, β = 3 + 8 a packet, of up to 8 messages or 1 ms" in page
    assert "every message costs 0.25 and every packet, heartbeats included, 2" in page


def test_a_report_shows_linear_prices_too(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    plan_at(cli, inputs, "--alpha", "0.5", "--beta", "4")
    assert cli("report", "plan", *inputs, "--no-compare").status == 0
    page = (cli.folder / "report.html").read_text(encoding="utf-8")
    assert "α = 0.5, β = 4" in page
    assert "every message costs β = 4" in page


def test_a_price_that_is_given_goes_before_the_plans_own(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    plan_at(cli, inputs, "--alpha", "0.5", "--beta", "4")
    for words, alpha, beta in (
        (("--alpha", "1"), 1.0, 4.0),
        (("--beta", "1"), 0.5, 1.0),
        (("--alpha", "7", "--beta", "0"), 7.0, 0.0),
    ):
        evaluated = cli("evaluate", "plan", *inputs, *words, "--json").document
        assert evaluated["prices"] == {"alpha": alpha, "beta": beta}


def test_a_plan_that_names_no_prices_has_prices_of_1(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    plan_at(cli, inputs, "--alpha", "0.5")
    (cli.folder / "plan/plan.json").write_text('{"format": 1}')
    assert cli("evaluate", "plan", *inputs, "--json").document["prices"] == {"alpha": 1, "beta": 1}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"alpha": "cheap"}, "'cheap'"),
        ({"alpha": None}, "None"),
        ({"beta": True}, "True"),
        ({"beta": -1}, "-1"),
        ({"beta": [1]}, "[1]"),
        ({"alpha": float("nan")}, "nan"),
        ({"alpha": float("inf")}, "inf"),
        ({"alpha": 0, "beta": 0}, "both be 0"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_prices_in_plan_json_that_are_none_are_one_line_of_error(
    cli: CommandLine,
    inputs: tuple[str, ...],
    command: str,
    parameters: dict[str, object],
    said: str,
) -> None:
    plan_at(cli, inputs)
    rewrite(cli.folder / "plan", **parameters)
    assert_one_line(cli(command, "plan", *inputs), "plan.json", said, "--alpha")
    given = cli("evaluate", "plan", *inputs, "--alpha", "1", "--beta", "1")
    assert given.status == 0, given
