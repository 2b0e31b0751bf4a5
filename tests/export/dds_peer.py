"""A Cyclone DDS program for the tests, run in a network namespace that holds nothing but `lo`.

It reads one JSON request from stdin and answers with JSON lines on stdout:

    {"do": "start", "config": ...}                      "accepted", or it fails
    {"do": "join", "config": ..., "topics": [[s, t]]}   the groups each reader joins
    {"do": "read", "config": ..., "topics": [[s, t]]}   "ready", then what it reads
    {"do": "send", "config": ..., "topics": [[s, t]], "group": ..., "text": ...}
        starts a reader of its own, writes, and tells what reached the group and what was read
"""

import fcntl
import json
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from cyclonedds.core import (
    InstanceState,
    Listener,
    Policy,
    Qos,
    ReadCondition,
    SampleState,
    ViewState,
    WaitSet,
)
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
DATA_PORT = 7401  # of domain 0
SECONDS = 10
PROC = ("igmp", "igmp6")
# What a site adds: which interface, and here also multicast for a single reader.
SITE = (
    '<CycloneDDS><Domain Id="any"><General><Interfaces>'
    '<NetworkInterface name="lo" multicast="true" prefer_multicast="true"/>'
    "</Interfaces></General></Domain></CycloneDDS>"
)


@dataclass
class Message(IdlStruct, typename="Message"):
    text: str


def main() -> None:
    request = json.loads(sys.stdin.readline())
    bring_up_loopback()
    domain = Domain(0, f"{SITE},{request['config']}")
    participant = DomainParticipant(0)
    ends = [
        (Qos(Policy.Partition([s]), Policy.Reliability.Reliable(duration(seconds=1))), t)
        for s, t in request.get("topics", ())
    ]
    {"start": start, "join": join, "read": read, "send": send}[request["do"]](
        participant, ends, request
    )
    del domain


def bring_up_loopback() -> None:
    if socket.if_nameindex() != [(1, "lo")]:
        sys.exit("this is not a network namespace of its own: there is more than lo in it")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


def start(participant: DomainParticipant, ends: list[Any], request: dict[str, Any]) -> None:
    answer("accepted")


def join(participant: DomainParticipant, ends: list[Any], request: dict[str, Any]) -> None:
    before = joined_groups()
    for qos, topic in ends:
        reader = DataReader(Subscriber(participant, qos=qos), Topic(participant, topic, Message))
        answer(sorted(joined_groups() - before))
        del reader


def joined_groups() -> set[str]:
    """The multicast groups that this host is in, as the kernel lists them."""
    igmp, igmp6 = (Path(f"/proc/net/{name}").read_text().splitlines() for name in PROC)
    v4 = (line.split()[0] for line in igmp if line.startswith("\t"))
    v6 = (line.split()[2] for line in igmp6)
    return {str(IPv4Address(bytes.fromhex(group)[::-1])) for group in v4} | {
        str(IPv6Address(bytes.fromhex(group))) for group in v6
    }


def read(participant: DomainParticipant, ends: list[Any], request: dict[str, Any]) -> None:
    (qos, topic) = ends[0]
    reader = DataReader(
        Subscriber(participant, qos=qos), Topic(participant, topic, Message), qos=qos
    )
    something = ReadCondition(reader, SampleState.Any | ViewState.Any | InstanceState.Any)
    waiting = WaitSet(participant)
    waiting.attach(something)
    answer("ready")
    if not waiting.wait(duration(seconds=SECONDS)):
        sys.exit(f"nothing to read in {SECONDS} s")
    answer([sample.text for sample in reader.take(10)])


class Matched(Listener):
    """Remembers that a reader was found."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def on_publication_matched(self, writer: object, status: object) -> None:
        self.event.set()


def send(participant: DomainParticipant, ends: list[Any], request: dict[str, Any]) -> None:
    (qos, topic), matched = ends[0], Matched()
    writer = DataWriter(
        Publisher(participant, qos=qos),
        Topic(participant, topic, Message),
        qos=qos,
        listener=matched,
    )
    reader = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with listener(request["group"]) as group:
            reader.stdin.write(json.dumps({**request, "do": "read"}) + "\n")
            reader.stdin.flush()
            if not matched.event.wait(SECONDS):
                sys.exit(f"no reader was found in {SECONDS} s")
            writer.write(Message(request["text"]))
            answer(has_arrived(group, request["text"].encode()))
        out, _ = reader.communicate(timeout=SECONDS)
        answer([json.loads(line) for line in out.splitlines()])
    finally:
        reader.kill()
        reader.wait(SECONDS)


def listener(group: str) -> socket.socket:
    """A socket that gets what is sent to the group, and to no other."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((group, DATA_PORT))
    membership = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
    listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    listening.settimeout(SECONDS)
    return listening


def has_arrived(group: socket.socket, payload: bytes) -> bool:
    """Whether a packet with the payload came in before the socket's timeout."""
    try:
        return any(payload in group.recv(1 << 16) for _ in range(1000))
    except TimeoutError:
        return False


if __name__ == "__main__":
    main()
