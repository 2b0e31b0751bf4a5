"""Frames of strangers: damaged, cut, glued together or random, they are refused and nothing else.

Every frame goes through the decoder. A greeting or an answer that can still be read is judged, as a
broker judges it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from distributary.content import protocol
from distributary.content.codec import Codec, MessageError
from distributary.content.connections import Packet
from distributary.content.events import ContentEvent
from distributary.content.handshake import fingerprint, judge_hello, judge_welcome
from distributary.content.messages import (
    AdvertiseStatement,
    Name,
    Packed,
    Publication,
    SubscribeStatement,
    UnsubscribeStatement,
)
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
    HeardDigests((1, 2**64 - 1)),
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
    protocol.Refused("publication", 2, "no"),
    protocol.Stored(5, 100),
    protocol.Event(1, (1, 2), "A", "ann", 4, {"symbol": "IBM"}, b"p", 1.5),
    protocol.Dropped(1, 5, "full"),
    protocol.SessionClosed(),
    protocol.Status({"links": [{"name": "B"}], "accepted": 1}),
)
FRAMES = tuple(CODEC.encode(message) for message in MESSAGES)


def damage(rng: Random) -> bytes:
    """A frame that somebody could send."""
    kind = rng.randrange(10)
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


@pytest.mark.slow
def test_two_million_damaged_frames_are_refused_and_never_raise() -> None:
    check(try_frames(2_000_000, seed=2))
