"""Every copy of every flow and every subscription is in each format, whatever the names."""

from __future__ import annotations

import json
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.export import FORMATS, Network, export_files, unescape_name
from distributary.export.formats import nats
from distributary.model import Interest, Plan
from tests.export.cases import csv_rows, hostile_plan, placements_of, subscriptions_of
from tests.export.channel_uri import parse_channel
from tests.strategies import any_plans, interests

NAMESPACE = {"c": "https://cdds.io/config"}
PLANS = interests().flatmap(any_plans) | st.builds(hostile_plan)
NETWORKS = st.builds(
    Network,
    base=st.sampled_from(("239.192.0.0", "239.255.9.0", "ff15::8000:0")),
    port=st.integers(1, 65535),
    pairs=st.booleans(),
)


def expected_places(plan: Plan, network: Network) -> dict[tuple[int, str], str]:
    rows = network.assign(plan.n_groups)
    return {(row.group, row.line): row.address for row in rows}


def parse_row(row: dict[str, str], name: str) -> tuple[str, int, int]:
    return row[name], int(row["session"]), int(row["group"])


@given(PLANS, NETWORKS)
def test_csv_has_one_row_for_each_copy_and_subscription_on_each_line(
    plan: Plan, network: Network
) -> None:
    files = export_files(plan, "csv", network)
    assert sorted(files) == ["flows.csv", "groups.csv", "subscriptions.csv"]
    places = expected_places(plan, network)
    for table, name, expected in (
        ("flows", "flow", placements_of(plan)),
        ("subscriptions", "receiver", subscriptions_of(plan)),
    ):
        rows = csv_rows(files[f"{table}.csv"])
        assert [(*parse_row(row, name), row["line"]) for row in rows] == [
            (*pair, line) for pair in expected for line in network.lines
        ]
        for row in rows:
            assert row["address"] == places[int(row["group"]), row["line"]]
            assert row["port"] == str(network.port)
    groups = csv_rows(files["groups.csv"])
    assert {(int(r["group"]), r["line"]): r["address"] for r in groups} == places


@given(PLANS, NETWORKS)
def test_cyclonedds_maps_each_copy_to_the_address_of_its_group(
    plan: Plan, network: Network
) -> None:
    files = export_files(plan, "cyclonedds", network)
    places = expected_places(plan, network)
    for line in network.lines:
        name = f"cyclonedds-{line}.xml" if network.pairs else "cyclonedds.xml"
        root = ET.fromstring(files[name].decode("ascii"))
        addresses = {
            element.attrib["Name"]: element.attrib["Address"]
            for element in root.iterfind(".//c:NetworkPartition", NAMESPACE)
        }
        assert addresses == {f"g{g}": a for (g, on), a in places.items() if on == line}
        mapped = []
        for element in root.iterfind(".//c:PartitionMapping", NAMESPACE):
            partition, topic = element.attrib["DCPSPartitionTopic"].split(".")
            group = element.attrib["NetworkPartition"]
            mapped.append((unescape_name(topic), int(partition[1:]), int(group[1:])))
        assert mapped == placements_of(plan)
    rows = csv_rows(files["flows.csv"])
    assert [parse_row(row, "flow") for row in rows] == placements_of(plan)
    assert all(unescape_name(row["topic"]) == row["flow"] for row in rows)
    heard = csv_rows(files["subscriptions.csv"])
    assert [parse_row(row, "receiver") for row in heard] == subscriptions_of(plan)
    assert all(row["partition"] == f"s{row['session']}" for row in (*rows, *heard))


@given(PLANS)
def test_nats_maps_a_subject_of_its_own_to_each_copy(plan: Plan) -> None:
    files = export_files(plan, "nats")
    rows = csv_rows(files["flows.csv"])
    assert [parse_row(row, "flow") for row in rows] == placements_of(plan)
    pairs = [(row["subject"], row["session_subject"]) for row in rows]
    assert len({subject for subject, _ in pairs}) == len(rows)
    assert len({arriving for _, arriving in pairs}) == len(rows)
    for row in rows:
        group, session, token = row["session_subject"].split(".")
        assert (group, session) == (f"g{row['group']}", f"s{row['session']}")
        assert unescape_name(token) == row["flow"]
        assert row["subject"].split(".")[:2] == ["flow", token]
    mappings = re.findall(r'^  (".+"): (".+")$', files["mappings.conf"].decode(), re.M)
    assert [(json.loads(a), json.loads(b)) for a, b in mappings] == pairs
    imports = re.findall(r'subject: (".+")}, to: (".+")}$', files["accounts.conf"].decode(), re.M)
    assert [(json.loads(a), json.loads(b)) for a, b in imports] == pairs
    heard = csv_rows(files["subscriptions.csv"])
    assert [parse_row(row, "receiver") for row in heard] == subscriptions_of(plan)
    assert all(row["subject"] == f"g{row['group']}.s{row['session']}.*" for row in heard)


