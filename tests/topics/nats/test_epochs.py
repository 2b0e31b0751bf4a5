"""A service that comes back from an older copy of its state has lost events: readers are told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Action, Deliver, Send
from distributary.machines.real.store import Store
from distributary.topics import Subscriber, members_of, topic_channel
from distributary.topics.codec import Create, Put, Taken
from distributary.topics.messages import Event, Want
from distributary.topics.nats import (
    EventsForgottenError,
    NatsOptions,
    TopicClient,
    UnknownTopicError,
    run_embedded_server,
)
from tests.topics.hosting import StoredHost
from tests.topics.nats.running import QUICK, client, run, serving

TOPIC, CHANNEL = "t", topic_channel("t")


class Story:
    """A host that is stopped, copied, brought back and started, and a reader that may be away."""

    def __init__(self, folder: Path) -> None:
        self.state, self.copy = folder / "state", folder / "copy"
        self.reader = Subscriber("reader", QUICK)
        self.held: list[tuple[int, bytes]] = []  # what the reader believes there is
        self.away = False
        self.now = 1_000.0
        self.published = 0
        self.streams = 0
        self.open()
        self.host.take("p", CHANNEL, Create(0.0), self.now)
        self.perform(self.reader.on_message("app", Want(TOPIC), self.now))
        self.save()

    def open(self) -> None:
        self.now += 1.0
        self.streams += 1  # a publisher that begins anew
        self.stream = 0
        self.store = Store(self.state)
        self.host = StoredHost(self.store)
        self.host.perform(self.host.start(self.now))
        self.let_out()

    def publish(self) -> None:
        self.published += 1
        self.stream += 1
        payload = b"%d" % self.published
        self.host.take("p", CHANNEL, Put(self.streams, self.stream, payload), self.now)
        self.let_out()

    def restart(self) -> None:
        self.store.close()
        self.open()

    def save(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.state, self.copy)

    def bring_back(self) -> None:
        self.store.close()
        shutil.rmtree(self.state)
        shutil.copytree(self.copy, self.state)
        self.open()

    def come_and_go(self) -> None:
        self.away = not self.away

    def ask(self) -> None:
        """As a reader does when it hears a pulse of another epoch, and every so often."""
        if not self.away:
            self.perform(self.reader.on_timer("refresh", self.now))

    def let_out(self) -> None:
        while self.host.out:
            out, self.host.out = self.host.out, []
            for to, sender, message in out:
                if not self.away and to in ("reader", members_of(CHANNEL)):
                    self.hear(sender, message)

    def hear(self, sender: str, message: Any) -> None:
        if not isinstance(message, Taken):
            self.perform(self.reader.on_message(sender, message, self.now))

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Deliver) and isinstance(action.message, EventsForgottenError):
                lost = action.message
                assert self.held[-1][0] == lost.last
                self.held = [each for each in self.held if each[0] < lost.first]
            elif isinstance(action, Deliver):
                event = action.message
                assert isinstance(event, Event)
                assert not self.held or event.number == self.held[-1][0] + 1
                self.held.append((event.number, event.payload))
            elif isinstance(action, Send):
                self.host.take("reader", action.to, action.message, self.now)
                self.let_out()


STEPS = ("publish", "publish", "publish", "restart", "save", "bring_back", "come_and_go", "ask")


@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_a_reader_that_heeds_the_reports_has_what_the_service_has(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    story = Story(tmp_path_factory.mktemp("epochs"))
    try:
        for step in steps:
            getattr(story, step)()
        story.away = False
        story.ask()
        story.ask()
        history = story.host.topics[CHANNEL].state.history
        assert story.held == [(event.number, event.payload) for event in history]
    finally:
        story.store.close()


# --- live ----------------------------------------------------------------------------------------


async def read_all(client: TopicClient, topic: str, found: list[Any]) -> None:
    """Note events and reports, until the subscription ends."""
    subscription = await client.subscribe(topic)
    while True:
        try:
            event = await subscription.get()
        except EventsForgottenError as lost:
            found.append((lost.first, lost.last))
        except UnknownTopicError as error:
            found.append(error.topic)
        else:
            if event is None:
                return
            found.append(event.payload)


async def wait_for(found: list[Any], count: int) -> None:
    while len(found) < count:
        await asyncio.sleep(0.01)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "state", tmp_path / "copy"


def test_events_that_a_restored_service_has_lost_are_told_and_new_ones_are_read(
    folders: tuple[Path, Path],
) -> None:
    state, copy = folders

    async def publish(options: NatsOptions, payloads: list[bytes]) -> None:
        async with client(options) as publisher:
            for payload in payloads:
                await publisher.publish(TOPIC, payload)

    async def work() -> None:
        found: list[Any] = []
        async with (
            run_embedded_server(jetstream=False) as server,
            client(server.options, beat_every=0.1) as reader,
        ):
            async with serving(server.options, state):
                await reader.create(TOPIC)
                reading = asyncio.create_task(read_all(reader, TOPIC, found))
                await publish(server.options, [b"1", b"2"])
                await wait_for(found, 2)
            shutil.copytree(state, copy)
            async with serving(server.options, state):
                await publish(server.options, [b"3", b"4", b"5"])
                await wait_for(found, 5)
            shutil.rmtree(state)
            shutil.copytree(copy, state)
            async with serving(server.options, state):
                await publish(server.options, [b"new 3", b"new 4"])
                await wait_for(found, 8)
            reading.cancel()
        assert found == [b"1", b"2", b"3", b"4", b"5", (3, 5), b"new 3", b"new 4"]

    run(work())


def test_who_subscribed_after_the_copy_was_made_is_subscribed_again(
    folders: tuple[Path, Path],
) -> None:
    state, copy = folders

    async def work() -> None:
        before: list[Any] = []
        after: list[Any] = []
        new: list[Any] = []
        async with (
            run_embedded_server(jetstream=False) as server,
            client(server.options, beat_every=0.1) as reader,
            client(server.options) as publisher,
        ):
            async with serving(server.options, state):
                for topic in ("before", "after"):
                    await publisher.create(topic)
                first = asyncio.create_task(read_all(reader, "before", before))
                await publisher.publish("before", b"1")
                while not before:
                    await publisher.publish("before", b"1")
            shutil.copytree(state, copy)
            async with serving(server.options, state) as service:
                await publisher.create("new")
                second = asyncio.create_task(read_all(reader, "after", after))
                third = asyncio.create_task(read_all(reader, "new", new))
                while service.status().subscriptions < 3:
                    await asyncio.sleep(0.01)
            shutil.rmtree(state)
            shutil.copytree(copy, state)
            async with serving(server.options, state) as service:
                await third
                assert new == ["new"]  # there is no such topic any more
                while service.host.topics["topic/after"].size < 1:
                    await asyncio.sleep(0.01)
                await publisher.publish("after", b"came")
                await wait_for(after, 1)
                assert after == [b"came"]
            for task in (first, second):
                task.cancel()

    run(work())
