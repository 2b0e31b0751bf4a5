"""Frames of strangers: damaged, cut, glued together or random, they are refused and nothing else.

Every frame goes through the decoder. A greeting or an answer that can still be read is judged, as a
broker judges it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from distributary.content import protocol
from distributary.content.codec import Codec, MessageError
from distributary.content.connections import Packet
from distributary.content.events import ContentEvent
from distributary.content.handshake import fingerprint, judge_hello, judge_welcome
from distributary.content.host import BrokerHost
from distributary.content.messages import (
    AdvertiseStatement,
    Name,
    Packed,
    Publication,
    SubscribeStatement,
    UnsubscribeStatement,
)
from distributary.content.policies import COVERING_POLICIES
from distributary.content.resync import HeardDigests, Known, SyncComplete, SyncPart, ToldBuckets
from distributary.matching import parse_filter
from distributary.model import Attribute, AttributeKind, Filter, Schema

SCHEMA = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("size", AttributeKind.INTEGER),
        Attribute("low", AttributeKind.DECIMAL, scale=2),
        Attribute("open", AttributeKind.BOOLEAN),
    )
)
CODEC = Codec(SCHEMA)
MINE = protocol.Identity("broker", "A", 3, fingerprint(SCHEMA))
CLIENT = protocol.Identity("client", "ann")
LINKS = (protocol.LinkFact("A", "B", 3, True), protocol.LinkFact("B", "C", 1, False))
FILTER = parse_filter("symbol IN ('IBM', 'SUN') AND price > 120 OR low < 1.25", SCHEMA)
NAME = Name("B", 2**40 + 7)
KNOWN = Known({NAME: FILTER}, {Name("C", 1): Filter.everything(SCHEMA)})
EVENT = ContentEvent(1, ("IBM", 7, None, 10**30, 1), 1.5, "ann", b"\x00payload")
INSIDE = (
    AdvertiseStatement(NAME, FILTER),
    Packed((SubscribeStatement(NAME, FILTER), UnsubscribeStatement(NAME, ((NAME, 2.0),)))),
    Publication(EVENT, NAME, 9),
    HeardDigests((1, 2**64 - 1) * 32),
    ToldBuckets((1, 63), KNOWN),
    SyncComplete(SyncPart.ADVERTISEMENTS),
)
MESSAGES = (
    protocol.Hello("broker", "B", (1, 2), MINE.schema, 2, LINKS, "secret"),
    protocol.Hello("client", "ann", (1, 1)),
    protocol.Welcome("B", 1, MINE.schema, 2, (("symbol", "text"),), LINKS),
    protocol.Refusal("no"),
    protocol.Goodbye("enough"),
    Packet(3, 2, 5, 4, 0, 6, INSIDE, True),
    *(Packet(1, 1, 0, 0, 0, 1, (message,)) for message in INSIDE),
    protocol.LinksKnown(LINKS),
    protocol.OpenSession(7, 12, False, 60.0, "drop-oldest", 100, 1 << 20),
    protocol.Subscribe(1, "symbol = 'IBM'"),
    protocol.Unsubscribe(1),
    protocol.Advertise(0, "TRUE"),
    protocol.Unadvertise(0),
    protocol.Publish(1, {"symbol": "IBM", "price": 120.5, "open": None}, b"\xff\x00"),
    protocol.Acknowledge(3),
    protocol.CloseSession(True),
    protocol.AskStatus(),
    protocol.SessionOpened(7, True, 3, 100, (1,), (0, 1)),
    protocol.Accepted("subscription", 1, True),
    protocol.Ended("subscription", 1),
    protocol.Refused("publication", 2, "no"),
    protocol.Stored(5, 100),
    protocol.Event(1, (1, 2), "A", "ann", 4, {"symbol": "IBM"}, b"p", 1.5),
    protocol.Dropped(1, 5, "full"),
    protocol.SessionClosed(),
    protocol.Status({"links": [{"name": "B"}], "accepted": 1}),
)
ROLES: tuple[protocol.Role, ...] = ("broker", "client")
PEERS = {"broker": "B", "client": "ann"}
FRAMES = tuple(CODEC.encode(message) for message in MESSAGES)


INTEGERS = (-(2**63), -1, 0, 1, 2, 3, 7, 63, 2**31, 2**40 + 7, 2**63 - 1)
TEXTS = ("", "A", "B", "C", "ann", "eve", "IBM", "\0", "ü" * 300, "symbol = 'IBM'", "price > ", "<")


TREES = tuple(msgspec.msgpack.decode(frame) for frame in FRAMES)


def change(value: Any, rng: Random) -> Any:
    """Another value, mostly of the same type."""
    if rng.random() < 0.05:
        return rng.choice([None, 0, "", [], b"", 1.5, True, {}])
    match value:
        case bool():
            return not value
        case int():
            near = [each for each in (value - 1, value + 1) if abs(each) < 2**63]
            return rng.choice([*near, *INTEGERS])
        case float():
            return rng.choice([0.0, -1.0, float("inf"), float("nan"), 1e300])
        case str():
            return rng.choice(TEXTS)
        case bytes():
            return rng.randbytes(rng.randrange(9))
        case list() if value:
            at = rng.randrange(len(value))
            match rng.randrange(8):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return [*value, value[at]]
                case 2:
                    return rng.sample(value, len(value))
            return [*value[:at], change(value[at], rng), *value[at + 1 :]]
        case dict() if value:
            key = rng.choice([*value])
            return {**value, rng.choice([key, *TEXTS]): change(value[key], rng)}
    return value


def damage(rng: Random) -> bytes:
    """A frame that somebody could send."""
    kind = rng.randrange(20)
    if kind >= 10:  # a message with other values
        tree = TREES[rng.randrange(len(TREES))]
        for _ in range(rng.choice([1, 1, 2, 4])):
            tree = change(tree, rng)
        return msgspec.msgpack.encode(tree)
    if kind == 0:
        return rng.randbytes(rng.randrange(60))
    frame = bytearray(rng.choice(FRAMES))
    if kind == 1:
        return bytes(frame[: rng.randrange(len(frame))])
    if kind == 2:
        other = rng.choice(FRAMES)
        return bytes(frame[: rng.randrange(len(frame))] + other[rng.randrange(len(other)) :])
    if kind == 3:
        at = rng.randrange(len(frame))
        return bytes(frame[:at] + rng.randbytes(rng.randrange(1, 9)) + frame[at:])
    if kind == 4:  # arrays in arrays in arrays
        return bytes(frame[: rng.randrange(9)]) + rng.choice([b"\x91", b"\x81\xa0"]) * 3_000
    for _ in range(rng.choice([1, 1, 2, 5])):
        frame[rng.randrange(len(frame))] = rng.choice([rng.randrange(256), 0xC0, 0x00, 0xFF, 0x90])
    return bytes(frame)


def judge(message: Any) -> str:
    """Judge a greeting or an answer; returns what came of it."""
    match message:
        case protocol.Hello():
            found = judge_hello(message, MINE, SCHEMA)
            CODEC.decode(CODEC.encode(found))
            return type(found).__name__
        case protocol.Welcome():
            refused = [
                judge_welcome(message, MINE, expected="B"),
                judge_welcome(message, CLIENT, expected=None),
            ]
            return "judged" if all(refused) else "trusted"
    return "read"


class Target:
    """A broker with a client and a neighbour that break the rules; both return when cut off."""

    def __init__(self) -> None:
        self.host = BrokerHost("A", SCHEMA, COVERING_POLICIES["merging"])
        self._number = 0
        self._open: dict[str, int] = {}
        self.host.start(0.0)

    def fit(self, packet: Packet, rng: Random) -> Packet:
        """The packet with numbers that continue the connection of the neighbour, mostly."""
        connection = self.host.broker.connections.get(PEERS["broker"])
        heard = 0 if connection is None else connection._in.received
        sent = 0 if connection is None else connection._out.sent
        numbers = {"sender": 1, "receiver": 1, "first": heard + 1, "held": 0}
        numbers |= {"received": rng.randint(0, sent), "done": rng.randint(0, sent)}
        if rng.random() < 0.2:
            numbers[rng.choice([*numbers])] = rng.choice(INTEGERS)
        return replace(packet, **numbers)  # type: ignore[arg-type]

    def take(self, role: protocol.Role, message: Any, now: float) -> int:
        """Give it a message of a client or of a neighbour; returns the number of those cut off."""
        if role not in self._open:
            self._number += 1
            self._open[role] = self._number
            self.host.on_open(protocol.Peer(self._number, role, PEERS[role], 1), now)
            if role == "client":
                self.host.on_message(self._number, protocol.OpenSession(), now)
        actions = self.host.on_message(self._open[role], message, now)
        cut = {each.connection for each in actions if isinstance(each, protocol.Cut)}
        for name, connection in list(self._open.items()):
            if connection in cut:
                del self._open[name]
                self.host.on_close(connection, now)
        return len(cut)


def choose_role(message: Any, rng: Random) -> protocol.Role:
    """Who would send such a message, most of the time."""
    if rng.random() < 0.1:
        return rng.choice(ROLES)
    return "broker" if isinstance(message, Packet | protocol.LinksKnown) else "client"


def attack(count: int, seed: int) -> Counter[str]:
    """Give a broker damaged messages that can still be read, from both roles."""
    rng = Random(seed)
    outcomes: Counter[str] = Counter()
    target = Target()
    for at in range(count):
        if at % 20_000 == 0:
            target = Target()
        try:
            message = CODEC.decode(damage(rng))
        except MessageError:
            outcomes["unreadable"] += 1
            continue
        role = choose_role(message, rng)
        if isinstance(message, Packet) and rng.random() < 0.9:
            message = target.fit(message, rng)
        outcomes["cut" if target.take(role, message, at * 0.001) else "taken"] += 1
    assert target.host.statistics().violations
    return outcomes


def try_frames(count: int, seed: int) -> Counter[str]:
    rng = Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        frame = damage(rng)
        try:
            message = CODEC.decode(frame)
        except MessageError:
            outcomes["unreadable"] += 1
            continue
        again = CODEC.encode(message)
        assert CODEC.encode(CODEC.decode(again)) == again, frame
        outcomes[judge(message)] += 1
    return outcomes


def test_every_kind_of_frame_is_among_those_that_are_damaged() -> None:
    known = {type(message) for message in MESSAGES}
    senders = protocol.ClientMessage, protocol.ReplyToClient, protocol.BrokerMessage
    assert known >= {each for union in senders for each in union.__args__}
    assert [CODEC.decode(frame) for frame in FRAMES] == [*MESSAGES]


def check(outcomes: Counter[str]) -> None:
    """The frames reach all the way: some are unreadable, some are refused, some accepted."""
    assert outcomes.keys() == {"unreadable", "read", "Refusal", "Welcome", "judged", "trusted"}


def test_damaged_frames_are_refused_and_never_raise() -> None:
    check(try_frames(50_000, seed=1))


def test_a_broker_survives_damaged_messages_of_clients_and_neighbours() -> None:
    assert attack(20_000, seed=3).keys() == {"unreadable", "cut", "taken"}


@pytest.mark.slow
def test_a_broker_survives_two_million_damaged_messages() -> None:
    assert attack(2_000_000, seed=4).keys() == {"unreadable", "cut", "taken"}


@pytest.mark.slow
def test_two_million_damaged_frames_are_refused_and_never_raise() -> None:
    check(try_frames(2_000_000, seed=2))
