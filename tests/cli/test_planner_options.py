"""The planner's options: the same in every command that plans, and what they come to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import typer

from distributary.cli.app import app
from distributary.cli.planner_options import PlannerOptions, TermOptions
from distributary.cli.price_options import ChannelOptions, PacketOptions
from distributary.cli.quantities import Rate
from distributary.model import Limits
from distributary.planning import UnicastLimits
from tests.cli.conftest import CommandLine
from tests.cli.test_bad_input import assert_one_line
from tests.cli.test_planning_options import plan_to

ROOT: Any = typer.main.get_command(app)
CONTEXT: Any = ROOT.make_context("distributary", [], resilient_parsing=True)
PIPELINE: Any = ROOT.load("pipeline", CONTEXT)
COMMANDS = {
    "plan": (ROOT.load("plan", CONTEXT), (PlannerOptions,)),
    "pipeline run": (PIPELINE.commands["run"], (PlannerOptions,)),
    "pipeline stream": (PIPELINE.commands["stream"], (PlannerOptions,)),
    "sweep": (ROOT.load("sweep", CONTEXT), (TermOptions, PacketOptions, ChannelOptions)),
    "report": (ROOT.load("report", CONTEXT), (TermOptions,)),
}
QUICK = ("--budget", "0.05s")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_plans_takes_the_options_of_the_planner(name: str) -> None:
    command, groups = COMMANDS[name]
    taken = {parameter.name for parameter in command.params}
    assert {field.name for group in groups for field in fields(group)} <= taken


def describe_options(name: str) -> dict[str, tuple[Any, ...]]:
    """What a command says of the options of the planner: names, limits, default, help and panel."""
    command, _ = COMMANDS[name]
    shared = {field.name for field in fields(PlannerOptions)}
    context = command.make_context(name, [], resilient_parsing=True)
    return {
        each.name: (
            *(each.opts, each.required, each.default),
            *(each.get_help_record(context), each.rich_help_panel),
        )
        for each in command.params
        if each.name in shared
    }


@pytest.mark.parametrize("name", ["pipeline run", "pipeline stream"])
def test_the_pipeline_takes_the_options_of_plan_unchanged(name: str) -> None:
    assert len(describe_options("plan")) == len(fields(PlannerOptions))
    assert describe_options(name) == describe_options("plan")


def test_terms_are_read_from_options_and_tables(cli: CommandLine) -> None:
    options = TermOptions(
        limits=str(cli.write("own.toml", "[groups]\nrate = 8\n[receivers]\ngroups = 3\n")),
        receivers=cli.write("receivers.csv", "receiver,weight,rate\nann,3,50\nbob,0.5,60\n"),
        receiver_caps=cli.write("caps.csv", "receiver,rate\nbob,70\n"),
        pins=cli.write("pins.csv", "flow,group\na,1\n"),
        together=cli.write("together.csv", "set,flow\n1,a\n1,b\n"),
        apart=cli.write("apart.csv", "set,flow\n1,a\n1,c\n"),
        group_cap=Rate("9"),
        unicast_receivers=2,
        unicast_links=5,
        unicast_rate=Rate("7"),
        max_sent=1.5,
    )
    terms = options.read_terms()
    constraints = terms["constraints"]
    assert constraints.limits == Limits(
        group_rate=9.0, receiver_groups=3, receiver_rates={"ann": 50.0, "bob": 70.0}
    )
    assert constraints.pinned == {"a": 1}
    assert constraints.together == (frozenset("ab"),)
    assert constraints.apart == (frozenset("ac"),)
    assert terms["receiver_weights"] == {"ann": 3.0, "bob": 0.5}
    assert terms["unicast"] == UnicastLimits(2, 5, 7.0)
    assert terms["max_sent"] == 1.5


def test_a_weight_of_a_receiver_counts_and_one_of_nobody_is_refused(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("receivers.csv", "receiver,weight\nann,100\n")
    plain = plan_to(cli, inputs, "plain", "--json").document["filtering"]["work"]
    ran = plan_to(cli, inputs, "heavy", "--receivers", "receivers.csv", "--json")
    assert ran.status == 0, ran
    assert ran.document["filtering"]["work"] > 10 * plain
    cli.write("receivers.csv", "receiver,weight\nnobody,100\n")
    ran = plan_to(cli, inputs, "p", "--receivers", "receivers.csv")
    assert ran.status == 1
    assert_one_line(ran)
    assert "'nobody'" in ran.err


def test_a_sweep_says_at_which_numbers_of_groups_no_plan_keeps_the_terms(
    cli: CommandLine,
) -> None:
    cli.write("interest.csv", "receiver,flow\nann,a\nann,b\nbob,b\nbob,c\n")
    cli.write("rates.csv", "flow,rate\na,2\nb,2\nc,2\n")
    sweep = ("sweep", "--interest", "interest.csv", "--rates", "rates.csv", *QUICK)
    ran = cli(*sweep, "--groups", "1,2,3", "--group-cap", "4", "--json")
    assert ran.status == 0, ran
    assert [point["groups"] for point in ran.document["points"]] == [2, 3]
    (none,) = ran.document["infeasible"]
    assert (none["groups"], none["sessions"]) == (1, 1)
    assert none["reason"].startswith("infeasible: ")
    said = cli(*sweep, "--groups", "1,2,3", "--group-cap", "4")
    assert f"with 1 groups and 1 sessions there is no plan: {none['reason']}" in said.out
    ran = cli(*sweep, "--groups", "1,2,3", "--group-cap", "1")
    assert ran.status == 1
    assert_one_line(ran)


LOGS = ("--subscriptions", "subscriptions", "--publications", "publications")
PLANNING = {
    "plan": ("plan", "--groups", "2", "--out", "out"),
    "pipeline run": ("pipeline", "run", *LOGS, "--groups", "2", "--out", "out"),
    "pipeline stream": ("pipeline", "stream", *LOGS, "--groups", "2", "--out", "out"),
    "sweep": ("sweep", "--groups", "2"),
    "report": ("report", "made"),
}


@pytest.mark.parametrize("name", PLANNING)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limits", "nosuch"), "no profile and no file is called 'nosuch'"),
        (("--group-cap", "0"), "0"),
        (("--group-cap", "800Mbit"), "--count bytes"),
        (("--unicast-links", "3"), "--unicast-receivers"),
        (("--max-sent", "0.5"), "greater than or equal to 1"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_terms_are_wrong_usage_in_every_command_before_any_work(
    cli: CommandLine, inputs: tuple[str, ...], name: str, words: tuple[str, ...], said: str
) -> None:
    if name == "report":
        assert plan_to(cli, inputs, "made").status == 0
    files = () if name.startswith("pipeline") else inputs
    ran = cli(*PLANNING[name], *files, *words)
    assert ran.status == 2, ran
    assert said in " ".join(ran.err.split())
    assert not (cli.folder / "out").exists()
