from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.files import (
    limits_document,
    list_profiles,
    read_limits,
    read_profile,
    read_receivers,
)
from distributary.files.limits import _parse
from distributary.model import Limits, PacketStep

WHOLE = """
[groups]
members = 100
rate = 50_000
packets = [{ members = 9, packets = 75_000 }, { members = 100, packets = 15e3 }]
[receivers]
groups = 20
sessions = 100
rate = 1.5
[receivers."desk 7"]
rate = 2
[network]
groups = 500
sessions = 2_000
[switches]
entries = 256
table = "tables/switches.csv"
[switches."core 1"]
entries = 4_096
"""


def write(folder: Path, text: str | bytes) -> Path:
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / "switches.csv").write_text("receiver,switch\ndesk 7,core 1\nann,edge\n")
    path = folder / "limits.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_limit_can_be_said(tmp_path: Path) -> None:
    found = read_limits(write(tmp_path, WHOLE), ["ann", "desk 7", "bob"])
    assert found == Limits(
        group_members=100,
        group_rate=50_000,
        group_packets=(PacketStep(9, 75_000), PacketStep(100, 15_000)),
        receiver_groups=20,
        receiver_sessions=100,
        receiver_rate=1.5,
        receiver_rates={"desk 7": 2},
        groups=500,
        sessions=2_000,
        switch_entries=256,
        switch_of={"desk 7": "core 1", "ann": "edge"},
        entries_of={"core 1": 4_096},
    )


def test_a_rate_may_have_a_unit_if_the_demand_counts_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, '[groups]\nrate = "800Mbit"\n[receivers.ann]\nrate = "1kB"\n')
    found = read_limits(path, count="bytes")
    assert found == Limits(group_rate=100e6, receiver_rates={"ann": 1000})
    with pytest.raises(InputError, match=r"rate of \[receivers\] of 'ann' is '1kB'.*--count bytes"):
        read_limits(path)
    assert read_limits(write(tmp_path, '[groups]\nrate = "5000"\n')).group_rate == 5000


def test_nothing_said_is_no_limit(tmp_path: Path) -> None:
    assert read_limits(write(tmp_path, "")) == Limits()
    assert (
        read_limits(write(tmp_path, "[groups]\n[receivers]\n[network]\n[switches]\n")) == Limits()
    )


