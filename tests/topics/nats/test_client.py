"""Clients, a service and a real server: what an application sees."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.errors import LiveError, StateError
from distributary.topics import is_cluster
from distributary.topics.nats import (
    ClientClosedError,
    ClientSettings,
    EventsLostError,
    NatsOptions,
    NotConfirmedError,
    PayloadTooLargeError,
    ServerAwayError,
    ServerRefusedError,
    ServiceAwayError,
    ServiceRunningError,
    TopicClient,
    TopicNameError,
    TopicSubscription,
    UnknownTopicError,
    WhenFull,
    run_embedded_server,
)
from tests.topics.nats.running import QUICK, client, run, serving

ODD = ["a.b.c", "*", ">", " two words ", "ü/日本/🐟", "x" * 256, "%2E", "topic/cluster/1/x", "\n\0"]


async def numbers(subscription: TopicSubscription, count: int) -> list[int]:
    found = []
    for _ in range(count):
        event = await subscription.get()
        assert event is not None
        assert event.topic == subscription.topic
        found.append(event.number)
    return found


def test_topics_of_any_name_carry_their_own_events(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path),
            client(server.options) as publisher,
            client(server.options) as subscriber,
        ):
            for topic in ODD:
                assert await publisher.create(topic)
                assert not await subscriber.create(topic)
            read = [await subscriber.subscribe(topic) for topic in ODD]
            for topic in ODD:
                await publisher.publish(topic, topic.encode())
            for topic, subscription in zip(ODD, read, strict=True):
                event = await subscription.get()
                assert event is not None
                assert (event.topic, event.number, event.payload) == (topic, 1, topic.encode())

    run(work())


def test_many_events_on_their_way_keep_their_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path),
            client(server.options, window=16) as both,
        ):
            await both.create("t")
            subscription = await both.subscribe("t")
            await asyncio.gather(*(both.publish("t", b"%d" % n) for n in range(1_000)))
            for n in range(1_000):
                event = await subscription.get()
                assert event is not None
                assert (event.number, event.payload) == (n + 1, b"%d" % n)
            assert both.statistics.published == 1_000

    run(work())


def test_events_that_wait_for_each_other_travel_together_and_keep_their_order(
    tmp_path: Path,
) -> None:
    topics = [f"t{at}" for at in range(10)]

    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path),
            client(server.options) as reader,
            client(server.options, linger=0.1, window=40) as publisher,
        ):
            for topic in topics:
                await publisher.create(topic)
            read = [await reader.subscribe(topic) for topic in topics]
            said = [publisher.publish(topic, b"%d" % at) for at in range(5) for topic in topics]
            many = [publisher.publish("t0", b"%d" % at) for at in range(5, 100)]
            await asyncio.gather(*said, *many)
            for topic, subscription in zip(topics, read, strict=True):
                count = 100 if topic == "t0" else 5
                assert await numbers(subscription, count) == [*range(1, count + 1)]
            assert publisher.statistics.published == 145

    run(work())


def test_a_client_cannot_wait_for_longer_than_until_it_repeats() -> None:
    for linger in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="linger must be at least 0 and less than repeat_a"):
            ClientSettings(linger=linger)


def test_bad_input_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server(max_payload=10_000) as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as one,
        ):
            with pytest.raises(UnknownTopicError, match="'never made'"):
                await one.publish("never made", b"")
            with pytest.raises(UnknownTopicError):
                await one.subscribe("never made")
            for work in (one.create(""), one.subscribe("\ud800"), one.publish("x" * 257, b"")):
                with pytest.raises(TopicNameError):
                    await work
            with pytest.raises(TypeError, match="bytes, not str"):
                await one.publish("never made", "text")  # type: ignore[arg-type]
            for flow in (-1.0, float("inf"), float("nan")):
                with pytest.raises(ValueError, match="events per interval"):
                    await one.create("never made", flow=flow)
            await one.create("never made")  # and now it is
            subscription = await one.subscribe("never made")
            with pytest.raises(PayloadTooLargeError) as caught:
                await one.publish("never made", b"x" * 10_001)
            await one.publish("never made", b"x" * caught.value.most)
            assert await numbers(subscription, 1) == [1]
            with pytest.raises(ValueError, match="already"):
                await one.subscribe("never made")
            nc = service  # what is no message of ours does no harm
            async with client(server.options) as other:
                await other._open().publish("distributary.to.topic%2Fx", b"garbage")
                await other._open().publish("distributary.to.%zz", b"garbage")
                await other._open().publish("distributary.on.topic%2Fnever%20made", b"garbage")
                await one.publish("never made", b"")
            assert await numbers(subscription, 1) == [2]
            assert nc.status().refused == 2

    run(work())


def test_unsubscribing_ends_the_events_of_that_topic_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as both,
            client(server.options) as other,
        ):
            for topic in "ab":
                await both.create(topic)
            a, b = [await both.subscribe(topic) for topic in "ab"]
            await both.publish("a", b"")
            await both.unsubscribe("a")
            await both.publish("a", b"")
            await both.publish("b", b"")
            assert await numbers(b, 1) == [1]
            assert [event async for event in a] == []
            for number in range(3, 23):
                again = await both.subscribe("a")
                await other.publish("a", b"")  # on a connection that may be ahead of ours
                assert await numbers(again, 1) == [number]
                await both.unsubscribe("a")
            again = await both.subscribe("a")
            await both.unsubscribe("a")
            await both.unsubscribe("b")
            while service.status().subscriptions:
                await asyncio.sleep(0.02)

    run(work())


async def until_clustered(clients: list[TopicClient], *, on: bool) -> None:
    while any(on != any(map(is_cluster, each.statistics.channels)) for each in clients):
        await asyncio.sleep(0.02)


def test_who_moves_into_a_cluster_and_out_again_misses_nothing(tmp_path: Path) -> None:
    topics = [f"t{n}" for n in range(5)]

    async def publish(publisher: TopicClient, topic: str, done: asyncio.Event) -> int:
        count = 0
        while not done.is_set():
            await publisher.publish(topic, b"%d" % count)
            count += 1
        return count

    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as publisher,
            client(server.options) as one,
            client(server.options) as two,
        ):
            for topic in topics:
                await publisher.create(topic)
            read = [await each.subscribe(topic) for each in (one, two) for topic in topics]
            done = asyncio.Event()
            publishing = [asyncio.create_task(publish(publisher, t, done)) for t in topics]
            await until_clustered([one, two], on=True)
            while (found := service.status()).subscriptions >= found.wanted:
                await asyncio.sleep(0.02)  # they leave the topics after they have joined
            assert found.wanted == 10
            assert found.cost < found.unclustered
            for topic in topics[1:]:  # one topic alone is not worth a cluster
                await one.unsubscribe(topic)
                await two.unsubscribe(topic)
            await until_clustered([one, two], on=False)
            done.set()
            counts = await asyncio.gather(*publishing)
            for subscription in (read[0], read[5]):
                assert await numbers(subscription, counts[0]) == list(range(1, counts[0] + 1))
            while service.status().n_clusters:
                await asyncio.sleep(0.02)

    run(work())


def test_a_slow_reader_waits_or_loses_the_oldest_as_it_chose(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path),
            client(server.options) as publisher,
            client(server.options, capacity=5) as waiting,
            client(server.options, capacity=5, when_full=WhenFull.DROP_OLDEST) as dropping,
        ):
            await publisher.create("t")
            waits, drops = await waiting.subscribe("t"), await dropping.subscribe("t")
            for _ in range(50):
                await publisher.publish("t", b"")
            while drops.dropped < 45:
                await asyncio.sleep(0.01)
            assert await numbers(drops, 5) == [46, 47, 48, 49, 50]
            assert len(waits) == 5
            await waiting.publish("t", b"own")  # its confirmation is not behind the events
            assert await numbers(waits, 51) == list(range(1, 52))
            assert waits.dropped == 0

    run(work())


def test_a_reader_that_was_away_for_too_long_is_told_what_it_lost(tmp_path: Path) -> None:
    async def work() -> None:
        policy = replace(QUICK, history=10)
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path, policy=policy),
            client(server.options) as publisher,
            client(server.options) as subscriber,
        ):
            await publisher.create("t")
            subscription = await subscriber.subscribe("t")
            (data,) = subscriber._reader._data.values()
            await publisher.publish("t", b"")
            assert await numbers(subscription, 1) == [1]
            await data.unsubscribe()  # as if the network had lost what comes
            for _ in range(30):
                await publisher.publish("t", b"")
            with pytest.raises(EventsLostError) as caught:
                await subscription.get()
            assert (caught.value.first, caught.value.last) == (2, 21)
            assert await numbers(subscription, 10) == list(range(22, 32))

    run(work())


def test_a_client_taken_for_dead_comes_back_without_missing_anything(tmp_path: Path) -> None:
    async def work() -> None:
        policy = replace(QUICK, refresh=0.5)
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path, policy=policy, dead_after=1.0) as service,
            client(server.options, beat_every=0.2) as publisher,
            client(server.options, beat_every=0.2) as subscriber,
        ):
            await publisher.create("t")
            subscription = await subscriber.subscribe("t")
            host = service.host
            service._driver.call(lambda now: host.bury(now + 100, 50))  # as if it had been silent
            while not subscriber.statistics.rejoined:
                await publisher.publish("t", b"")
                await asyncio.sleep(0.02)
            assert service.status().found_dead == 1
            while not host.topics["topic/t"].size:
                await asyncio.sleep(0.02)
            await publisher.publish("t", b"last")
            count = host.topics["topic/t"].state.next_number - 1
            assert await numbers(subscription, count) == list(range(1, count + 1))

    run(work())


async def die(dies: TopicClient) -> None:
    async with dies:
        subscription = await dies.subscribe("t")
        await dies._open().close()  # without a word
        with pytest.raises(ClientClosedError):
            await dies.publish("t", b"")
        await subscription.get()


def test_a_client_that_dies_is_taken_off_its_channels(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server() as server,
            serving(server.options, tmp_path, dead_after=0.6) as service,
            client(server.options, beat_every=0.1) as stays,
        ):
            await stays.create("t")
            await stays.subscribe("t")
            with pytest.raises(ServerRefusedError, match="closed for good"):
                await die(client(server.options, beat_every=0.1))
            while service.status().subscribers == 2:
                await asyncio.sleep(0.02)
            assert service.status().found_dead == 1

    run(work())


def test_a_service_that_is_away_is_told_and_waited_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server() as server, client(server.options, timeout=0.5) as hasty:
            with pytest.raises(ServiceAwayError, match="no channel service"):
                await hasty.create("t")
            with pytest.raises(ServiceAwayError):
                await hasty.subscribe("t")
            with pytest.raises(NotConfirmedError, match="may or may not"):
                await hasty.publish("t", b"")
            async with client(server.options) as patient:
                async with serving(server.options, tmp_path):
                    await patient.create("t")
                    subscription = await patient.subscribe("t")
                    await patient.publish("t", b"")
                publishing = asyncio.create_task(patient.publish("t", b""))
                await asyncio.sleep(0.3)
                assert not publishing.done()
                async with serving(server.options, tmp_path):
                    await publishing
                    assert await numbers(subscription, 2) == [1, 2]

    run(work())


def test_a_service_that_has_lost_its_state_is_told_to_who_relied_on_it(tmp_path: Path) -> None:
    async def read(options: NatsOptions) -> None:
        async with client(options, beat_every=0.1) as reader:
            async with serving(options, tmp_path / "one"):
                await reader.create("t")
                subscription = await reader.subscribe("t")
                while not reader._reader._service:
                    await asyncio.sleep(0.01)
            async with serving(options, tmp_path / "one"):
                await reader.publish("t", b"")  # the same service
                assert await numbers(subscription, 1) == [1]
            async with serving(options, tmp_path / "two"):
                await subscription.get()

    async def work() -> None:
        async with run_embedded_server(jetstream=False) as server:
            with pytest.raises(LiveError, match="lost its state"):
                await read(server.options)

    run(work())


def test_who_asks_for_something_while_the_server_is_away_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        first = run_embedded_server(tmp_path)
        server = await first.__aenter__()
        async with client(server.options, timeout=0.5) as hasty:
            await first.__aexit__(None, None, None)
            while hasty._open().is_connected:
                await asyncio.sleep(0.01)
            with pytest.raises(ServerAwayError, match="nothing for"):
                await hasty.create("t")
            with pytest.raises(ServerAwayError, match="nothing for"):
                await hasty.subscribe("t")
            with pytest.raises(NotConfirmedError, match="may or may not"):
                await hasty.publish("t", b"")
            await hasty.unsubscribe("t")

    run(work())


def test_nobody_is_found_dead_while_the_server_is_away(tmp_path: Path) -> None:
    async def work() -> None:
        first = run_embedded_server(tmp_path / "server")
        server = await first.__aenter__()
        async with (
            serving(server.options, tmp_path / "state", dead_after=4.0) as service,
            client(server.options, beat_every=0.1) as both,
        ):
            await both.create("t")
            subscription = await both.subscribe("t")
            await first.__aexit__(None, None, None)
            publishing = asyncio.create_task(both.publish("t", b""))
            await asyncio.sleep(5.0)
            assert not publishing.done()
            async with run_embedded_server(tmp_path / "server"):
                await publishing
                assert await numbers(subscription, 1) == [1]
                await asyncio.sleep(1.0)
                assert service.status().found_dead == 0
                await both.close()

    run(work())


def test_a_client_has_a_short_name() -> None:
    assert TopicClient(name="ü" * 50).name.startswith("client/üü")
    with pytest.raises(ValueError, match="too long for a client"):
        TopicClient(name="ü" * 51)


def test_without_jetstream_there_is_one_service_at_a_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server(jetstream=False) as server,
            serving(server.options, tmp_path / "one"),
        ):
            with pytest.raises(StateError, match="another process"):
                async with serving(server.options, tmp_path / "one"):
                    pass
            with pytest.raises(ServiceRunningError):
                async with serving(server.options, tmp_path / "two"):
                    pass
            async with serving(server.options, tmp_path / "two", prefix="two"):
                pass

    run(work())
