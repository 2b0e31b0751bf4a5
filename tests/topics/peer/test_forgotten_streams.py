"""A publisher whose stream the topic has forgotten is told, and begins another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.topics.codec import Expect
from distributary.topics.errors import NotConfirmedError
from distributary.topics.live import TopicClient
from distributary.topics.messages import Event
from distributary.topics.peer.client import ClientParameters, Confirmed, StreamForgotten
from distributary.topics.peer.simulation import PeerNetwork
from distributary.topics.peer.tcp import PeerOptions
from tests.topics.peer.schedules import PARAMETERS, POLICIES
from tests.topics.peer.tcp.test_service import SETTINGS, run, serve


def build_forgetful(renew_after: float = 3_600.0) -> PeerNetwork:
    """A ring that forgets a publisher some seconds after its last event, and one that has said."""
    parameters = replace(PARAMETERS, forget_after=5.0)
    own = ClientParameters(renew_after=renew_after)
    network = PeerNetwork(POLICIES["tamara"], parameters, seed=1, client_parameters=own)
    names = [f"p{at}" for at in range(5)]
    network.build_converged(names)
    network.run(0.5)
    for client in ("p", "a"):
        network.client(client, names)
    network.create("p", "t")
    network.run(2.0)
    network.want("a", "t")
    network.run(3.0)
    for payload in (b"1", b"2"):
        network.say("p", "t", payload)
    network.run(30.0)
    return network


def collect(network: PeerNetwork) -> list[object]:
    found = network.delivered("p")
    return [each for each in found if isinstance(each, Confirmed | StreamForgotten)]


def test_a_publisher_that_was_forgotten_is_told_and_goes_on() -> None:
    network = build_forgetful()
    network.say("p", "t", b"lost")
    network.run(10.0)
    assert collect(network)[-1] == StreamForgotten("t")
    assert network.client("p").unconfirmed("t") == 0
    network.say("p", "t", b"3")
    network.run(5.0)
    assert collect(network)[-1] == Confirmed("t", 1)
    read = [each.payload for each in network.delivered("a") if isinstance(each, Event)]
    assert read == [b"1", b"2", b"3"]


def test_a_publisher_that_was_idle_for_long_begins_another_stream() -> None:
    network = build_forgetful(renew_after=20.0)
    for payload in (b"3", b"4"):
        network.say("p", "t", payload)
    network.run(5.0)
    assert collect(network)[-1] == Confirmed("t", 4)
    assert not any(isinstance(each, StreamForgotten) for each in collect(network))
    read = [each.payload for each in network.delivered("a") if isinstance(each, Event)]
    assert read == [b"1", b"2", b"3", b"4"]


def test_a_forgotten_stream_is_not_repeated_more_often_than_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = build_forgetful()
    publisher = network.client("p")
    heard: list[int] = []
    take = publisher._on_expect

    def listen(expect: Expect, now: float) -> list[object]:
        heard.append(expect.number)
        return take(expect, now)  # type: ignore[return-value]

    monkeypatch.setattr(publisher, "_on_expect", listen)
    network.say("p", "t", b"lost")
    network.run(10.0)
    patience = publisher.parameters.away_after / publisher.parameters.repeat_after
    assert set(heard) == {1}
    assert len(heard) <= patience + 3


def test_what_a_replaced_root_asks_for_ends_no_stream() -> None:
    """It does not know yet what its successor has accepted."""
    network = build_forgetful()
    publisher = network.client("p")
    network.say("p", "t", b"3")
    network.run(0.005)  # on its way
    stream = publisher._outboxes["t"].stream
    now = network.clock.now
    assert publisher._on_expect(Expect(stream, 1), now) == []
    publisher._outboxes["t"].accept(1, 16, now + 2.0)
    publisher._outboxes["t"].events.append(b"4")
    assert publisher._on_expect(Expect(stream, 1), now + 5.0) == []
    assert publisher.unconfirmed("t") == 1


def test_an_application_learns_that_its_event_may_not_be_accepted(tmp_path: Path) -> None:
    async def work() -> None:
        async with serve(tmp_path) as peer:
            options = PeerOptions(peer.name)
            async with TopicClient(options, SETTINGS) as client:
                await client.create("t")
                await client.publish("t", b"1")
                (host,) = peer.service.peer.hosting.hosts().values()
                (stream,) = host.state.streams["topic/t"]
                host._log.forget_stream("topic/t", stream)
                async with asyncio.timeout(15.0):
                    with pytest.raises(NotConfirmedError, match="may or may not"):
                        await client.publish("t", b"2")
                    await client.publish("t", b"3")

    run(work())
