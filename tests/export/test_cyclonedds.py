"""The exported XML in a real Cyclone DDS: taken, obeyed, and refused when it is broken.

Each test runs in a network namespace of its own, with nothing in it but a loopback interface.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distributary.export import Network, escape_name, export_files
from tests.export.cases import hostile_plan, placements_of

PEER = Path(__file__).with_name("dds_peer.py")
SECONDS = 60


def dds_peer(**request: object) -> subprocess.CompletedProcess[str]:
    """Run the peer in a namespace of its own; fails, with the reason, where none can be made."""
    if not Path("/proc/self/ns/net").exists():
        pytest.fail("Cyclone DDS is only started in a network namespace of Linux")
    asked = subprocess.run(
        ["unshare", "-rn", "true"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if asked.returncode:
        pytest.fail(
            f"no private network namespace: {asked.stderr.strip()}; allow user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1) or run as root"
        )
    return subprocess.run(
        ["unshare", "-rn", sys.executable, str(PEER)],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def answers(done: subprocess.CompletedProcess[str]) -> list[object]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def export(network: Network | None = None, name: str = "cyclonedds.xml") -> str:
    return export_files(hostile_plan(), "cyclonedds", network)[name].decode("ascii")


@pytest.mark.parametrize(
    ("network", "name", "line"),
    [
        (Network(), "cyclonedds.xml", "A"),
        (Network(pairs=True), "cyclonedds-B.xml", "B"),
        (Network(base="ff15::8000:0"), "cyclonedds.xml", "A"),
    ],
)
def test_a_reader_of_each_copy_joins_the_group_of_its_session(
    network: Network, name: str, line: str
) -> None:
    placed = placements_of(hostile_plan())
    topics = [(f"s{session}", escape_name(flow)) for flow, session, _ in placed]
    joined = answers(dds_peer(do="join", config=export(network, name), topics=topics))
    rows = network.assign(3)
    address = {row.group: row.address for row in rows if row.line == line}
    assert joined == [[address[group]] for _, _, group in placed]


def test_a_writer_sends_to_the_group_and_a_reader_elsewhere_gets_it() -> None:
    flow, session, group = next(row for row in placements_of(hostile_plan()) if row[2] == 2)
    done = dds_peer(
        do="send",
        config=export(),
        topics=[[f"s{session}", escape_name(flow)]],
        group=Network().assign(3)[group].address,
        text="a message for group 2",
    )
    assert answers(done) == [True, ["ready", ["a message for group 2"]]]


def test_a_topic_in_another_partition_joins_no_group() -> None:
    assert answers(dds_peer(do="join", config=export(), topics=[["s9", "IBM"]])) == [[]]


def test_the_whole_file_is_accepted() -> None:
    assert answers(dds_peer(do="start", config=export())) == ["accepted"]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ('Address="239.192.77.1"', 'Address="239.192.77.999"', "239.192.77.999"),
        ('NetworkPartition="g2"', 'NetworkPartition="g7"', "unknown partition"),
        ("NetworkPartitions>", "NetworkPartitons>", "unknown element"),
        ("<Transport>udp</Transport>", "<Transport>pigeon</Transport>", "Transport"),
        ("</Domain>", "</Doman>", "CYCLONEDDS_URI"),
    ],
)
def test_the_same_check_refuses_a_broken_file(good: str, bad: str, said: str) -> None:
    assert good in export()
    done = dds_peer(do="start", config=export().replace(good, bad))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "DDSException" in done.stderr
    assert said in done.stderr
