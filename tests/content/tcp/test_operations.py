"""What operators do with a running network: join, take out, replace and upgrade brokers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from distributary.content.errors import SessionRefusedError
from distributary.content.tcp import ContentClient, ContentSubscription
from distributary.content.tcp.service import BrokerLink
from tests.content.tcp.services import LONG, Running, serve


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * LONG):
            await scenario()

    asyncio.run(bounded())


async def take(subscription: ContentSubscription, count: int) -> list[Any]:
    found = []
    async with asyncio.timeout(LONG):
        while len(found) < count:
            found += [event.attributes["price"] for event in await subscription.get_some()]
    subscription.acknowledge()
    return found


def client_of(broker: Running, name: str) -> ContentClient:
    return ContentClient(str(broker.address), name=name)


def test_a_broker_joins_a_network_in_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(tmp_path, "A") as a,
            serve(tmp_path, "B", a) as b,
            client_of(a, "pub") as pub,
            client_of(b, "ann") as ann,
        ):
            await b.until("linked with A")
            early = await ann.subscribe("price > 0")
            await pub.publish({"price": 1.0})
            async with serve(tmp_path, "C", b) as c, client_of(c, "cy") as cy:
                await c.until("linked with B")
                late = await cy.subscribe("price > 1")
                assert late.is_settled
                await pub.publish({"price": 2.0})
                await cy.publish({"price": 3.0})
                assert await take(late, 2) == [2.0, 3.0]
            assert await take(early, 3) == [1.0, 2.0, 3.0]

    run(scenario)


def test_who_has_a_session_is_told_why_there_is_no_ephemeral_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a:
            async with client_of(a, "ann"):
                pass
            with pytest.raises(SessionRefusedError, match=r"or use another name$"):
                async with ContentClient(str(a.address), name="ann", ephemeral=True):
                    pass

    run(scenario)


def test_a_broker_is_taken_out_and_its_client_moves_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(serve(tmp_path, "A"))
            pub = await stack.enter_async_context(client_of(a, "pub"))
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                async with serve(tmp_path, "C", b) as c:
                    await c.until("linked with B")
                    ann = await stack.enter_async_context(client_of(c, "ann"))
                    wanted = await ann.subscribe("price > 0")
                    await pub.publish({"price": 1.0})
                    await ann.move(str(b.address))
                    await pub.publish({"price": 2.0})
                    assert await take(wanted, 2) == [1.0, 2.0]
                    await ann.finish_move()
                    assert c.host.statistics().clients == ()
            where = b.address
            again = serve(tmp_path, "B", a, listen=where, removed=("C", "X"))
            b = await stack.enter_async_context(again)
            await b.until("took out the link with C, and dropped 0 events")
            await b.until("there is no link with X")
            await b.until("linked with A")
            await pub.publish({"price": 3.0})
            assert await take(wanted, 1) == [3.0]
            assert [each.neighbour for each in b.host.statistics().links] == ["A"]
            assert b.host.statistics().network == (("A", "B"),)

    run(scenario)


def test_a_broker_in_the_middle_is_taken_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(serve(tmp_path, "A"))
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                async with serve(tmp_path, "C", b) as c:
                    await c.until("linked with B")
                    async with client_of(c, "ann") as ann:
                        await ann.subscribe("price > 0")
            await stack.aclose()
            a = await stack.enter_async_context(serve(tmp_path, "A", removed=("B",)))
            c = await stack.enter_async_context(serve(tmp_path, "C", a, removed=("B",)))
            await c.until("linked with A")
            pub = await stack.enter_async_context(client_of(a, "pub"))
            ann = await stack.enter_async_context(client_of(c, "ann"))
            wanted = await ann.subscribe("price > 0")
            await pub.publish({"price": 1.0})
            assert await take(wanted, 1) == [1.0]

    run(scenario)


def test_a_broker_is_replaced_by_one_with_its_state_at_another_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a, client_of(a, "pub") as pub:
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                async with client_of(b, "ann") as ann:
                    await ann.subscribe("price > 0")
                    assert not ann.statistics.losses
            await pub.publish({"price": 1.0})
            shutil.copytree(tmp_path / "B", tmp_path / "elsewhere" / "B")
            async with serve(tmp_path / "elsewhere", "B", a) as b:
                await b.until("linked with A")
                async with client_of(b, "ann") as ann:
                    wanted = await ann.subscribe("price > 0")
                    await pub.publish({"price": 2.0})
                    assert await take(wanted, 2) == [1.0, 2.0]

    run(scenario)


def test_brokers_are_restarted_one_by_one_under_traffic(tmp_path: Path) -> None:
    """As an upgrade does; nothing is lost, doubled or out of order."""

    async def scenario() -> None:
        stacks = [AsyncExitStack() for _ in range(3)]
        a = await stacks[0].enter_async_context(serve(tmp_path, "A"))
        b = await stacks[1].enter_async_context(serve(tmp_path, "B", a))
        c = await stacks[2].enter_async_context(serve(tmp_path, "C", b))
        await b.until("linked with A")
        await c.until("linked with B")
        published: list[float] = []
        async with client_of(a, "pub") as pub, client_of(c, "ann") as ann:
            wanted = await ann.subscribe("price > 0")

            async def publish() -> None:
                while True:
                    published.append(1.0 + len(published))
                    await pub.publish({"price": published[-1]})
                    await asyncio.sleep(0.002)

            publishing = asyncio.create_task(publish())
            links = ((), (a.link(),), (b.link(),))
            for at, broker in enumerate((a, b, c)):
                await stacks[at].aclose()
                again = serve(
                    tmp_path, broker.settings.name, listen=broker.address, links=links[at]
                )
                await stacks[at].enter_async_context(again)
                count = len(published)
                while len(published) < count + 20:
                    await asyncio.sleep(0.01)
            publishing.cancel()
            await asyncio.wait([publishing])
            last = len(published) - 1  # the very last one may not have been stored
            got = await take(wanted, last)
            assert got[:last] == published[:last]
        for stack in reversed(stacks):
            await stack.aclose()

    run(scenario)


def test_nobody_is_linked_with_and_taken_out_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a:
            with pytest.raises(ValueError, match="at once"):
                async with serve(
                    tmp_path, "B", removed=("A",), links=(BrokerLink("A", a.address),)
                ):
                    pass

    run(scenario)
