"""Between peers a message may take two ways, and the later copy arrives after anything else."""

from __future__ import annotations

from typing import Any

from distributary.machines.actions import Send
from distributary.topics import TAMARA
from distributary.topics.codec import SERVICE, Bye, Create, Put, Puts, Taken
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


def test_few_events_are_repeated_at_once_and_more_as_they_are_accepted() -> None:
    client = PeerClient("client/a", TAMARA, ["p"])
    for at in range(100):
        client.on_message("application", Say("t", b"%d" % at), 1.0)

    def sent(actions: list[Any]) -> list[int]:
        said = [each.message.message for each in actions if isinstance(each, Send)]
        return [
            number
            for each in said
            if isinstance(each, Puts)
            for number in range(each.first, each.first + len(each.payloads))
        ]

    def take(upto: int) -> list[int]:
        answer = ChannelMessage("topic/t", Taken(1, upto))
        return sent(client.on_message("p", answer, 9.0))

    client.on_message("p", ChannelMessage("topic/t", Taken(1, 1)), 1.5)
    assert sent(client.on_timer("own beat", 4.0)) == [*range(2, 18)]
    assert take(9) == [*range(18, 34)]
    assert take(33) == [*range(34, 82)]
    assert take(81) == [*range(82, 101)]
