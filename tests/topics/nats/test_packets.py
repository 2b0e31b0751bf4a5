"""Short packets say what the long messages say, and nonsense is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Send
from distributary.topics import members_of
from distributary.topics.codec import (
    AROUND,
    SERVICE,
    Beat,
    Forgotten,
    Put,
    Taken,
    decode,
    mark_of,
)
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Event
from distributary.topics.nats.packer import Packer
from distributary.topics.nats.packets import (
    PACKETS,
    EventPacket,
    PieceCollector,
    decode_beat,
    decode_joint_puts,
    decode_puts,
    decode_taken,
    encode_beat,
    encode_events,
    encode_joint_puts,
    encode_puts,
    encode_taken,
    split_pieces,
)
from distributary.topics.nats.subjects import Subjects
from distributary.topics.nats.writer import _pack_jointly
from distributary.topics.numbers import MOST

NUMBERS = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, MOST - 5]) | st.integers(0, MOST - 5)
PAYLOADS = st.lists(st.binary(max_size=200), min_size=1, max_size=5)
NAMES = st.text(min_size=1, max_size=20)
UNNAMED = st.binary(min_size=8, max_size=8).map(lambda name: f"client/{name.hex()}")
SUBJECTS = Subjects()


def run_of(topic: str, first: int, epoch: int, payloads: list[bytes]) -> list[Event]:
    return [Event(topic, n, payload, epoch) for n, payload in enumerate(payloads, first)]


@given(NAMES, NUMBERS, NUMBERS, PAYLOADS)
def test_events_come_back(topic: str, first: int, epoch: int, payloads: list[bytes]) -> None:
    events = run_of(topic, first, epoch, payloads)
    packet = EventPacket(encode_events(events))
    assert packet.mark == mark_of(epoch)
    assert [*packet.events(topic, epoch)] == events


def test_an_event_costs_few_bytes_besides_its_payload() -> None:
    for number, bytes_of_it in ((1, 3), (127, 3), (128, 4), (16_384, 5)):
        assert len(encode_events(run_of("any", number, 1 << 41, [b""]))) == bytes_of_it


@given(st.lists(st.builds(Taken, NUMBERS, NUMBERS), max_size=5))
def test_confirmations_come_back(found: list[Taken]) -> None:
    assert decode_taken(encode_taken(found)) == found


@given(NAMES | UNNAMED | UNNAMED.map(str.upper), NUMBERS, NUMBERS, PAYLOADS)
def test_published_events_come_back(
    name: str, stream: int, first: int, payloads: list[bytes]
) -> None:
    puts = [Put(stream, n, payload) for n, payload in enumerate(payloads, first)]
    data = encode_puts(name, puts)
    assert data[0] in PACKETS
    assert decode_puts(data) == (name, puts)


def test_what_an_unnamed_client_publishes_does_not_repeat_its_name() -> None:
    puts = [Put(1, 1, b"payload")]
    assert len(encode_puts("client/0123456789abcdef", puts)) == len(b"payload") + 11
    assert b"client/ann/" in encode_puts("client/ann/0123456789abcdef", puts)


def number(stream: int, first: int, payloads: list[bytes]) -> list[Put]:
    return [Put(stream, n, payload) for n, payload in enumerate(payloads, first)]


CLIENTS = NAMES | UNNAMED | UNNAMED.map(str.upper)
BY_TOPIC = st.dictionaries(
    NAMES, st.builds(number, NUMBERS, st.integers(1, 1 << 40), PAYLOADS), min_size=1, max_size=4
)


@given(CLIENTS, BY_TOPIC)
def test_events_of_several_topics_come_back(name: str, puts: dict[str, list[Put]]) -> None:
    assert decode_joint_puts(encode_joint_puts(name, puts)) == (name, [*puts.items()])


@given(CLIENTS, BY_TOPIC, st.integers(1, 1_000))
def test_events_of_several_topics_go_in_packets_that_fit(
    name: str, puts: dict[str, list[Put]], room: int
) -> None:
    longest = max(len(put.payload) for found in puts.values() for put in found)
    most = AROUND + max(room, longest)
    packets = [*_pack_jointly(name, puts, most)]
    assert max(map(len, packets)) <= most
    again: dict[str, list[Put]] = {}
    for packet in packets:
        for topic, found in decode_joint_puts(packet)[1]:
            again.setdefault(topic, []).extend(found)
    assert again == puts


@given(CLIENTS, st.builds(Beat, NUMBERS, st.booleans(), NUMBERS, NUMBERS))
def test_heartbeats_come_back(name: str, beat: Beat) -> None:
    assert decode_beat(encode_beat(name, beat)) == (name, beat)


def test_a_heartbeat_of_an_unnamed_client_is_short() -> None:
    beat = Beat(0, True, 20 << 32, 1 << 32)  # 20 channels
    assert len(encode_beat("client/0123456789abcdef", beat)) <= 24


TAGGED = st.builds(bytes.__add__, st.sampled_from([bytes((tag,)) for tag in PACKETS]), st.binary())


@given(st.binary(max_size=40) | TAGGED)
def test_nonsense_is_refused_or_understood(data: bytes) -> None:
    readers = (EventPacket, decode_taken, decode_puts, decode_joint_puts, decode_beat)
    for read in (*readers, PieceCollector().take):
        with suppress(ValueError):
            read(data)


@given(st.binary(min_size=1, max_size=3_000), st.integers(33, 200))
def test_pieces_are_short_and_make_the_whole(data: bytes, most: int) -> None:
    collector = PieceCollector()
    data = b"\x93" + data
    pieces = split_pieces(data, most)
    assert all(len(piece) <= most for piece in pieces)
    assert [collector.take(piece) for piece in pieces] == [None] * (len(pieces) - 1) + [data]


@given(st.data())
def test_a_message_without_one_of_its_pieces_is_dropped_and_the_next_one_is_not(
    data: st.DataObject,
) -> None:
    pieces = split_pieces(b"\x93" * 500, 100)
    lost = data.draw(st.integers(0, len(pieces) - 1))
    collector, found = PieceCollector(), []
    for piece in [*pieces[:lost], *pieces[lost + 1 :], *pieces]:
        with suppress(ValueError):
            found.append(collector.take(piece))
    assert [each for each in found if each is not None] == [b"\x93" * 500]


CHANNELS = ("topic/a", "topic/b", "cluster/1/a")
ENDS = st.sampled_from(CHANNELS)
SENDS = st.lists(
    st.tuples(ENDS, st.sampled_from("ab"), st.integers(1, 3), st.binary(max_size=60))
    | st.builds(Taken, st.integers(1, 2), st.integers(1, 9))
    | st.builds(Forgotten, st.integers(0, 3)),
    max_size=30,
)


@given(SENDS)
def test_a_packer_sends_what_one_message_each_would_send(said: list[object]) -> None:
    packer, plain, numbers = Packer(SUBJECTS, AROUND + 100), [], dict.fromkeys("ab", 0)
    for each in said:
        if isinstance(each, tuple):
            channel, topic, step, payload = each
            numbers[topic] += step
            event = Event(topic, numbers[topic], payload, 7)
            packer.add(Send(members_of(channel), ChannelMessage(channel, event)))
            plain.append((channel, event))
        else:
            packer.add(Send("client", ChannelMessage(SERVICE, each)))
            plain.append(("client", each))
    found, taken = [], {}
    for subject, data in packer.finish():
        assert len(data) <= AROUND + 100
        if not subject.startswith("distributary.on."):
            if data[0] in PACKETS:
                taken |= {each.stream: each for each in decode_taken(data)}
            else:
                found.append(("client", decode(data)[1]))
            continue
        tokens = subject.split(".")
        channel = next(c for c in CHANNELS if subject.startswith(SUBJECTS.on(c)))
        topic = tokens[3] if channel.startswith("cluster/") else None
        packet = EventPacket(data)
        found += [(channel, event) for event in packet.events(topic or "?", 7)]
    by_stream = {each.stream: each for _, each in plain if isinstance(each, Taken)}
    assert taken == by_stream
    for channel in CHANNELS:
        sent = [(e.number, e.payload) for to, e in plain if to == channel]
        got = [(e.number, e.payload) for to, e in found if to == channel]
        assert sorted(sent) == sorted(got)
    for topic in "ab":
        sent = [e.number for to, e in plain if to == "cluster/1/a" and e.topic == topic]
        got = [e.number for to, e in found if to == "cluster/1/a" and e.topic == topic]
        assert sent == got
    assert [e for to, e in plain if isinstance(e, Forgotten)] == [
        e for to, e in found if isinstance(e, Forgotten)
    ]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\0\0", b"\x01\0\x01\x05abc", b"\0\0" + b"\xff" * 10],
)
def test_a_packet_that_is_cut_short_is_no_packet_of_events(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"number|item"):
        EventPacket(data)
