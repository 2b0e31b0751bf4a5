"""Which events a publishing client sends together, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

from distributary.topics import topic_channel
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


def make_writer(wire: Any, linger: float) -> TopicWriter:
    times = {"timeout": 60.0, "repeat_after": 60.0}
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