@given(PLANS, NETWORKS)
def test_aeron_has_a_channel_and_stream_for_each_session_and_line(
    plan: Plan, network: Network
) -> None:
    document = json.loads(export_files(plan, "aeron", network)["aeron.json"])
    places = expected_places(plan, network)
    carried: Counter[tuple[str, int, int]] = Counter()
    streams = []
    for session, entry in enumerate(document["sessions"]):
        assert entry["session"] == session
        carried.update((flow, session, entry["group"]) for flow in entry["flows"])
        assert [stream["line"] for stream in entry["streams"]] == list(network.lines)
        for stream in entry["streams"]:
            endpoint = parse_channel(stream["channel"])["endpoint"]
            assert endpoint.rsplit(":", 1) == [
                bracket(places[entry["group"], stream["line"]]), str(network.port),
            ]  # fmt: skip
            assert 0 < stream["streamId"] < 2**31
        streams.append(entry["streams"])
    assert carried == Counter(placements_of(plan))
    ids = [(s["channel"].split("|")[0], s["streamId"]) for pair in streams for s in pair]
    assert len(set(ids)) == len(ids)
    assert [entry["receiver"] for entry in document["receivers"]] == list(plan.receivers)
    subscribed = subscriptions_of(plan)
    for entry in document["receivers"]:
        sessions = [s for receiver, s, _ in subscribed if receiver == entry["receiver"]]
        assert entry["streams"] == [stream for s in sessions for stream in streams[s]]


def bracket(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def test_aeron_channels_name_the_interface_of_their_line() -> None:
    network = Network(pairs=True, interfaces=("10.1.0.0/16", "10.2.0.5"))
    document = json.loads(export_files(hostile_plan(), "aeron", network)["aeron.json"])
    a, b = (parse_channel(stream["channel"]) for stream in document["sessions"][3]["streams"])
    assert a == {"endpoint": "239.192.77.5:7702", "interface": "10.1.0.0/16", "alias": "g2.s3.A"}
    assert b == {"endpoint": "239.194.77.5:7702", "interface": "10.2.0.5/32", "alias": "g2.s3.B"}
    six = Network(base="ff15::8000:0", interfaces=("fd00::1/64",))
    document = json.loads(export_files(hostile_plan(), "aeron", six)["aeron.json"])
    channel = parse_channel(document["sessions"][0]["streams"][0]["channel"])
    assert channel["interface"] == "[fd00::1]/64"


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_plan_gives_the_same_bytes(name: str) -> None:
    assert export_files(hostile_plan(), name) == export_files(hostile_plan(), name)


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 0},
        {"port": 65536},
        {"base": "1.2.3.4"},
        {"interfaces": ("10.0.0.1", "10.0.0.2")},
        {"interfaces": ("10.0.0.1",), "pairs": True},
        {"interfaces": ("eth0|x=y",)},
        {"interfaces": ("fd00::1",)},
    ],
)
def test_a_network_that_cannot_be_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Network(**settings)  # type: ignore[arg-type]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="csv, cyclonedds, nats, aeron"):
        export_files(hostile_plan(), "morse")


def test_a_name_too_long_for_a_subject_is_refused() -> None:
    interest = Interest.from_pairs([("ann", "☃" * 1000)])
    plan = any_plan_of(interest)
    with pytest.raises(InputError, match="shorter name"):
        nats.nats_files(plan)


def any_plan_of(interest: Interest) -> Plan:
    """Everything in one session, for everybody."""
    plan = hostile_plan()
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=plan.placement_flow[:1],
        placement_session=plan.placement_session[:1],
        session_group=plan.session_group,
        subscription_receiver=plan.subscription_receiver[:0],
        subscription_session=plan.subscription_session[:0],
    )
