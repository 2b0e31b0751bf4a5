"""A client's machine and a broker's host, joined by hand: what one says, the other understands."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from distributary.content.client_actions import Complete, Fail, HandEvent, HangUp
from distributary.content.client_machine import ClientMachine
from distributary.content.host import BrokerHost
from distributary.content.host_params import DEFAULT_PARAMS, HostParams
from distributary.content.policies import COVERING_POLICIES
from distributary.content.protocol import Cut, OpenSession, Peer, Publish, SendFrame
from distributary.content.recovery import Recovery
from distributary.machines.actions import Save, SetTimer
from distributary.model import Attribute, AttributeKind, Schema

SCHEMA = Schema((Attribute("x", AttributeKind.INTEGER),))


class Pair:
    """One client at one broker, whose connection can be cut and which can be killed."""

    def __init__(self, params: HostParams = DEFAULT_PARAMS) -> None:
        self.params = params
        self.machine = ClientMachine("a")
        self.machine.start(0.0)
        self.saved: dict[Any, Any] = {}
        self.incarnation = self.connection = 0
        self.done: list[Any] = []
        self.is_deaf = False  # the client gets nothing that the broker says
        self.start()

    def start(self) -> None:
        """Start the broker, with what it has saved."""
        self.incarnation += 1
        recovery = Recovery(self.incarnation, dict(self.saved))
        self.host = BrokerHost(
            "A", SCHEMA, COVERING_POLICIES["merging"], recovery=recovery, params=self.params
        )
        self.do_host(self.host.start(0.0))
        self.connect()

    def connect(self) -> None:
        self.connection += 1
        self.is_deaf = False
        self.do_host(self.host.on_open(Peer(self.connection, "client", "ann"), 0.0))
        self.do(self.machine.on_open(1, 0.0))

    def cut(self) -> None:
        self.machine.on_close(1, 0.0)
        self.do_host(self.host.on_close(self.connection, 0.0))
        self.connect()

    def do(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, SendFrame):
                said = self.host.on_message(self.connection, action.message, 0.0)
                self.do_host(said)
            else:
                self.done.append(action)

    def do_host(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Save):
                if action.value is None:
                    self.saved.pop(action.key, None)
                else:
                    self.saved[action.key] = action.value
            elif isinstance(action, SendFrame) and action.connection == self.connection:
                if self.is_deaf:
                    continue
                self.do(self.machine.on_message(1, action.message, 0.0))
            assert not isinstance(action, Cut), action

    def publish(self, **attributes: Any) -> int:
        ticket, actions = self.machine.publish(attributes, b"", 0.0)
        self.do(actions)
        return ticket

    def take(self, kind: type) -> list[Any]:
        found = [each for each in self.done if isinstance(each, kind)]
        self.done = [each for each in self.done if not isinstance(each, kind)]
        return found


def test_what_is_published_comes_back_once() -> None:
    pair = Pair()
    number, ticket, actions = pair.machine.subscribe("x < 3", 0.0)
    pair.do(actions)
    assert Complete(ticket) in pair.done
    pair.publish(x=1)
    pair.publish(x=5)
    (handed,) = pair.take(HandEvent)
    assert handed.subscriptions == (number,)
    assert (handed.event.attributes, handed.event.publisher) == ({"x": 1}, "ann")
    pair.cut()
    assert pair.take(HandEvent) == []
    pair.publish(x=2)
    assert [each.event.attributes["x"] for each in pair.take(HandEvent)] == [2]


def test_a_publication_whose_answer_is_lost_is_neither_doubled_nor_taken_for_another() -> None:
    for restarts in (False, True):
        pair = Pair()
        pair.do(pair.machine.subscribe("x < 3", 0.0)[2])
        pair.is_deaf = True
        good = pair.publish(x=1)
        bad = pair.publish(y=1)
        if restarts:
            pair.machine.on_close(1, 0.0)
            pair.start()
        else:
            pair.cut()
        assert Complete(good) in pair.take(Complete)
        assert [each.ticket for each in pair.take(Fail)] == [bad]
        assert len(pair.take(HandEvent)) == 1


def test_a_refused_filter_and_a_refused_event_say_why() -> None:
    pair = Pair()
    _, ticket, actions = pair.machine.subscribe("y < 3", 0.0)
    pair.do(actions)
    (failed,) = pair.take(Fail)
    assert failed.ticket == ticket
    assert "y" in failed.reason
    pair.publish(x="one")
    (failed,) = pair.take(Fail)
    assert "'one'" in failed.reason


def test_a_session_that_is_closed_is_gone() -> None:
    pair = Pair()
    pair.do(pair.machine.subscribe("x < 3", 0.0)[2])
    ticket, actions = pair.machine.close_session(0.0)
    pair.do(actions)
    assert Complete(ticket) in pair.done
    assert HangUp(1) in pair.done
    assert not [key for key in pair.saved if "ann" in str(key)]


@pytest.mark.parametrize("own", [False, True], ids=["of others", "its own"])
def test_a_client_that_publishes_for_each_event_it_takes_does_not_wait_for_itself(
    own: bool,
) -> None:
    """Its outbox and its broker are full, of its own events or of those of others."""
    pair = Pair(HostParams(outbox_events=2, kept_events=4, publications=3, deliveries=2))
    pair.do(pair.machine.subscribe("x < 3", 0.0)[2])
    pair.do_host(pair.host.on_open(Peer(100, "client", "bob"), 0.0))
    pair.do_host(pair.host.on_message(100, OpenSession(), 0.0))
    numbers = count(1)

    def fill() -> None:
        """Have another client publish as much as it may."""
        bob = pair.host.sessions.get("bob")
        assert bob is not None
        while bob.window:
            pair.do_host(pair.host.on_message(100, Publish(next(numbers), {"x": 1}), 0.0))

    for taken in range(50):
        fill()
        if not own:
            pair.cut()  # so that the broker says again how much may be published: nothing
        event = next(each.event for each in pair.done if isinstance(each, HandEvent))
        pair.done = [each for each in pair.done if getattr(each, "event", None) is not event]
        ticket = pair.publish(x=2 if own else 4)
        assert Complete(ticket) in pair.take(Complete), f"blocked after {taken} events"
        pair.do(pair.machine.finish(event.taken_from, 0.0))
        for timer in pair.take(SetTimer):
            pair.do(pair.machine.on_timer(timer.name, 0.0))
        assert pair.host.broker.unfinished.own <= 2 * 4 + 2
