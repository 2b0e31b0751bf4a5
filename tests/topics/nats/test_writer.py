"""Which events a publishing client sends together, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from distributary.topics import topic_channel
from distributary.topics.codec import NoTopic, Taken
from distributary.topics.errors import ClientClosedError, NotConfirmedError, UnknownTopicError
from distributary.topics.nats.packets import decode_joint_puts, decode_puts
from distributary.topics.nats.subjects import Subjects
from distributary.topics.nats.writer import TopicWriter
from tests.topics.nats.running import run

SUBJECTS = Subjects()
TOPICS = ("a", "b", "c")


class Wire:
    """A connection that keeps what is sent."""

    is_closed, is_connected, max_payload = False, True, 1 << 20

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.some = asyncio.Event()

    async def publish(self, subject: str, data: bytes) -> None:
        self.sent.append((subject, data))
        self.some.set()


def make_writer(wire: Any, linger: float = 0.0, timeout: float = 60.0) -> TopicWriter:
    times = {"timeout": timeout, "repeat_after": 60.0}
    return TopicWriter(wire, SUBJECTS, "client/x", window=8, linger=linger, **times)


async def say(writer: TopicWriter, wire: Wire, *topics: str) -> None:
    """Publish in one turn of the loop, and wait until something is sent."""
    tasks = [asyncio.create_task(writer.publish(topic, b"x")) for topic in topics]
    pumping = asyncio.create_task(writer.pump())
    await wire.some.wait()
    await asyncio.sleep(0)  # what is sent in the same turn
    for task in (*tasks, pumping):
        task.cancel()
    await asyncio.gather(*tasks, pumping, return_exceptions=True)


def test_events_of_several_topics_travel_in_one_message_if_they_waited() -> None:
    async def work() -> None:
        wire = Wire()
        await say(make_writer(wire, 0.01), wire, *TOPICS, "a")
        ((subject, data),) = wire.sent
        assert subject == SUBJECTS.joint_puts
        client, found = decode_joint_puts(data)
        assert client == "client/x"
        assert {topic: [put.number for put in puts] for topic, puts in found} == {
            "a": [1, 2],
            "b": [1],
            "c": [1],
        }

    run(work())


def test_events_of_one_topic_go_to_its_channel_however_they_waited() -> None:
    async def work() -> None:
        for linger in (0.0, 0.01):
            wire = Wire()
            await say(make_writer(wire, linger), wire, "a", "a")
            ((subject, data),) = wire.sent
            assert subject == SUBJECTS.to(topic_channel("a"))
            assert len(decode_puts(data)[1]) == 2

    run(work())


def test_nothing_waits_unless_it_is_told_to() -> None:
    async def work() -> None:
        wire = Wire()
        await say(make_writer(wire, 0.0), wire, *TOPICS)
        assert [subject for subject, _ in wire.sent] == [
            SUBJECTS.to(topic_channel(topic)) for topic in TOPICS
        ]

    run(work())


def test_many_events_of_a_topic_wait_for_no_others() -> None:
    async def work() -> None:
        wire = Wire()
        await say(make_writer(wire, 1e9), wire, "b", *"aaaa")  # half the window
        ((_, data),) = wire.sent
        assert {topic: len(puts) for topic, puts in decode_joint_puts(data)[1]} == {"a": 4, "b": 1}

    run(work())


# --- more at once than may be in flight ----------------------------------------------------------


async def publish_until_done(writer: TopicWriter, count: int, fail: Callable[[], Any]) -> list[Any]:
    """Publish so many events at once, and let those in flight fail until none is left."""
    tasks = [asyncio.create_task(writer.publish("t", b"%d" % n)) for n in range(count)]
    while not all(task.done() for task in tasks):
        for _ in range(50):  # much that can happen without an answer
            await asyncio.sleep(0)
        failed = fail()
        if asyncio.iscoroutine(failed):
            await failed
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_all_who_publish_to_an_unknown_topic_are_told() -> None:
    async def work() -> None:
        writer = make_writer(Wire())
        found = await publish_until_done(writer, 1_000, lambda: writer.hear(NoTopic("t")))
        assert {type(each) for each in found} == {UnknownTopicError}

    run(work())


def test_all_who_publish_to_a_service_that_is_away_are_told() -> None:
    async def work() -> None:
        writer = make_writer(Wire(), timeout=0.0)
        found = await publish_until_done(writer, 1_000, writer.repeat)
        assert {type(each) for each in found} == {NotConfirmedError}

    run(work())


def test_all_who_publish_as_the_client_is_closed_are_told() -> None:
    async def work() -> None:
        writer = make_writer(Wire())
        found = await publish_until_done(writer, 1_000, writer.close)
        assert {type(each) for each in found} == {ClientClosedError}
        with pytest.raises(ClientClosedError):
            await writer.publish("t", b"later")

    run(work())


def test_who_waited_while_a_stream_failed_goes_on_with_the_next_one_in_order() -> None:
    async def work() -> None:
        writer, failed = make_writer(Wire()), []

        def answer() -> None:
            outbox = writer._outbox("t")
            if not failed:
                failed.append(writer.hear(NoTopic("t")))
            else:
                writer.hear(Taken(outbox.stream, outbox._next - 1))

        found = await publish_until_done(writer, 1_000, answer)
        assert [type(each) for each in found] == [*[UnknownTopicError] * 8, *[type(None)] * 992]
        sent = [put.payload for put in writer._unsent["t"]]
        assert sent == [b"%d" % number for number in range(1_000)]

    run(work())
