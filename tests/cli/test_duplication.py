"""Flows in several sessions, from the command line."""

from __future__ import annotations

from tests.cli.conftest import CommandLine


def test_the_papers_example_wastes_nothing_once_a_flow_may_be_sent_twice(cli: CommandLine) -> None:
    cli.write("interest.csv", "receiver,flow\nU1,S1\nU1,S2\nU2,S1\nU2,S3\n")
    cli.write("rates.csv", "flow,rate\nS1,1\nS2,100\nS3,100\n")
    files = ("--interest", "interest.csv", "--rates", "rates.csv", "--groups", "2")
    once = cli("plan", *files, "--out", "once", "--json").document
    twice = cli("plan", *files, "--max-sent", "1.01", "--out", "twice", "--json").document
    assert once["filtering"]["excess"] > 0
    assert twice["filtering"]["excess"] == 0
    assert twice["duplicated_flows"] == 1
    evaluated = cli("evaluate", "twice", *files[:4], "--json").document
    assert evaluated["valid"] is True
    assert evaluated["channel"]["sent"] == 202


def test_sending_twice_goes_with_constraints(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    words = ("--groups", "2", "--max-sent", "2", "--group-cap", "100", "--out", "plan")
    assert cli("plan", *inputs, *words).status == 0
