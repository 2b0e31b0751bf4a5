"""`distributary export` as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributary.export import FORMATS
from tests.cli.conftest import CommandLine
from tests.export.cases import csv_rows

FILES = {
    "csv": {"flows.csv", "subscriptions.csv", "groups.csv"},
    "cyclonedds": {"cyclonedds.xml", "flows.csv", "subscriptions.csv"},
    "nats": {"mappings.conf", "accounts.conf", "flows.csv", "subscriptions.csv"},
    "aeron": {"aeron.json"},
}
EXPORT = ("export", "plan", "--interest", "interest.csv", "--out", "out", "--format")


@pytest.fixture
def plan(cli: CommandLine, inputs: tuple[str, ...]) -> Path:
    ran = cli(
        "plan", *inputs, "--groups", "2", "--sessions", "3", "--out", "plan", "--format", "csv"
    )
    assert ran.status == 0
    return cli.folder / "plan"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_a_folder_that_a_second_run_writes_again_to_the_byte(
    cli: CommandLine, name: str
) -> None:
    ran = cli(*EXPORT, name)
    assert (ran.status, ran.err) == (0, "")
    assert "4 flows in 3 sessions over 2 groups" in ran.out
    first = contents(cli.folder / "out")
    assert set(first) == FILES[name] | {"export.json"}
    again = cli(*EXPORT, name, "--json")
    assert contents(cli.folder / "out") == first
    assert again.document == json.loads(first["export.json"])
    assert again.document["files"] == sorted(FILES[name])


@pytest.mark.usefixtures("plan")
def test_the_network_is_the_operators_to_choose(cli: CommandLine) -> None:
    options = ("--base", "239.255.3.0", "--port", "7000", "--pairs")
    assert cli(*EXPORT, "csv", *options).status == 0
    rows = csv_rows((cli.folder / "out/flows.csv").read_bytes())
    assert {row["address"] for row in rows} == {
        f"239.255.{half}.{group}" for half in (3, 131) for group in (1, 3)
    }
    assert {row["port"] for row in rows} == {"7000"}
    manifest = json.loads((cli.folder / "out/export.json").read_text())
    assert manifest["control_group"] == "239.255.3.0"
    interfaces = ("--interface", "10.1.0.0/16", "--interface", "10.2.0.0/16")
    assert cli(*EXPORT, "aeron", *options, *interfaces).status == 0
    assert "interface=10.2.0.0/16" in (cli.folder / "out/aeron.json").read_text()


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(
    "words",
    [
        ("morse",),
        ("csv", "--base", "10.0.0.1"),
        ("csv", "--base", "224.0.0.1"),
        ("csv", "--port", "70000"),
        ("csv", "--interface", "10.0.0.1"),
        ("aeron", "--interface", "eth0"),
        ("aeron", "--interface", "10.0.0.1", "--pairs"),
        ("cyclonedds", "--port", "7000"),
        ("nats", "--pairs"),
        ("nats", "--base", "239.192.0.0"),
    ],
)
def test_wrong_usage_exits_with_2_and_writes_nothing(
    cli: CommandLine, words: tuple[str, ...]
) -> None:
    ran = cli(*EXPORT, *words)
    assert ran.status == 2, ran
    assert "Traceback" not in ran.err
    assert not (cli.folder / "out").exists()


def test_a_block_too_small_for_the_groups_is_told_in_one_line(cli: CommandLine, plan: Path) -> None:
    ran = cli(*EXPORT, "csv", "--base", "233.54.12.254")
    assert ran.status == 1
    assert len(ran.err.strip().splitlines()) == 1
    assert "2 groups" in ran.err
    assert "233.54.12.0/24" in ran.err
    assert not (cli.folder / "out").exists()


@pytest.mark.usefixtures("plan")
def test_the_plan_alone_is_enough(cli: CommandLine) -> None:
    assert cli(*EXPORT, "csv").status == 0
    ran = cli("export", "plan", "--out", "alone", "--format", "csv")
    assert (ran.status, ran.err) == (0, "")
    assert contents(cli.folder / "alone") == contents(cli.folder / "out")


def test_a_plan_that_misses_somebody_is_not_exported(cli: CommandLine, plan: Path) -> None:
    path = plan / "subscriptions.csv"
    path.write_text("".join(x for x in path.read_text().splitlines(True) if "ann" not in x))
    ran = cli(*EXPORT, "csv")
    assert ran.status == 1
    assert "'ann' misses flow 'a'" in ran.err
    assert not (cli.folder / "out").exists()


@pytest.mark.usefixtures("plan")
def test_a_plan_made_for_another_interest_is_exported_with_a_word_about_it(
    cli: CommandLine,
) -> None:
    text = (cli.folder / "interest.csv").read_text()
    cli.write("interest.csv", text.replace("cyd,c\n", ""))
    ran = cli(*EXPORT, "csv")
    assert ran.status == 0
    assert "another interest" in ran.err


@pytest.mark.usefixtures("plan")
def test_a_folder_that_is_not_an_export_is_left_alone(cli: CommandLine) -> None:
    kept = cli.write("out/notes.txt", "mine")
    ran = cli(*EXPORT, "csv")
    assert ran.status == 1
    assert len(ran.err.strip().splitlines()) == 1
    assert [path.name for path in kept.parent.iterdir()] == ["notes.txt"]


def test_many_flows_for_nats_get_a_word_about_mappings(cli: CommandLine) -> None:
    pairs = [f"ann,f{k}\n" for k in range(1001)]
    cli.write("interest.csv", "receiver,flow\n" + "".join(pairs))
    cli.write("rates.csv", "flow,rate\n" + "".join(f"f{k},1\n" for k in range(1001)))
    files = ("--interest", "interest.csv", "--rates", "rates.csv")
    assert cli("plan", *files, "--groups", "1", "--out", "plan").status == 0
    ran = cli(*EXPORT, "nats")
    assert ran.status == 0
    assert "accounts.conf" in ran.err
