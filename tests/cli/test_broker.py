"""`broker simulate`, typed as a user types it."""

from __future__ import annotations

import pyarrow.csv
import pytest

from distributary.content import COVERING_POLICIES
from tests.cli.conftest import CommandLine

LINKS = "a,b,delay\nhub,east,0.002\nhub,west,0.001\nwest,far,0.01\n"
HOMES = "receiver,broker\nann,east\nbob,far\ncy,west\n"
FILTERS = """\
receiver,filter
ann,symbol = 'IBM'
bob,"symbol = 'IBM' AND price > 120"
cy,"symbol = 'IBM' AND price > 100"
cy,"symbol = 'MSFT'"
"""
EVENTS = "symbol,price\n" + "IBM,121.5\nMSFT,300\nIBM,90\nIBM,110\n" * 25
SIMULATE = (
    *("broker", "simulate", "--links", "links.csv", "--filters", "filters.csv"),
    *("--events", "events.csv", "--publish-at", "hub"),
)


@pytest.fixture(autouse=True)
def files(cli: CommandLine) -> None:
    for name, text in (
        ("links.csv", LINKS),
        ("homes.csv", HOMES),
        ("filters.csv", FILTERS),
        ("events.csv", EVENTS),
    ):
        cli.write(name, text)


def test_all_policies_deliver_the_same(cli: CommandLine) -> None:
    ran = cli(*SIMULATE, "--homes", "homes.csv", "--json")
    assert ran.status == 0
    told = ran.document
    assert (told["brokers"], told["subscriptions"], told["events"]) == (4, 4, 100)
    assert [each["policy"] for each in told["policies"]] == list(COVERING_POLICIES)
    # Of each four events ann wants three, bob one, cy two and one.
    assert {each["deliveries"] for each in told["policies"]} == {25 * (3 + 1 + 3)}


def test_brokers_take_patterns_and_comparisons_of_two_attributes(cli: CommandLine) -> None:
    filters = """\
receiver,filter
ann,symbol LIKE '%B%'
bob,price > low
cy,"price > low AND symbol LIKE '_S%'"
"""
    cli.write("filters.csv", filters)
    cli.write("events.csv", "symbol,price,low\n" + "IBM,121.5,130\nMSFT,300,299.5\nIBM,9,8\n" * 20)
    told = cli(*SIMULATE, "--homes", "homes.csv", "--json").document
    assert {each["deliveries"] for each in told["policies"]} == {20 * (2 + 2 + 1)}


def test_some_may_leave_and_the_comparison_is_written(cli: CommandLine) -> None:
    options = ("--leave", "1", "--policy", "active", "--policy", "merging", "--out", "out.csv")
    ran = cli(*SIMULATE, "--homes", "homes.csv", *options)
    assert ran.status == 0
    assert "merging" in ran.out
    table = pyarrow.csv.read_csv(cli.folder / "out.csv")
    assert table["policy"].to_pylist() == ["active", "merging"]
    # The widest is ann's; half of the events come after it ended, or are on their way.
    assert max(table["deliveries"].to_pylist()) < 25 * 7


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        ({"links.csv": LINKS + "far,hub,1\n"}, (), "have a cycle"),
        ({"links.csv": LINKS + "hub,east,1\n"}, (), "links.csv, row 4"),
        ({"links.csv": LINKS + "x,y,1\n"}, (), "there is no path"),
        ({"homes.csv": "receiver,broker\nann,east\n"}, (), "'bob'"),
        ({"homes.csv": HOMES + "dee,moon\n"}, (), "homes.csv, row 4"),
        ({"homes.csv": HOMES + "hub,east\n"}, (), "the name of a broker"),
        ({"filters.csv": FILTERS + "ann,price > symbol\n"}, (), "filters.csv, row 5"),
        ({}, ("--leave", "9"), "only 4 subscriptions"),
        ({}, ("--publish-at", "moon"), "no such broker"),
    ],
)
def test_bad_input_is_named(
    cli: CommandLine, change: dict[str, str], options: tuple[str, ...], told: str
) -> None:
    for name, text in change.items():
        cli.write(name, text)
    ran = cli(*SIMULATE, "--homes", "homes.csv", *options)
    assert ran.status == 1
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_policy_is_wrong_usage(cli: CommandLine) -> None:
    ran = cli(*SIMULATE, "--policy", "eager")
    assert ran.status == 2
    assert "'eager'" in ran.err
