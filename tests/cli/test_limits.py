"""What `--limits` and `--receivers` do to `plan` and `evaluate`, and `distributary limits`."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_bad_input import assert_one_line
from tests.cli.test_planning_options import assert_refused, plan_to

PROFILES = ["aws-tgw", "gcp", "jetstream", "linux"]


def test_profiles_are_listed(cli: CommandLine) -> None:
    ran = cli("limits", "list")
    assert ran.status == 0
    names = [line.split()[0] for line in ran.out.splitlines() if not line.startswith(" ")]
    assert names == PROFILES  # a narrow terminal continues a summary on the next line
    document = cli("limits", "list", "--json").document
    assert list(document["profiles"]) == PROFILES


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_shown_as_toml_to_save_and_change(
    cli: CommandLine, inputs: tuple[str, ...], name: str
) -> None:
    shown = cli("limits", "show", name)
    assert shown.status == 0
    assert tomllib.loads(shown.out)
    assert cli("limits", "show", name, "--json").document["limits"]
    cli.write("own.toml", shown.out)
    assert plan_to(cli, inputs, "p", "--limits", "own.toml").status == 0
    assert plan_to(cli, inputs, "q", "--limits", name).status == 0
    stored = [json.loads((cli.folder / x / "plan.json").read_text()) for x in "pq"]
    assert stored[0]["parameters"]["constraints"] == stored[1]["parameters"]["constraints"]
    assert cli("evaluate", "p", *inputs, "--limits", name).status == 0


def test_an_unknown_profile_is_wrong_usage(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    assert_refused(cli("limits", "show", "azure"), "'azure'", *PROFILES)
    assert_refused(plan_to(cli, inputs, "p", "--limits", "azure"), "--limits", "'azure'", *PROFILES)
    assert_one_line(plan_to(cli, inputs, "p", "--limits", "none.toml"), "none.toml", "no such file")
    assert not (cli.folder / "p").exists()


def test_a_limit_of_0_is_one_line(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("own.toml", "[groups]\nmembers = 0\n")
    ran = plan_to(cli, inputs, "p", "--limits", "own.toml")
    assert_one_line(ran, "own.toml", "members of [groups] is 0", "above 0")


def test_options_override_the_file(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("own.toml", "[groups]\nrate = 1\n[receivers]\nrate = 1\n")
    words = ("--limits", "own.toml", "--group-cap", "10", "--receiver-cap", "20")
    ran = plan_to(cli, inputs, "p", *words, "--json")
    assert ran.status == 0, ran
    stored = json.loads((cli.folder / "p" / "plan.json").read_text())
    limits = stored["parameters"]["constraints"]["limits"]
    assert limits == {"group_rate": 10, "receiver_rate": 20}
    uses = {use["limit"]: use["allowed"] for use in ran.document["limits"]}
    assert uses == {"rate of a group": 10, "rate of a receiver": 20}
    said = plan_to(cli, inputs, "p", *words).out
    assert [line.split()[5] for line in said.splitlines() if "rate of a group" in line] == ["10"]
    assert "limits" not in plan_to(cli, inputs, "p", "--json").document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[groups]\nmembers = 1", ("'b'", "2 receivers", "1 members", "members of [groups]")),
        ("[groups]\npackets = 3", ("'d'", "packets/s", "packets of [groups]")),
        ("[groups]\nrate = 3.5", ("'d'", "4", "3.5", "--group-cap")),
        ('[receivers."cyd"]\nrate = 6', ("'cyd'", "7", "6")),
    ],
)
def test_what_cannot_hold_names_the_limit_that_must_give(
    cli: CommandLine, inputs: tuple[str, ...], text: str, said: tuple[str, ...]
) -> None:
    cli.write("own.toml", text)
    assert_one_line(plan_to(cli, inputs, "p", "--limits", "own.toml"), "infeasible", *said)
    assert not (cli.folder / "p").exists()


def test_evaluate_names_every_broken_limit_and_fails(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert plan_to(cli, inputs, "p", "--groups", "1").status == 0
    cli.write("switches.csv", "receiver,switch\nann,s1\nbob,s1\ncyd,s2\n")
    cli.write(
        "own.toml",
        "[groups]\nmembers = 2\nrate = 9\n[receivers.ann]\nrate = 5\n"
        '[switches]\nentries = 1\ntable = "switches.csv"\n',
    )
    broken = [
        "group 0 has 3 members, over 2",
        "group 0 carries 10, over 9",
        "receiver 'ann' takes in 10, over 5",
    ]
    ran = cli("evaluate", "p", *inputs, "--limits", "own.toml")
    assert ran.status == 1
    for sentence in broken:
        assert f"broken: {sentence}\n" in ran.out
    assert "p: the plan breaks a limit: group 0 has 3 members, over 2 (and 2 more)" in ran.err
    document = cli("evaluate", "p", *inputs, "--limits", "own.toml", "--json")
    assert document.status == 1
    assert document.document["broken_limits"] == broken
    uses = {use["limit"]: use for use in document.document["limits"]}
    assert uses["members of a group"] == {
        "limit": "members of a group", "where": "group 0", "used": 3, "allowed": 2,
    }  # fmt: skip
    assert uses["entries of a switch"]["used"] == 1
    assert [line.split()[-4:] for line in ran.out.splitlines() if "rate of a receiver" in line] == [
        ["10", "5", "receiver", "'ann'"]
    ]
    cli.write("own.toml", "[groups]\nmembers = 3\n")
    ran = cli("evaluate", "p", *inputs, "--limits", "own.toml")
    assert ran.status == 0
    assert "the plan breaks no limit" in ran.out
    assert "broken_limits" not in cli("evaluate", "p", *inputs, "--json").document


# --- receivers -----------------------------------------------------------------------------------


def test_a_table_of_receivers_caps_each(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("receivers.csv", "receiver,rate\ncyd,6\n")
    words = ("--receivers", "receivers.csv")
    assert_one_line(plan_to(cli, inputs, "p", *words), "infeasible", "'cyd'", "7", "6")
    assert plan_to(cli, inputs, "p", "--groups", "1").status == 0
    ran = cli("evaluate", "p", *inputs, *words)
    assert ran.status == 1
    assert "broken: receiver 'cyd' takes in 10, over 6\n" in ran.out
    cli.write("own.toml", "[receivers]\nrate = 1\n[receivers.cyd]\nrate = 2\n")
    cli.write("receivers.csv", "receiver,rate\nann,20\nbob,20\ncyd,30\n")
    assert plan_to(cli, inputs, "p", *words, "--limits", "own.toml").status == 0


def test_a_weight_counts_in_plan_and_evaluate(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("receivers.csv", "receiver,weight\nann,3\n")
    words = ("--receivers", "receivers.csv")
    assert plan_to(cli, inputs, "even", "--groups", "1").status == 0
    even = cli("evaluate", "even", *inputs, "--json").document["filtering"]
    weighed = cli("evaluate", "even", *inputs, *words, "--json").document["filtering"]
    assert even["work"] == 2 * 3 * 10
    assert weighed["work"] == 2 * 5 * 10
    assert plan_to(cli, inputs, "heavy", "--groups", "1", *words).status == 0
    own = cli("evaluate", "heavy", *inputs, "--json").document["filtering"]
    assert own["work"] == weighed["work"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("receiver,rate\nnobody,6\n", ("row 1", "'nobody'", "not in the interest")),
        ("receiver,weight\nann,0\n", ("row 1", "weight is 0", "above 0")),
        ("receiver,weight\nann,1\nann,2\n", ("row 2", "'ann'", "once")),
        ("receiver\nann\n", ("neither", "weight", "rate")),
    ],
)
def test_a_bad_table_of_receivers_is_one_line(
    cli: CommandLine, inputs: tuple[str, ...], text: str, said: tuple[str, ...]
) -> None:
    cli.write("receivers.csv", text)
    ran = plan_to(cli, inputs, "p", "--receivers", "receivers.csv")
    assert_one_line(ran, "receivers.csv", *said)
    assert not (cli.folder / "p").exists()


def test_a_limit_in_bits_needs_a_demand_in_bytes(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("rates.csv", "flow,rate,size\na,1,100\nb,2,100\nc,3,100\nd,4,100\n")
    cli.write("own.toml", '[groups]\nrate = "8kbit"\n')
    assert_one_line(plan_to(cli, inputs, "p", "--limits", "own.toml"), "own.toml", "--count bytes")
    words = ("--limits", "own.toml", "--count", "bytes")
    assert plan_to(cli, inputs, "p", *words).status == 0
    assert cli("evaluate", "p", *inputs, "--limits", "own.toml").status == 0
    cli.write("own.toml", '[groups]\nrate = "3kbit"\n')
    assert_one_line(plan_to(cli, inputs, "p", *words), "infeasible", "'d'", "400", "375")


def test_a_report_shows_the_limits_that_it_is_given(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert plan_to(cli, inputs, "p", "--groups", "1").status == 0
    cli.write("own.toml", "[groups]\nmembers = 2\n")
    words = ("--limits", "own.toml", "--no-compare", "--out", "page.html")
    assert cli("report", "p", *inputs, *words).status == 0
    page = (cli.folder / "page.html").read_text(encoding="utf-8")
    assert "What the network allows" in page
    assert "members of a group" in page
