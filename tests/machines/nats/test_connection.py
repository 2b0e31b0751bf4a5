"""The connection to a NATS server, where the client library alone would hang."""

from __future__ import annotations

import asyncio
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.machines.nats import NatsOptions, connect_to_server
from distributary.machines.nats.connection import NatsConnection


async def cancel_with_answer(request: Any, answer: asyncio.Future[Any]) -> asyncio.Task[Any]:
    """Cancel a request at the moment at which its answer arrives."""
    task = asyncio.ensure_future(request)
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_result(None)
    task.cancel()
    await asyncio.wait([task])
    return task


@pytest.mark.parametrize("name", ["request", "flush"])
def test_a_cancellation_that_comes_with_the_answer_counts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def wait(client: Client, *given: Any, **named: Any) -> Any:
            await asyncio.wait_for(answer, 60.0)
            if given[0] == "nobody":
                raise nats.errors.NoRespondersError
            return Msg(client, "x")

        monkeypatch.setattr(Client, name, wait)
        for subject in ("anybody", "nobody"):
            answer = asyncio.get_running_loop().create_future()
            task = await cancel_with_answer(getattr(NatsConnection(), name)(subject), answer)
            assert task.cancelled()

    asyncio.run(work())


def test_a_cancellation_that_comes_as_the_connection_is_made_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def connect(client: Client, **named: Any) -> None:
            await asyncio.wait_for(made, 60.0)

        async def close(client: Client) -> None:
            closed.append(client)

        async def enter() -> None:
            async with connect_to_server(NatsOptions(), name="t"):
                raise AssertionError("it was cancelled before")

        closed: list[Client] = []
        monkeypatch.setattr(Client, "connect", connect)
        monkeypatch.setattr(NatsConnection, "close", close)
        task = await cancel_with_answer(enter(), made)
        assert task.cancelled()
        assert len(closed) == 1

    asyncio.run(work())


def test_a_time_out_around_a_request_is_no_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await NatsConnection().request("x")

    async def wait(client: Client, *given: Any, **named: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Client, "request", wait)
    asyncio.run(work())
