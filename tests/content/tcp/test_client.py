"""`ContentClient` over real sockets, with brokers of the plain model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import wraps
from typing import Any

import pytest

from distributary.content.errors import (
    BrokerAwayError,
    BrokerRefusedError,
    ClientDismissedError,
    ContentClientClosedError,
    EventNotStoredError,
    EventRefusedError,
    EventsMissedError,
    FilterRefusedError,
    MoveFailedError,
)
from distributary.content.protocol import Dropped, Refused
from distributary.content.tcp import (
    ContentClient,
    ContentClientSettings,
    ContentSubscription,
    Credentials,
    fetch_status,
)
from tests.content.tcp.plain_service import PlainService, serve_plainly

PATIENCE = 240.0
NOWHERE = "127.0.0.1:1"
HASTY = ContentClientSettings(connect_within=0.3, timeout=0.3, settle_within=0.1)


def in_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop of its own; one that hangs fails."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*given, **named)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def open_ann(**words: Any) -> AsyncIterator[tuple[ContentClient, PlainService]]:
    """Open a client of the name ann, and the broker that it is at."""
    async with (
        serve_plainly("a") as (broker,),
        ContentClient(broker.address, name="ann", **words) as client,
    ):
        yield client, broker


async def take(subscription: ContentSubscription, count: int) -> list[int]:
    found = []
    async for event in subscription:
        found.append(int(str(event.attributes["x"])))
        if len(found) == count:
            break
    return found


@in_time
async def test_what_is_published_arrives_with_its_payload() -> None:
    async with open_ann() as (client, _):
        subscription = await client.subscribe("x < 3")
        assert subscription.is_settled
        await client.publish({"X": 1, "at": datetime(2025, 1, 2)}, b"\xff")
        await client.publish({"x": 5})
        await client.publish({"x": 2})
        event = await anext(subscription)
        assert event.payload == b"\xff"
        assert (event.publisher, event.broker, event.number) == ("me", "a", 1)
        assert await take(subscription, 1) == [2]
        statistics = client.statistics
        assert (statistics.published, statistics.delivered, statistics.unstored) == (3, 2, 0)


@in_time
async def test_a_client_that_reconnects_gets_everything_once() -> None:
    async with open_ann() as (client, a):
        subscription = await client.subscribe("x < 6")
        for cut in range(3):
            a.publish(cut)
            a.cut_all()
            a.publish(cut)
            await client.publish({"x": cut})
        assert await take(subscription, 9) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert client.statistics.connections > 1
        assert len(subscription) == 0


@in_time
async def test_what_was_not_processed_comes_again_to_the_next_process() -> None:
    async with serve_plainly("a") as (a,):
        with suppress(ZeroDivisionError):
            async with ContentClient(a.address, name="ann") as client:
                subscription = await client.subscribe("x < 6")
                for value in range(3):
                    a.publish(value)
                assert await take(subscription, 2) == [0, 1]
                _ = 1 / 0
        a.publish(3)
        async with ContentClient(a.address, name="ann") as client:
            subscription = await client.subscribe("x < 6")
            assert await take(subscription, 3) == [1, 2, 3]  # 1 was being processed
        async with ContentClient(a.address, name="ann") as client:
            subscription = await client.subscribe("x < 6")
            a.publish(4)
            assert await take(subscription, 1) == [4]


@in_time
async def test_subscriptions_that_nobody_takes_over_can_be_ended() -> None:
    async with serve_plainly("a") as (a,):
        async with ContentClient(a.address, name="ann") as client:
            await client.subscribe("x < 6")
        async with ContentClient(a.address, name="ann") as client:
            await client.subscribe("x < 2")
            assert await client.end_unclaimed() == 1
            await client.publish({"x": 5})
            assert a.broker.session is not None
            assert list(a.broker.session.subscriptions.values()) == ["x < 2"]


@in_time
async def test_a_client_moves_and_misses_nothing() -> None:
    async with (
        serve_plainly("a", "b") as (a, b),
        ContentClient(a.address, name="ann") as client,
    ):
        subscription = await client.subscribe("x < 6")
        a.publish(0)
        assert await take(subscription, 1) == [0]
        a.publish(1)
        await client.move(b.address)
        await client.publish({"x": 2})
        b.publish(3)
        assert await take(subscription, 3) == [1, 2, 3]
        subscription.acknowledge()
        a.publish(4)
        assert await take(subscription, 1) == [4]
        subscription.acknowledge()
        assert client.statistics.broker == b.address
        while a.broker.session is not None:
            await asyncio.sleep(0.01)


@in_time
async def test_a_move_that_fails_leaves_the_client_where_it_is() -> None:
    async with (
        serve_plainly("a", "b") as (a, b),
        ContentClient(a.address, name="ann", settings=HASTY) as client,
    ):
        subscription = await client.subscribe("x < 6")
        with pytest.raises(MoveFailedError, match="check the address"):
            await client.move(NOWHERE)
        b.refuses = "not you"
        with pytest.raises(MoveFailedError, match="not you"):
            await client.move(b.address)
        a.publish(1)
        assert await take(subscription, 1) == [1]
        assert client.statistics.broker == a.address


@in_time
async def test_a_broker_that_is_gone_for_good_can_be_abandoned() -> None:
    async with (
        serve_plainly("a", "b") as (a, b),
        ContentClient(a.address, name="ann") as client,
    ):
        subscription = await client.subscribe("x < 6")
        a.refuses = "gone"
        a.cut_all()
        await client.move(b.address, abandon=True)
        with pytest.raises(EventsMissedError, match="has left"):
            await subscription.get()
        b.publish(1)
        assert await take(subscription, 1) == [1]


@in_time
async def test_losses_are_raised_at_their_place() -> None:
    async with open_ann() as (client, a):
        subscription = await client.subscribe("x < 6")
        a.publish(1)
        assert a.broker.session is not None
        a.broker.session.deliveries += 2
        a.say([Dropped(2, 3, "the outbox is full")])
        a.publish(2)
        assert await take(subscription, 1) == [1]
        with pytest.raises(EventsMissedError, match="2 events are missing") as missed:
            await subscription.get()
        assert missed.value.count == 2
        assert await take(subscription, 1) == [2]


@in_time
async def test_an_ephemeral_client_leaves_nothing_behind() -> None:
    async with serve_plainly("a") as (a,):
        async with ContentClient(a.address, name="ann", ephemeral=True) as client:
            subscription = await client.subscribe("x < 6")
            a.cut_all()
            with pytest.raises(EventsMissedError, match="ephemeral"):
                await subscription.get()
            await client.publish({"x": 1})
            assert await take(subscription, 1) == [1]
        while a.broker.session is not None:
            await asyncio.sleep(0.01)


@in_time
async def test_ending_the_session_leaves_nothing_behind() -> None:
    async with serve_plainly("a") as (a,):
        async with ContentClient(a.address, name="ann") as client:
            await client.subscribe("x < 6")
            await client.end_session()
            with pytest.raises(ContentClientClosedError):
                await client.publish({"x": 1})
        assert a.broker.session is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"y": 1}, "no attribute 'y', only x, at"),
        ({"x": "one"}, "'one', not a whole number"),
        ({"x": 1, "X": 2}, "differ only in case"),
        ({"x": -1}, "below 0"),
    ],
)
@in_time
async def test_a_bad_event_is_refused_with_words(attributes: dict[str, Any], reason: str) -> None:
    async with open_ann() as (client, a):
        with pytest.raises(EventRefusedError, match=reason):
            await client.publish(attributes)
        await client.publish({"x": 1})
        assert [payload for *_, payload in a.network.log] == [b""]


@in_time
async def test_a_bad_filter_is_refused_with_words() -> None:
    async with open_ann() as (client, _):
        with pytest.raises(FilterRefusedError, match="not a filter"):
            await client.subscribe("nonsense")
        with pytest.raises(FilterRefusedError, match="not a filter"):
            await client.advertise("nonsense")
        await client.subscribe("x < 1")
        with pytest.raises(ValueError, match="already"):
            await client.subscribe("x < 1")


@in_time
async def test_unsubscribing_ends_the_reading() -> None:
    async with open_ann() as (client, a):
        subscription = await client.subscribe("x < 6")
        a.publish(1)
        await client.unsubscribe(subscription)
        assert await subscription.get() is None
        assert a.broker.session is not None
        assert not a.broker.session.subscriptions
        again = await client.subscribe("x < 6")
        a.publish(2)
        assert await take(again, 1) == [2]


@in_time
async def test_an_event_that_nobody_stores_in_time_is_reported_and_taken_back() -> None:
    async with open_ann(settings=HASTY) as (client, a):
        a.refuses = "gone"
        a.cut_all()
        await asyncio.sleep(0.05)
        with pytest.raises(EventNotStoredError, match="was not stored"):
            await client.publish({"x": 1})
        a.refuses = ""
        while not a.network.log:
            with suppress(EventNotStoredError):
                await client.publish({"x": 2})
        assert [value for _, _, _, value, _ in a.network.log] == [2]


@in_time
async def test_brokers_that_are_away_or_refuse_are_named() -> None:
    with pytest.raises(BrokerAwayError, match=r"127\.0\.0\.1:1: no broker answers"):
        async with ContentClient(NOWHERE, name="ann", settings=HASTY):
            pass
    with pytest.raises(ValueError, match="not HOST:PORT"):
        ContentClient("nowhere", name="ann")
    async with serve_plainly("a") as (a,):
        a.token = "secret"
        with pytest.raises(BrokerRefusedError, match="wrong token"):
            async with ContentClient(a.address, name="ann"):
                pass
        async with ContentClient(a.address, name="ann", token="secret") as client:
            await client.publish({"x": 1})


@in_time
async def test_a_broker_that_refuses_a_client_for_now_is_reported_once_per_reason() -> None:
    lines: list[str] = []
    async with open_ann(report=lines.append) as (client, a):
        for count, reason in enumerate(("an upgrade", "another schema"), start=1):
            a.refuses, judged = reason, a.judged
            a.cut_all()
            while a.judged < judged + 3:
                await asyncio.sleep(0.01)
            assert len(lines) == count
            assert (
                lines[-1] == f"{a.address}: the broker refuses the client: {reason}; trying again"
            )
        a.refuses = ""
        await client.publish({"x": 1})
        assert len(lines) == 2


@in_time
async def test_a_client_whose_token_is_no_longer_right_fails() -> None:
    lines: list[str] = []
    async with open_ann(report=lines.append) as (client, a):
        subscription = await client.subscribe("x < 6")
        a.token = "new"
        a.cut_all()
        with pytest.raises(BrokerRefusedError, match="wrong token"):
            await subscription.get()
        with pytest.raises(BrokerRefusedError, match="wrong token"):
            await client.publish({"x": 1})
        judged = a.judged
        await asyncio.sleep(0.3)
        assert (a.judged, lines) == (judged, [])


@in_time
async def test_a_subscription_fails_that_a_broker_without_the_session_refuses() -> None:
    lines: list[str] = []
    async with open_ann(report=lines.append) as (client, a):
        subscription = await client.subscribe("x < 6")
        await client.advertise("x < 5")
        a.broker.session = None
        a.network._keep = lambda session, kind, place, number, text: [  # type: ignore[method-assign]
            Refused(kind, number, "there is no x")  # type: ignore[arg-type]
        ]
        a.cut_all()
        with pytest.raises(EventsMissedError, match="no longer has the session"):
            await subscription.get()
        with pytest.raises(FilterRefusedError, match="'x < 6': there is no x"):
            await subscription.get()
        while not lines:
            await asyncio.sleep(0.01)
        assert lines == ["the broker refuses what this client advertised: there is no x"]


@in_time
async def test_a_client_knows_whether_its_session_existed_and_what_waits() -> None:
    async with serve_plainly("a") as (a,):
        async with ContentClient(a.address, name="ann") as client:
            await client.subscribe("x < 6")
            assert (client.is_resumed, client.waiting) == (False, 0)
        a.publish(1)
        a.publish(2)
        async with ContentClient(a.address, name="ann") as client:
            assert (client.is_resumed, client.waiting) == (True, 2)
            a.cut_all()
            await client.publish({"x": 9})
            assert (client.is_resumed, client.waiting) == (True, 2)


@in_time
async def test_the_second_process_of_a_name_dismisses_the_first() -> None:
    async with open_ann() as (first, a):
        subscription = await first.subscribe("x < 6")
        async with ContentClient(a.address, name="ann"):
            with pytest.raises(ClientDismissedError, match="one process at a time"):
                await subscription.get()
            with pytest.raises(ClientDismissedError):
                await first.publish({"x": 1})


@in_time
async def test_many_publish_at_once_in_order() -> None:
    settings = ContentClientSettings(window=10, window_bytes=100)
    async with open_ann(settings=settings) as (client, a):
        payloads = [f"{number:09}".encode() for number in range(500)]
        async with asyncio.TaskGroup() as group:
            for payload in payloads:
                group.create_task(client.publish({"x": 1}, payload))
        assert [payload for *_, payload in a.network.log] == payloads


@in_time
async def test_what_was_sent_before_closing_arrives() -> None:
    async with serve_plainly("a") as (a,):
        async with ContentClient(a.address, name="ann") as client:
            await client.publish({"x": 0})
            publishing = asyncio.create_task(client.publish({"x": 1}))
            await asyncio.sleep(0)
        with pytest.raises(ContentClientClosedError):
            await publishing
        while len(a.network.log) < 2:
            await asyncio.sleep(0.01)


@in_time
async def test_the_status_needs_no_session() -> None:
    async with serve_plainly("a") as (a,):
        assert await fetch_status(a.address, Credentials("status")) == {"name": "a"}
        assert a.broker.session is None
        a.refuses = "not you"
        with pytest.raises(BrokerRefusedError, match="not you"):
            await fetch_status(a.address, Credentials("status"))
    with pytest.raises(BrokerAwayError):
        await fetch_status(NOWHERE, Credentials("status"), within=0.2)
