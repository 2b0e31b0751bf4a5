"""What a service and its clients say when the server's permissions forbid what they need."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from distributary.machines.nats.users import NatsUser
from distributary.topics.nats import (
    NatsOptions,
    SubjectDeniedError,
    TopicClient,
    TopicService,
    run_embedded_server,
)
from tests.topics.nats.running import client, run, serving, settings

REPLIES = "_INBOX.>"
SENDS = ("distributary.to.*", "distributary.status")
HEARS = ("distributary.client.*", "distributary.on.>", REPLIES)
TO_NEWS = "distributary.to.topic%2FNews"
ON_NEWS = "distributary.on.topic%2FNews"


class Restricted:
    """A server with a service, and a user `some` with these rights only."""

    def __init__(self, folder: Path, publish: tuple[str, ...], subscribe: tuple[str, ...]) -> None:
        self._folder = folder
        self._user = NatsUser("some", "a secret of some length", publish, subscribe)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Restricted:
        enter = self._stack.enter_async_context
        server = await enter(run_embedded_server(users=[self._user]))
        await enter(serving(server.options, self._folder))
        self._options = NatsOptions(server.options.url, user="some", password=self._user.password)
        self.free = await enter(client(server.options))
        await self.free.create("News")
        await self.free.create("other")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.aclose()

    def client(self, **changes: Any) -> TopicClient:
        return client(self._options, **changes)


def expect(action: str, subject: str) -> Any:
    return pytest.raises(SubjectDeniedError, match=f"credentials {action} to '{subject}'; use oth")


def test_the_rights_that_the_documentation_lists_are_enough(tmp_path: Path) -> None:
    async def work() -> None:
        async with Restricted(tmp_path, SENDS, HEARS) as at, at.client() as some:
            assert await some.create("third")
            read = await some.subscribe("News")
            await some.publish("News", b"1")
            event = await read.get()
            assert event is not None
            assert event.payload == b"1"
            assert await some.remove("third")

    run(work())


def test_a_publisher_is_told_that_it_may_not_publish_to_a_topic(tmp_path: Path) -> None:
    rights = ("distributary.to.topic%2Fother", "distributary.to.service")

    async def work() -> None:
        async with Restricted(tmp_path, rights, HEARS) as at, at.client() as some:
            with expect("publish", TO_NEWS):
                await asyncio.gather(*(some.publish("News", b"x") for _ in range(300)))
            with expect("publish", TO_NEWS):
                await some.publish("News", b"y")
            with expect("publish", TO_NEWS):
                await some.create("News")
            with expect("publish", TO_NEWS):
                await some.subscribe("News")
            await some.publish("other", b"z")

    run(work())


def test_several_topics_at_once_are_refused_as_one(tmp_path: Path) -> None:
    rights = ("distributary.to.topic%2FNews", "distributary.to.topic%2Fother")

    async def work() -> None:
        async with Restricted(tmp_path, rights, HEARS) as at, at.client(linger=0.05) as some:
            with expect("publish", r"distributary\.to\.joint"):
                await asyncio.gather(some.publish("News", b"x"), some.publish("other", b"y"))

    run(work())


def test_a_subscriber_is_told_that_it_may_not_hear_a_topic(tmp_path: Path) -> None:
    """It gets all answers of the service: without the error, it would wait for ever in silence."""
    rights = ("distributary.client.*", "distributary.on.topic%2Fother", REPLIES)

    async def work() -> None:
        async with Restricted(tmp_path, SENDS, rights) as at, at.client() as some:
            for _ in range(2):
                with expect("subscribe", ON_NEWS):
                    await some.subscribe("News")
            read = await some.subscribe("other")
            await at.free.publish("other", b"1")
            assert await read.get() is not None

    run(work())


def test_a_subscriber_that_is_moved_to_a_cluster_that_it_may_not_hear_is_told(
    tmp_path: Path,
) -> None:
    rights = ("distributary.client.*", "distributary.on.*", REPLIES)  # clusters have two tokens

    async def work() -> None:
        async with Restricted(tmp_path, SENDS, rights) as at, AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(at.client()) for _ in range(4)]
            read = [[await r.subscribe(topic) for topic in ("News", "other")] for r in readers]
            for subscription in read[0]:
                with expect("subscribe", r"distributary\.on\.cluster%2F\d+%2F\w+\.\*"):
                    await subscription.get()

    run(work())


def test_a_subscriber_without_heartbeats_is_told_instead_of_being_forgotten(tmp_path: Path) -> None:
    rights = ("distributary.to.topic%2FNews",)

    async def work() -> None:
        async with Restricted(tmp_path, rights, HEARS) as at, at.client() as some:
            with expect("publish", r"distributary\.to\.service"):
                read = await some.subscribe("News")
                await read.get()
            await some.publish("News", b"x")

    run(work())


def test_a_client_that_may_not_hear_answers_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with Restricted(tmp_path, SENDS, ("distributary.on.>", REPLIES)) as at:
            with expect("subscribe", r"distributary\.client\.\*"):
                async with at.client() as some:
                    await some.publish("News", b"x")

    run(work())


def test_a_request_whose_answer_may_not_come_fails(tmp_path: Path) -> None:
    async def work() -> None:
        async with Restricted(tmp_path, SENDS, HEARS[:2]) as at, at.client() as some:
            for _ in range(2):
                with expect("subscribe", "_INBOX.>"):
                    await some.create("third")
            await some.publish("News", b"x")

    run(work())


async def serve_two_topics(folder: Path, user: NatsUser) -> list[str]:
    """Serve as a user of the server; returns what is reported of its rights."""
    reports: list[str] = []
    async with run_embedded_server(users=[user]) as server:
        options = NatsOptions(server.options.url, user=user.name, password=user.password)
        service = TopicService(options, settings(folder), report=reports.append)
        task = asyncio.create_task(service.run())
        async with client(server.options) as free:
            for topic in ("a", "b"):
                await free.create(topic)
                await free.subscribe(topic)
                await free.publish(topic, b"x")
        service.stop()
        await task
    return [each for each in reports if "does not let" in each]


def test_a_service_reports_once_what_it_may_not_say(tmp_path: Path) -> None:
    """Else it would confirm events that nobody gets, and nobody would know."""
    rights = ("distributary.client.*", "distributary.state", "$JS.>", "$KV.>", REPLIES)
    user = NatsUser("service", "a secret of some length", rights)
    assert run(serve_two_topics(tmp_path, user)) == [
        "warning: the NATS server does not let these credentials publish to 'distributary.on.>'; "
        "use others, or give them the rights that docs/topics.md lists"
    ]


def test_a_service_with_the_rights_that_the_documentation_lists_reports_none(
    tmp_path: Path,
) -> None:
    says = (*HEARS, "distributary.claim", "distributary.state", "$JS.>", "$KV.>")
    hears = (*SENDS, "distributary.claim", REPLIES)
    assert not run(
        serve_two_topics(tmp_path, NatsUser("service", "a secret of some length", says, hears))
    )
