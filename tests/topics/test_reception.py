"""What nobody may say is refused before anything changes; an error of a machine is a bug."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from distributary.machines.actions import Append
from distributary.topics import TAMARA, Subscriber, TopicChannel, host, reception
from distributary.topics.codec import EventRun, NoTopic
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import (
    Accept,
    Await,
    CarriageChange,
    Carried,
    Carry,
    Drop,
    Dropped,
    Found,
    Inquire,
    Invite,
    Join,
    Left,
    Offer,
    Propose,
    Quote,
    Rarer,
    Refuse,
    Repair,
    Settled,
    Suggest,
    TopicFlow,
)
from distributary.topics.peer import client
from distributary.topics.peer.client import PeerClient
from distributary.topics.reception import UnexpectedMessageError, check_for_subscriber
from distributary.topics.records import HostState
from tests.topics.peer.schedules import Schedule

FLOWS = (TopicFlow("t", 1.0),)
OF_CLIENTS = (Inquire(), Join(1), Repair(1), Settled(1))
OF_CLUSTERS = (Carry(1, FLOWS, 1.0), Drop(1), Await(1.0))
OF_TOPICS = (Found(("t",)), Carried(1, 1.0, 1, 1.0, ()), Dropped(1), Rarer(1.0))
OF_CHANNELS = (Propose(1, FLOWS, 1, 1), Accept(1, FLOWS, 1), Refuse(1))
QUOTE = Quote("cluster/1/t", FLOWS, 1.0)
ODD = Quote("client/x", FLOWS, 1.0)


def host_only(channel: str) -> TopicHost:
    """A host with one channel; a topic's is there already."""
    found = TopicHost(TAMARA, HostState(), hosts=channel.__eq__)
    found.start(0.0)
    if channel.startswith("topic/"):
        found._create(channel.removeprefix("topic/"), 1.0, 0.0)
    found._finish(0.0)
    return found


@pytest.mark.parametrize(
    ("to", "sender", "messages"),
    [
        ("topic/t", "client/x", (*OF_CLUSTERS, *OF_TOPICS, *OF_CHANNELS, Settled(1))),
        ("topic/t", "topic/u", (*OF_CLIENTS, *OF_CLUSTERS, *OF_TOPICS)),
        ("topic/t", "cluster/1/t", (*OF_CLIENTS, *OF_TOPICS)),
        ("cluster/1/t", "client/x", (*OF_CLUSTERS, *OF_TOPICS, *OF_CHANNELS, Inquire())),
        ("cluster/1/t", "topic/t", (*OF_CLIENTS, *OF_CLUSTERS)),
        ("cluster/1/t", "cluster/2/t", (*OF_CLIENTS, *OF_CLUSTERS, *OF_TOPICS)),
    ],
)
def test_what_a_sender_may_not_say_changes_nothing(
    to: str, sender: str, messages: tuple[Any, ...]
) -> None:
    found = host_only(to)
    before = [*found.state.snapshot()]
    for count, message in enumerate(messages, start=1):
        assert found.on_message(sender, ChannelMessage(to, message), 1.0) == []
        assert found.counts.refused == count
    assert [*found.state.snapshot()] == before
    assert not found.clusters


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_a_bug_of_a_channel_is_not_taken_for_bad_input(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Its state may have changed; a host that went on would differ from its log."""
    found = host_only("topic/t")
    monkeypatch.setattr(TopicChannel, "welcome", lambda *given: fail_with(error))
    with pytest.raises(error, match="a bug"):
        found.on_message("client/x", ChannelMessage("topic/t", Join(1)), 1.0)
    assert found.counts.refused == 0


def fail_with(error: type[Exception]) -> None:
    raise error("a bug")


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("client/y", Offer(Quote("topic/t", FLOWS, 1.0), (), 1)),
        ("topic/u", Offer(Quote("topic/t", FLOWS, 1.0), (), 1)),
        ("topic/t", Offer(Quote("topic/t", (), 1.0), (), 1)),
        ("topic/t", Offer(Quote("topic/t", FLOWS, 1.0), (QUOTE, ODD), 1)),
        ("topic/t", Suggest(ODD)),
        ("cluster/1/t", Invite(ODD)),
        ("cluster/1/t", CarriageChange(1, FLOWS, 1.0, "client/x")),
        ("service", Left(1)),
        ("topic/t", Rarer(1.0)),
        ("topic/t", Inquire()),
    ],
)
def test_a_subscriber_is_not_given_what_it_does_not_take(sender: str, message: Any) -> None:
    with pytest.raises(UnexpectedMessageError, match="does not take"):
        check_for_subscriber(sender, message)
    attached = PeerClient("client/x", TAMARA, ["p0"])
    with pytest.raises(UnexpectedMessageError):
        attached.on_message("p0", ChannelMessage(sender, message), 1.0)


def test_a_bug_of_a_subscriber_is_not_taken_for_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = PeerClient("client/x", TAMARA, ["p0"])
    monkeypatch.setattr(Subscriber, "on_message", lambda *given: fail_with(TypeError))
    with pytest.raises(TypeError, match="a bug") as raised:
        attached.on_message("p0", ChannelMessage("topic/t", EventRun("t", 1, (b"x", b"y"))), 1.0)
    assert not isinstance(raised.value, UnexpectedMessageError)
    assert attached.on_message("p0", ChannelMessage("service", NoTopic("t")), 1.0) == []


def test_whatever_peers_and_clients_say_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a rule would be too narrow, and a message would be lost for ever."""
    checked: Counter[type] = Counter()

    def check_channel(to: str, sender: str, message: Any) -> None:
        checked[type(message)] += 1
        reception.check_for_channel(to, sender, message)

    def check_subscriber(sender: str, message: Any) -> None:
        checked[type(message)] += 1
        reception.check_for_subscriber(sender, message)

    monkeypatch.setattr(reception.UnexpectedMessageError, "__init__", _object_to)
    monkeypatch.setattr(host, "check_for_channel", check_channel)
    monkeypatch.setattr(client, "check_for_subscriber", check_subscriber)
    for seed in range(4):
        Schedule(seed).run()
    assert len(checked) >= 20


def _object_to(_: Exception, to: str, sender: str, message: Any) -> None:
    raise AssertionError(f"{to} got {message!r} from {sender}")


def test_what_is_refused_is_not_recorded() -> None:
    found = host_only("topic/t")
    actions = found.on_message("topic/u", ChannelMessage("topic/t", Carry(1, FLOWS, 1.0)), 1.0)
    assert not [action for action in actions if isinstance(action, Append)]
