"""Between peers a message may take two ways, and the later copy arrives after anything else."""

from __future__ import annotations

from typing import Any

from distributary.machines.actions import Send
from distributary.topics import TAMARA
from distributary.topics.codec import SERVICE, Bye, Create, Put, Taken
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.peer.client import GiveUp, PeerClient, Say
from distributary.topics.records import HostState


def tell(host: TopicHost, to: str, message: Any) -> list[Any]:
    """Send a client's message to a channel; returns what the client is answered."""
    actions = host.on_message("client/a", ChannelMessage(to, message), 1.0)
    return [each.message.message for each in actions if isinstance(each, Send)]


def test_an_event_that_arrives_again_after_the_goodbye_is_not_accepted_again() -> None:
    host = TopicHost(TAMARA, HostState())
    host.late_messages = True
    tell(host, "topic/t", Create(0.0))
    tell(host, "topic/t", Put(1, 1, b"x"))
    tell(host, SERVICE, Bye())
    assert tell(host, "topic/t", Put(1, 1, b"x")) == [Taken(1, 1)]
    assert host.counts.accepted == 1


def test_events_after_a_stream_was_given_up_belong_to_another_stream() -> None:
    client = PeerClient("client/a", TAMARA, ["p"])
    (first,) = client.on_message("application", Say("t", b"x"), 1.0)
    client.on_message("application", GiveUp("t"), 2.0)
    (second,) = client.on_message("application", Say("t", b"y"), 3.0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert first.message.message == Put(1, 1, b"x")
    assert second.message.message == Put(2, 1, b"y")
