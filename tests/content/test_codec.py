"""Messages survive the way through bytes, and bytes that are no message are refused."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content import protocol
from distributary.content.codec import Codec, MessageError
from distributary.content.connections import Packet
from distributary.content.events import ContentEvent
from distributary.content.messages import (
    AdvertiseStatement,
    Barrier,
    BarrierPassed,
    Echo,
    Name,
    Packed,
    Probe,
    Publication,
    SubscribeStatement,
    UnadvertiseStatement,
    UnsubscribeStatement,
)
from distributary.content.resync import (
    AskDigests,
    HeardDigests,
    Known,
    StaleStatements,
    SyncComplete,
    SyncPart,
    ToldBuckets,
)
from distributary.matching import parse_filter
from distributary.model import Attribute, AttributeKind, Filter, Schema

SCHEMA = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("size", AttributeKind.INTEGER),
        Attribute("low", AttributeKind.DECIMAL, scale=2),
        Attribute("high", AttributeKind.DECIMAL, scale=3),
        Attribute("open", AttributeKind.BOOLEAN),
        Attribute("at", AttributeKind.TIMESTAMP),
    )
)
CODEC = Codec(SCHEMA)
FILTERS = [
    "symbol = 'IBM' AND price > 120",
    "symbol LIKE 'a%b_' OR symbol NOT LIKE '%ü%x'",
    "low < high AND size >= -5",
    "symbol IS NULL OR NOT open",
    "symbol > 'm' AND at < '2024-01-01'",
    "low BETWEEN -1.25 AND 90000000000000000000000.01",
    "price <> 1 AND size IN (1, 2, 3, 9223372036854775807)",
]

names = st.builds(Name, st.text(max_size=5), st.integers(0, 2**63 - 1))
filters = st.sampled_from([*(parse_filter(each, SCHEMA) for each in FILTERS)]) | st.just(
    Filter.everything(SCHEMA)
)
keys = st.tuples(
    st.none() | st.text(max_size=4),
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(1 - 10**76, 10**76 - 1),
    st.none() | st.integers(1 - 10**76, 10**76 - 1),
    st.none() | st.integers(0, 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
numbers = st.integers(0, 2**63 - 1)
times = st.floats(0, 1e10)
content = st.builds(ContentEvent, numbers, keys, times, st.text(max_size=4), st.binary(max_size=9))
known = st.builds(
    Known,
    st.dictionaries(names, filters, max_size=2),
    st.dictionaries(names, filters, max_size=2),
)
prunes = st.none() | st.lists(st.tuples(names, st.floats(0)), max_size=2).map(tuple)
statements = st.one_of(
    st.builds(AdvertiseStatement, names, filters),
    st.builds(UnadvertiseStatement, names),
    st.builds(SubscribeStatement, names, filters, st.booleans()),
    st.builds(UnsubscribeStatement, names, prunes),
)
inside = st.one_of(
    statements,
    st.builds(Packed, st.lists(statements, max_size=3).map(tuple)),
    st.builds(Publication, content, names, numbers, st.floats(0), numbers),
    st.builds(Probe, numbers),
    st.builds(Echo, numbers),
    st.builds(Barrier, names, st.lists(names, max_size=2).map(tuple)),
    st.builds(BarrierPassed, names),
    st.builds(HeardDigests, st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple)),
    st.builds(ToldBuckets, st.lists(st.integers(0, 63), max_size=3).map(tuple), known),
    st.builds(StaleStatements, known),
    st.just(AskDigests()),
    st.builds(SyncComplete, st.sampled_from(SyncPart)),
)
packets = st.builds(
    Packet,
    *[numbers] * 6,
    st.lists(inside, max_size=4).map(tuple),
    st.booleans(),
)
values = st.one_of(
    st.none(),
    st.text(max_size=4),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.just(datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)),
)
facts = st.lists(
    st.builds(protocol.LinkFact, st.text(max_size=3), st.text(max_size=3), numbers, st.booleans()),
    max_size=3,
).map(tuple)


def plain(of: type, **given: Any) -> st.SearchStrategy[Any]:
    return st.builds(of, **given)


others = st.one_of(
    plain(protocol.Hello, versions=st.tuples(numbers, numbers), incarnation=numbers, links=facts),
    plain(protocol.Welcome, version=numbers, incarnation=numbers, links=facts),
    plain(protocol.Refusal),
    plain(protocol.Goodbye),
    plain(
        protocol.OpenSession,
        session=numbers,
        received=numbers,
        lease=st.none() | times,
        most_events=numbers,
        most_bytes=numbers,
    ),
    plain(protocol.Subscribe, number=numbers),
    plain(protocol.Unsubscribe, number=numbers),
    plain(protocol.Advertise, number=numbers),
    plain(protocol.Unadvertise, number=numbers),
    plain(
        protocol.Publish,
        number=numbers,
        attributes=st.dictionaries(st.text(max_size=3), values, max_size=3),
    ),
    plain(protocol.Acknowledge, delivery=numbers),
    plain(protocol.CloseSession),
    st.just(protocol.AskStatus()),
    plain(
        protocol.SessionOpened,
        session=numbers,
        published=numbers,
        window=numbers,
        subscriptions=st.just((1, 2)),
        advertisements=st.just(()),
    ),
    plain(protocol.Accepted, number=numbers),
    plain(protocol.Ended, number=numbers),
    plain(protocol.Refused, number=numbers),
    plain(protocol.Stored, published=numbers, window=numbers),
    plain(
        protocol.Event,
        delivery=numbers,
        number=numbers,
        subscriptions=st.just((3,)),
        attributes=st.dictionaries(st.text(max_size=3), values, max_size=3),
        published=times,
    ),
    plain(protocol.Dropped, first=numbers, last=numbers),
    st.just(protocol.SessionClosed()),
    st.just(protocol.Status({"links": [{"name": "B", "queued": 3}], "accepted": 1})),
    plain(protocol.LinksKnown, links=facts),
)


@given(packets | others)
def test_a_message_survives_the_way_through_bytes(message: Any) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message


@given(st.binary(max_size=60) | st.builds(CODEC.encode, packets | others), st.data())
def test_other_bytes_are_a_message_or_refused(data: bytes, draws: st.DataObject) -> None:
    if data and draws.draw(st.booleans()):
        at = draws.draw(st.integers(0, len(data) - 1))
        changed = draws.draw(st.integers(0, 255))
        data = data[:at] + bytes([changed]) + data[at + 1 :]
    with contextlib.suppress(MessageError):
        CODEC.decode(data)


def test_what_travels_inside_packets_is_not_a_message_of_its_own() -> None:
    with pytest.raises(MessageError):
        CODEC.decode(CODEC.encode(Probe(1)))
    packet = [32, 1, 1, 0, 0, 0, 1, [msgspec.Raw(CODEC.encode(protocol.AskStatus()))], False]
    with pytest.raises(MessageError):
        CODEC.decode(msgspec.msgpack.encode(packet))


@pytest.mark.parametrize(
    "box",
    [
        [[[9, [[0, 1]], False]], [], []],  # no such attribute
        [[[2, [["a", "b"]], False]], [], []],  # text for a number
        [[[0, [[1, 2]], False]], [], []],  # a number for text
        [[[2, [[5, 5]], False]], [], []],  # an empty range
        [[[2, [[0, None]], False]], [], []],  # a number's range without an end
        [[[2, [[5, 6], [1, 2]], False]], [], []],  # not in order
        [[[2, [[1, 2]], False], [2, [[1, 2]], False]], [], []],  # twice the same attribute
        [[], [[0, "<", 2]], []],  # text is not comparable with numbers
        [[], [[2, "~", 3]], []],
        [[], [], [[2, "a%", True]]],  # a pattern of a number
        [[[5, [[0, 3]], False]], [], []],  # beyond true
    ],
)
def test_a_filter_that_does_not_fit_the_schema_is_refused(box: Any) -> None:
    statement = msgspec.msgpack.encode([3, ["A", 1], [box], False])
    packet = [32, 1, 1, 0, 0, 0, 1, [msgspec.Raw(statement)], False]
    with pytest.raises(MessageError):
        CODEC.decode(msgspec.msgpack.encode(packet))


@pytest.mark.parametrize(
    "wrong", [("x", 1, 2, 3, 4, 2, 5), (1, 1, 2, 3, 4, 1, 5), ("x",), ("x", "y", 2, 3, 4, 1, 5)]
)
def test_an_event_that_does_not_fit_the_schema_is_refused(wrong: tuple[Any, ...]) -> None:
    event = ContentEvent(1, wrong, 0.0)
    packet = Packet(1, 1, first=1, messages=(Publication(event, Name("A", 1), 1),))
    with pytest.raises(MessageError):
        CODEC.decode(CODEC.encode(packet))
