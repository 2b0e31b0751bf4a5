"""`ContentClient` with the broker service, in one process."""

from __future__ import annotations

from asyncio import TaskGroup
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributary.content.errors import BrokerRefusedError, EventRefusedError
from distributary.content.protocol import Welcome
from distributary.content.tcp import ContentClient
from distributary.content.tcp.trust import Trust
from distributary.machines.real import LinkConnection, Tokens
from tests.content.tcp.services import serve
from tests.content.tcp.test_service import run


def test_what_is_sent_in_one_turn_of_the_loop_is_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    plain_send = LinkConnection.send

    def send(connection: LinkConnection, bodies: Any) -> None:
        if isinstance(connection.peer, Welcome):  # the client's end
            written.append(len(bodies))
        plain_send(connection, bodies)

    async def scenario() -> None:
        async with (
            serve(tmp_path, "A") as broker,
            ContentClient(str(broker.address), name="ann") as ann,
        ):
            mine = await ann.subscribe("price >= 0")
            await ann.publish({"price": 0})
            monkeypatch.setattr(LinkConnection, "send", send)
            async with TaskGroup() as group:
                for price in range(1, 8):
                    group.create_task(ann.publish({"price": price}))
            monkeypatch.undo()
            assert written[0] == 7
            got = [(await anext(mine)).attributes["price"] for _ in range(8)]
            assert got == [*range(8)]

    run(scenario)


def test_values_of_numpy_arrive_and_what_cannot_be_sent_disturbs_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(tmp_path, "A") as broker,
            ContentClient(str(broker.address), name="ann") as ann,
        ):
            mine = await ann.subscribe("price > 1")
            await ann.publish({"symbol": np.str_("IBM"), "price": np.float64(2.5)})
            for bad in ({"price": object()}, {"symbol": "\ud800"}):
                with pytest.raises(EventRefusedError):
                    await ann.publish(bad)
            await ann.publish({"price": np.int64(3)})
            assert (await anext(mine)).attributes == {"symbol": "IBM", "price": 2.5}
            assert (await anext(mine)).attributes == {"price": 3.0}

    run(scenario)


def test_a_broker_that_is_restarted_with_other_tokens_ends_its_clients(tmp_path: Path) -> None:
    tokens = [Tokens({"client": {"ann": each * 20}}) for each in "ab"]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with serve(tmp_path, "A", trust=Trust(tokens=tokens[0])) as broker:
                client = ContentClient(str(broker.address), name="ann", token="a" * 20)
                ann = await stack.enter_async_context(client)
                mine = await ann.subscribe("price > 1")
            again = {"trust": Trust(tokens=tokens[1]), "listen": broker.address}
            async with serve(tmp_path, "A", **again):
                with pytest.raises(BrokerRefusedError, match="the token is not that of client"):
                    await mine.get()

    run(scenario)
