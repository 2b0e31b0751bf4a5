"""Events that follow each other travel in one message, and nothing changes its order for that."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Send
from distributary.topics import TAMARA
from distributary.topics.codec import (
    Bye,
    Create,
    EventRun,
    Expect,
    Put,
    Puts,
    Taken,
    decode,
    encode,
)
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import Event
from distributary.topics.numbers import MOST
from distributary.topics.peer.runs import join_events, join_puts, split_run
from distributary.topics.records import HostState

FEW = st.integers(0, 2)
PAYLOADS = st.sampled_from((b"", b"x", b"y" * 40_000, b"z" * 70_000))
NUMBERS = st.integers(1, 6)


@given(
    st.lists(
        st.builds(
            lambda channel, said: ChannelMessage(f"topic/{channel}", said),
            *(FEW, st.builds(Put, FEW, NUMBERS, PAYLOADS) | st.just(Bye())),
        )
    )
)
def test_joined_puts_are_the_same_events_in_the_same_order(messages: list[ChannelMessage]) -> None:
    joined = join_puts(messages)
    assert order_of(split_puts(joined)) == order_of(messages)
    assert len(joined) <= len(messages)
    for each in joined:
        if isinstance(each.message, Puts):
            assert len(each.message.payloads) > 1
            assert sum(map(len, each.message.payloads)) <= 1 << 16


def split_puts(messages: list[ChannelMessage]) -> list[ChannelMessage]:
    found: list[ChannelMessage] = []
    for each in messages:
        match each:
            case ChannelMessage(channel, Puts(stream, first, payloads)):
                puts = [Put(stream, first + at, payload) for at, payload in enumerate(payloads)]
                found += [ChannelMessage(channel, put) for put in puts]
            case _:
                found.append(each)
    return found


def order_of(messages: list[ChannelMessage]) -> Any:
    """What may not change: each stream between any two other messages."""
    parts: list[Any] = []
    streams: defaultdict[tuple[str, int], list[Put]] = defaultdict(list)
    for each in messages:
        if isinstance(each.message, Put):
            streams[each.channel, each.message.stream].append(each.message)
        else:
            parts += [dict(streams), each]
            streams.clear()
    return [*parts, dict(streams)]


EVENTS = st.builds(
    lambda topic, number, payload, epoch: Event(f"t{topic}", number, payload, epoch),
    *(FEW, NUMBERS, PAYLOADS, FEW),
)


@given(st.lists(EVENTS | st.just("another")))
def test_joined_events_are_the_same_in_the_same_order(messages: list[Event | str]) -> None:
    joined = join_events(messages)
    split = [event for each in joined for event in split_run(each)]
    assert cut(split) == cut(messages)


def cut(messages: list[Any]) -> Any:
    parts: list[Any] = []
    topics: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for each in messages:
        if isinstance(each, Event):
            topics[each.topic, each.epoch].append(each)
        else:
            parts += [dict(topics), each]
            topics.clear()
    return [*parts, dict(topics)]


def test_a_burst_is_one_message() -> None:
    puts = [ChannelMessage("topic/t", Put(1, number, b"%d" % number)) for number in range(1, 101)]
    (joined,) = join_puts(puts)
    assert joined.message == Puts(1, 1, tuple(b"%d" % number for number in range(1, 101)))
    events = [Event("t", number, b"x", 7) for number in range(1, 101)]
    assert join_events(events) == [EventRun("t", 1, (b"x",) * 100, 7)]


@pytest.mark.parametrize("kind", [Puts, EventRun])
def test_numbers_that_are_too_large_are_refused(kind: type[Any]) -> None:
    stream = 1 if kind is Puts else "t"
    fits, over = kind(stream, MOST - 1, (b"x", b"y")), encode("", kind(stream, MOST - 1, (b"x",)))
    assert decode(encode("", fits))[1] == fits
    with pytest.raises(ValueError, match="too large"):
        decode(
            over.replace(b"\xc4\x01x", b"\xc4\x01x\xc4\x01y\xc4\x01z").replace(
                b"\x91\xc4", b"\x93\xc4"
            )
        )


def say(host: TopicHost, message: Any) -> list[Any]:
    """What a client is answered."""
    actions = host.on_message("client/a", ChannelMessage("topic/t", message), 1.0)
    return [each.message.message for each in actions if isinstance(each, Send)]


def test_a_host_accepts_the_new_events_of_a_run() -> None:
    host = TopicHost(TAMARA, HostState())
    say(host, Create(0.0))
    assert say(host, Puts(1, 1, (b"1", b"2"))) == [Taken(1, 2)]
    assert say(host, Puts(1, 2, (b"2", b"3", b"4"))) == [Taken(1, 4)]
    assert say(host, Puts(1, 1, (b"1", b"2"))) == [Taken(1, 4)]
    assert say(host, Puts(1, 6, (b"6",))) == [Expect(1, 5)]
    assert say(host, Puts(1, 5, ())) == [Taken(1, 4)]
    history = host.topics["topic/t"].state.history
    assert [event.payload for event in history] == [b"1", b"2", b"3", b"4"]
    assert (host.counts.accepted, host.counts.repeated) == (4, 3)


def test_a_run_with_an_event_that_is_too_long_is_refused() -> None:
    host = TopicHost(TAMARA, HostState())
    host.most_payload = 2
    say(host, Create(0.0))
    assert say(host, Puts(1, 1, (b"1", b"234"))) == []
    assert host.counts.refused == 1
