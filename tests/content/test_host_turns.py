"""Messages handled in one turn have the same results as the same messages one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.content import COVERING_POLICIES
from distributary.content.connections import Packet
from distributary.content.host import BrokerHost
from distributary.content.messages import Barrier, Publication
from distributary.content.protocol import (
    Accepted,
    Acknowledge,
    Advertise,
    CloseSession,
    Cut,
    Event,
    OpenSession,
    Peer,
    Publish,
    Refused,
    SendFrame,
    SessionClosed,
    Stored,
    Subscribe,
    Unsubscribe,
)
from distributary.machines.actions import Save
from tests.content.worlds import SCHEMA

CLIENTS = (1, 2, 3)
Given = tuple[int, Any]


def open_host(*, ephemeral: bool = False) -> BrokerHost:
    host = BrokerHost("b", SCHEMA, COVERING_POLICIES["merging"])
    host.start(0.0)
    for number in CLIENTS:
        host.on_open(Peer(number, "client", f"c{number}"), 0.0)
        host.on_message(number, OpenSession(ephemeral=ephemeral, when_full="wait"), 0.0)
    return host


def handle(host: BrokerHost, turn: list[Given], now: float) -> list[Any]:
    for connection, message in turn:
        host.take_message(connection, message, now)
    return host.finish_turn(now)


def collect(actions: list[Any]) -> dict[int, dict[str, list[Any]]]:
    """What each client learns, by kind; answers that say the same twice count once."""
    found: dict[int, dict[str, list[Any]]] = {each: {} for each in CLIENTS}
    for action in actions:
        if isinstance(action, Cut):
            found[action.connection].setdefault("Cut", []).append(action.reason)
        if not isinstance(action, SendFrame):
            continue
        message, said = action.message, found[action.connection]
        match message:
            case Event():
                said.setdefault("Event", []).append(
                    (message.delivery, message.subscriptions, message.publisher, message.payload)
                )
            case Stored():
                said["Stored"] = [message.published]  # the last one holds
            case Refused():
                said.setdefault("Refused", []).append((message.kind, message.number))
    return found


@st.composite
def draw_messages(draw: st.DrawFn) -> list[Given]:
    """Requests of three clients, with some that are refused."""
    published = dict.fromkeys(CLIENTS, 0)
    messages: list[Given] = []
    for _ in range(draw(st.integers(1, 30))):
        client = draw(st.sampled_from(CLIENTS))
        low = draw(st.integers(0, 5))
        kind = draw(st.sampled_from(["publish"] * 6 + ["subscribe"] * 3 + ["end", "odd"]))
        message: Any
        if kind == "publish":
            published[client] += 1
            value: Any = draw(st.sampled_from([low, low, low, "no number"]))
            payload = b"%d" % published[client]
            message = Publish(published[client], {"x": value, "y": low}, payload)
        elif kind == "subscribe":
            message = Subscribe(draw(st.integers(1, 3)), f"x >= {low}")
        elif kind == "end":
            message = Unsubscribe(draw(st.integers(1, 3)))
        else:
            odd = [Acknowledge(0), Advertise(1, "x >= 0"), Subscribe(1, "z = 1")]
            message = draw(st.sampled_from(odd))
        messages.append((client, message))
    return messages


@settings(deadline=None, max_examples=150)
@given(draw_messages(), st.data())
def test_a_turn_of_many_messages_gives_what_turns_of_one_give(
    messages: list[Given], data: st.DataObject
) -> None:
    one_by_one, together = open_host(), open_host()
    expected: list[Any] = []
    for connection, message in messages:
        expected += one_by_one.on_message(connection, message, 1.0)
    found: list[Any] = []
    at = 0
    while at < len(messages):
        size = data.draw(st.integers(1, len(messages) - at))
        found += handle(together, messages[at : at + size], 1.0)
        at += size
    assert collect(found) == collect(expected)
    outboxes = [
        {save.key: save.value is not None for save in each if isinstance(save, Save)}
        for each in (found, expected)
    ]
    assert {k for k, v in outboxes[0].items() if v and k[0] == "outbox"} == {
        k for k, v in outboxes[1].items() if v and k[0] == "outbox"
    }


def test_publications_of_a_turn_share_an_answer_after_what_they_save() -> None:
    host = open_host()
    host.on_open(Peer(9, "broker", "other", 1), 0.0)
    host.on_message(9, Packet(1, 1, asks=True), 0.0)
    turn: list[Given] = [(1, Publish(number, {"x": 1, "y": 1})) for number in range(1, 6)]
    actions = handle(host, turn, 1.0)
    stored = [each.message for each in actions if isinstance(each, SendFrame)]
    assert [each.published for each in stored if isinstance(each, Stored)] == [5]
    kinds = [type(each) for each in actions]
    assert Save not in kinds[kinds.index(SendFrame) :]


def test_what_is_published_after_an_advertisement_in_the_same_turn_follows_its_barrier() -> None:
    host = open_host()
    host.on_open(Peer(9, "broker", "other", 1), 0.0)
    turn: list[Given] = [(1, Advertise(1, "x >= 0")), (1, Publish(1, {"x": 1, "y": 1}))]
    handle(host, turn, 1.0)
    waiting = [type(each) for each, _ in host.broker.queues["other"]._waiting]
    assert waiting == [Barrier, Publication]


@pytest.mark.parametrize("last", [CloseSession(), "no message"])
def test_an_answer_comes_before_the_end_of_its_session_or_connection(last: Any) -> None:
    host = open_host()
    actions = handle(host, [(1, Publish(1, {"x": 1, "y": 1})), (1, last)], 1.0)
    ends = [
        type(each.message) if isinstance(each, SendFrame) else type(each)
        for each in actions
        if isinstance(each, SendFrame | Cut)
    ]
    assert ends == [Stored, SessionClosed if isinstance(last, CloseSession) else Cut]


def test_another_input_in_a_turn_performs_what_was_taken_before() -> None:
    host = open_host()
    host.take_message(1, Publish(1, {"x": 1, "y": 1}), 1.0)
    actions = host.on_close(2, 1.0)
    assert any(isinstance(each, SendFrame) and each.message == Stored(1, 256) for each in actions)
    assert host.finish_turn(1.0) == []


def test_a_client_does_not_hear_that_an_advertisement_has_settled_for_which_it_did_not_ask() -> (
    None
):
    host = open_host()
    actions = handle(host, [(1, Publish(1, {"x": 1, "y": 1})), (2, Advertise(0, "x = 1"))], 1.0)
    said = [(each.connection, each.message) for each in actions if isinstance(each, SendFrame)]
    assert [(to, type(each)) for to, each in said] == [(2, Accepted), (1, Stored)]