def test_one_number_of_packets_is_for_any_number_of_members(tmp_path: Path) -> None:
    found = read_limits(write(tmp_path, "[groups]\npackets = 100\n"))
    (step,) = found.group_packets
    assert step.packets == 100
    assert step.members > 10**9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("members = 5", ("'members'", "[groups]")),
        ("[group]\nmembers = 5", ("'group'", "[groups]")),
        ("groups = [1]", ("'groups'", "[groups]")),
        ("[groups]\nmember = 5", ("[groups] has no key 'member'", "members, rate, packets")),
        ("[groups]\nmembers = 0", ("members of [groups] is 0", "whole number above 0")),
        ("[groups]\nmembers = -3", ("members of [groups] is -3", "above 0")),
        ("[groups]\nmembers = 2.0", ("is 2.0", "whole number")),
        ("[groups]\nmembers = true", ("is True", "whole number")),
        ('[groups]\nmembers = "5"', ("is '5'", "whole number")),
        (f"[groups]\nmembers = {10**30}", ("members", "whole number")),
        ("[groups]\nrate = 0", ("rate of [groups] is 0", "finite number above 0")),
        ("[groups]\nrate = -0.5", ("-0.5", "above 0")),
        ("[groups]\nrate = inf", ("inf", "finite")),
        ("[groups]\nrate = nan", ("nan", "finite")),
        (f"[groups]\nrate = 1{'0' * 400}", ("rate", "finite")),
        ("[groups]\nrate = [1]", ("[1]", "finite")),
        ('[groups]\nrate = "fast"', ("rate of [groups]", "'fast'", "800Mbit")),
        ('[groups]\nrate = "0"', ("rate of [groups] is 0.0", "above 0")),
        ('[groups]\nrate = "1Mbit"', ("rate of [groups]", "bytes", "--count bytes")),
        ('[groups]\npackets = "1Mbit"', ("packets of [groups] is '1Mbit'", "finite")),
        ("[groups]\npackets = 0", ("packets of [groups] is 0", "above 0")),
        ("[groups]\npackets = [5]", ("the step 5", "members = 9")),
        ("[groups]\npackets = [{members = 5}]", ("{'members': 5}", "members = 9")),
        (
            "[groups]\npackets = [{members = 0, packets = 1}]",
            ("members of packets of [groups] is 0", "above 0"),
        ),
        (
            "[groups]\npackets = [{members = 9, packets = 1}, {members = 9, packets = 2}]",
            ("9 members before 9", "order"),
        ),
        ("[groups.g]\nrate = 5", ("[groups] has no names", "'g'")),
        ("[network.n]\ngroups = 5", ("[network] has no names", "'n'")),
        ("[receivers.nobody]\nrate = 5", ("'nobody'", "correct the name")),
        ("[receivers.ann]\nrate = 0", ("rate of [receivers] of 'ann' is 0", "above 0")),
        ("[receivers.ann]\ngroups = 5", ("[receivers] of 'ann' has 'groups'", "key", "rate")),
        ("[receivers.ann]\n", ("[receivers] of 'ann' has none", "rate")),
        ("[switches]\nentries = 5", ("no table", "which switch")),
        ('[switches]\ntable = "tables/switches.csv"', ("a table without entries", "give entries")),
        ("[switches]\nentries = 5\ntable = 7", ("table of [switches] is 7", "path")),
        ('[switches]\nentries = 5\ntable = "none.csv"', ("none.csv", "no such file")),
        (
            '[switches]\nentries = 0\ntable = "tables/switches.csv"',
            ("entries of [switches] is 0", "above 0"),
        ),
        (
            '[switches]\ntable = "tables/switches.csv"\n[switches.other]\nentries = 5',
            ("'other'", "no such switch", "'core 1', 'edge'"),
        ),
        ("[groups\n", ("TOML", "limits show")),
        ("[groups]\nmembers = 5\nmembers = 6\n", ("TOML",)),
        (f"[groups]\nrate = {'9' * 5000}", ("TOML",)),
        (b"[groups]\n# \xff\n", ("UTF-8",)),
        ("[a" + ".a" * 5, ("TOML",)),
        ("x = " + "[" * 5000, ("TOML",)),
    ],
)
def test_what_is_wrong_is_one_line_with_the_value_and_the_remedy(
    tmp_path: Path, text: str | bytes, said: tuple[str, ...]
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_limits(path, ["ann", "desk 7"])
    message = str(caught.value)
    assert message.startswith(str(tmp_path))
    assert "\n" not in message
    assert len(message) < 400
    for words in said:
        assert words in message


def test_a_receiver_of_the_switch_table_must_be_known(tmp_path: Path) -> None:
    path = write(tmp_path, '[switches]\nentries = 5\ntable = "tables/switches.csv"\n')
    with pytest.raises(InputError) as caught:
        read_limits(path, ["ann"])
    assert "switches.csv, row 1: receiver 'desk 7' is not in the interest" in str(caught.value)
    assert read_limits(path).switch_of == {"ann": "edge", "desk 7": "core 1"}


def test_a_receiver_is_behind_one_switch(tmp_path: Path) -> None:
    path = write(tmp_path, '[switches]\nentries = 5\ntable = "tables/switches.csv"\n')
    (tmp_path / "tables" / "switches.csv").write_text("receiver,switch\nann,a\nann,a\nann,b\n")
    with pytest.raises(InputError, match=r"row 3: receiver 'ann' has b here and a before"):
        read_limits(path, ["ann"])


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        read_limits(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_limits(tmp_path)


@given(st.text(max_size=200))
def test_no_text_gives_anything_but_limits_or_one_line(text: str) -> None:
    try:
        found: Limits | str = _parse(
            Path("limits.toml"), text.encode("utf-8", "replace"), None, "messages"
        )
    except InputError as error:
        found = str(error)
    assert isinstance(found, Limits) or found.startswith("limits.toml: ")


# --- profiles ------------------------------------------------------------------------------------


def test_profiles_are_those_of_the_docs() -> None:
    assert list(list_profiles()) == ["aws-tgw", "gcp", "jetstream", "linux"]


@pytest.mark.parametrize("name", ["aws-tgw", "gcp", "jetstream", "linux"])
def test_a_profile_can_be_saved_and_read_as_a_file(name: str, tmp_path: Path) -> None:
    assert read_limits(name)
    assert read_limits(write(tmp_path, read_profile(name))) == read_limits(name)
    assert read_profile(name).startswith(f"# {list_profiles()[name]}\n")


@pytest.mark.parametrize("name", ["aws-tgw", "gcp", "jetstream", "linux"])
def test_every_number_of_a_profile_has_its_source_in_the_docs(name: str) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    section = docs.partition(f"### {name}\n")[2].partition("\n### ")[0]
    for value in limits_document(read_limits(name)).values():
        steps = value if isinstance(value, tuple | list) else [{"all": value}]
        for number in (number for step in steps for number in step.values()):
            assert f"| {int(number):,} |" in section


# --- receivers -----------------------------------------------------------------------------------


def write_receivers(folder: Path, text: str) -> Path:
    path = folder / "receivers.csv"
    path.write_text(text)
    return path


def test_weights_and_rates_may_come_alone_or_together(tmp_path: Path) -> None:
    found = read_receivers(write_receivers(tmp_path, "receiver,weight,rate\nann,2,10\nbob,1,5\n"))
    assert found.weights == {"ann": 2, "bob": 1}
    assert found.rates == {"ann": 10, "bob": 5}
    found = read_receivers(write_receivers(tmp_path, "receiver,weight\nann,2\nann,2\n"), ["ann"])
    assert (found.weights, found.rates) == ({"ann": 2}, {})
    found = read_receivers(write_receivers(tmp_path, "rate,receiver\n3,ann\n"))
    assert (found.weights, found.rates) == ({}, {"ann": 3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("receiver\nann\n", ("neither", "weight", "rate")),
        ("receiver,weight\nann,0\n", ("row 1", "weight is 0", "above 0")),
        ("receiver,weight\nann,-1\n", ("weight is -1", "above 0")),
        ("receiver,weight\nann,\n", ("weight is missing",)),
        ("receiver,rate\nann,inf\n", ("rate is inf", "finite")),
        ("receiver,weight\nann,2\nann,3\n", ("row 2", "'ann' has 3.0 here and 2.0 before", "once")),
        ("receiver,weight\nann,2\nnobody,3\n", ("row 2", "'nobody'", "not in the interest")),
        ("name,weight\nann,2\n", ("no column 'receiver'",)),
    ],
)
def test_a_bad_table_of_receivers_is_one_line(
    tmp_path: Path, text: str, said: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        read_receivers(write_receivers(tmp_path, text), ["ann"])
    for words in said:
        assert words in str(caught.value)
