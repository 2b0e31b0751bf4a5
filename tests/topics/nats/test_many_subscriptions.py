"""One client with very many subscriptions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Send
from distributary.planning.topics import Proposal
from distributary.topics import OURS, ClusterChannel, ClusterState, derive_generator, is_cluster
from distributary.topics.advice import _split
from distributary.topics.codec import AROUND, encode
from distributary.topics.messages import (
    Answer,
    Carried,
    Found,
    Join,
    Leave,
    News,
    Propose,
    Refuse,
    Settled,
    Survey,
    Tell,
    TopicFlow,
)
from distributary.topics.nats import run_embedded_server
from distributary.topics.parts import split_message
from tests.topics.nats.running import client, run, serving
from tests.topics.nats.test_client import numbers

names = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80), unique=True)


def a_cluster() -> ClusterChannel:
    machine = ClusterChannel("cluster/1/a", OURS, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name in "ab":
        carried = Carried(machine.state.version, 0.01, 5, 1.0, ())
        machine.on_message(f"topic/{name}", carried, 0.0)
    machine.on_message("s", Join(1), 0.0)
    return machine


@given(needs=names, channels=names, told=names, most=st.integers(300, 2_000))
def test_a_long_message_comes_in_parts_that_say_the_same(
    needs: list[str], channels: list[str], told: list[str], most: int
) -> None:
    news = tuple(News(TopicFlow(name, 1.0), True) for name in told)
    for message in (
        Join(2, tuple(needs), tuple(channels)),
        Settled(3, tuple(needs), tuple(channels)),
        Tell(news, tuple(needs), tuple(channels)),
    ):
        whole, cut = a_cluster(), a_cluster()
        whole.on_message("s", message, 1.0)
        parts = split_message(message, most)
        for part in parts:
            assert len(encode("s", part)) <= most + AROUND
            cut.on_message("s", part, 1.0)
        assert cut.state.members["s"].views == whole.state.members["s"].views
        assert cut.census == whole.census
        assert cut.state == whole.state
        if isinstance(message, Tell):
            assert tuple(each for part in parts for each in part.news) == news


@given(needs=names, channels=names, most=st.integers(200, 2_000))
def test_a_long_answer_in_parts_counts_as_one(
    needs: list[str], channels: list[str], most: int
) -> None:
    machine = a_cluster()
    asked = [a.message for a in machine._start_poll(1.0) if isinstance(a, Send)]
    (survey,) = asked
    assert isinstance(survey, Survey)
    version = machine.state.version
    for part in split_message(Answer(survey.number, version, tuple(needs), tuple(channels)), most):
        machine.on_message("s", part, 1.0)
    assert machine._poll is not None
    views = machine._poll.answers["s"]
    assert (set(views.needs), set(views.channels)) == (set(needs), set(channels))


def test_a_join_to_a_topic_does_not_list_where_else_one_is(tmp_path: Path) -> None:
    """So many joins of so many channels each would be a square of them."""

    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as one,
        ):
            for number in range(30):
                await one.create(f"t{number}")
                await one.subscribe(f"t{number}")
            for machine in service.host.topics.values():
                (member,) = machine.state.members.values()
                assert member.views.channels == ()

    run(work())


def subscribe_to_many(folder: Path, count: int, max_payload: int, plan_every: float) -> None:
    """One client with `count` topics gets their events, whether they share clusters or not."""

    async def work() -> None:
        async with (
            run_embedded_server(max_payload=max_payload) as server,
            serving(server.options, folder, plan_every=plan_every) as service,
            client(server.options) as publisher,
            client(server.options) as one,
            client(server.options) as two,
        ):
            topics = [f"a topic with quite a long name, and number {n}" for n in range(count)]
            await asyncio.gather(*(publisher.create(topic) for topic in topics))
            read = []
            for each in (one, two):
                read += await asyncio.gather(*(each.subscribe(topic) for topic in topics))
            while not all(any(map(is_cluster, e.statistics.channels)) for e in (one, two)):
                await asyncio.sleep(0.02)
            await asyncio.gather(*(publisher.publish(topic, b"") for topic in topics))
            for subscription in read:
                assert await numbers(subscription, 1) == [1]
            most = service.host.policy.most_topics
            assert max(len(c.state.topics) for c in service.host.clusters.values()) <= most
            assert service.status().unsent == 0
            assert one.statistics.rejoined == two.statistics.rejoined == 0

    run(work())


def test_a_small_payload_limit_does_not_limit_subscriptions(tmp_path: Path) -> None:
    subscribe_to_many(tmp_path, 300, 8_192, 0.3)


@pytest.mark.slow
def test_thousands_of_subscriptions_share_clusters(tmp_path: Path) -> None:
    subscribe_to_many(tmp_path, 1_000, 65_536, 2.0)


def test_a_client_with_many_subscriptions_comes_back_once_after_a_pause(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path, plan_every=1e9, dead_after=3.0) as service,
            client(server.options) as publisher,
            client(server.options) as one,
        ):
            topics = [f"t{number}" for number in range(600)]
            await asyncio.gather(*(publisher.create(topic) for topic in topics))
            read = await asyncio.gather(*(one.subscribe(topic) for topic in topics))
            host = service.host
            service._do(lambda now: host.bury(now + 100, 50))  # as if it had been silent
            while not one.statistics.rejoined:
                await asyncio.sleep(0.02)
            await asyncio.gather(*(publisher.publish(topic, b"") for topic in topics))
            for subscription in read:
                assert await numbers(subscription, 1) == [1]
            while service.status().subscriptions < len(topics):
                await asyncio.sleep(0.02)
            assert one.statistics.rejoined == 1
            assert service.status().found_dead == 1

    run(work())


def test_a_cluster_takes_up_no_more_topics_than_it_may() -> None:
    machine = a_cluster()
    machine.policy = replace(OURS, most_topics=2)
    propose = Propose(1, (TopicFlow("c", 0.0),), 1, 1)
    (refused,) = machine.on_message("topic/c", propose, 1.0)
    assert refused == Send("topic/c", Refuse(1))
    tell = Tell((News(TopicFlow("c", 0.0), True),), ("a", "b"), ("topic/c",))
    machine.on_message("s", tell, 1.0)
    assert not machine.state.adding
    machine.on_message("s", Leave(2), 1.0)


def test_a_proposal_of_very_many_topics_becomes_several_clusters() -> None:
    proposal = Proposal(tuple(range(1_000)), (0, 1), 5.0, 2_000)
    parts = [*_split(proposal, 256)]
    assert len(parts) == 4
    assert sorted(topic for part in parts for topic in part.topics) == [*range(1_000)]
    assert [*_split(proposal, 1_000)] == [proposal]
