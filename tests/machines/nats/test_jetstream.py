"""What is taken for a server without JetStream, and where a stream has a single replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StreamConfig

from distributary.errors import StateError
from distributary.machines.nats import JetStreamAwayError, jetstream
from distributary.machines.nats.connection import NatsConnection
from distributary.machines.nats.jetstream import create_replicated, find_jetstream
from tests.topics.nats.test_stand_by import connected

URL = "nats://me:secret@host"
NO_LEADER, NOT_FOR_ACCOUNT, NOT_AT_ALL = 10008, 10039, 10076


def make_error(code: int, status: int = 503) -> Exception:
    """The error that nats-py makes of an answer."""
    try:
        nats.js.errors.APIError.from_error({"code": status, "err_code": code, "description": "x"})
    except nats.js.errors.APIError as error:
        return error
    raise AssertionError("an answer with an error raises one")


@dataclass
class Answers:
    """What JetStream says to one request after the other; at the end, that it is there."""

    errors: list[Exception]
    asked: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def answer(js: JetStreamContext) -> None:
            self.asked += 1
            if self.errors:
                raise self.errors.pop(0)

        monkeypatch.setattr(JetStreamContext, "account_info", answer)
        monkeypatch.setattr(jetstream, "_PAUSE", 0.0)


SUSPENDED = nats.errors.TimeoutError()


@pytest.mark.parametrize(
    "errors",
    [
        [],
        [SUSPENDED] * 3,
        [make_error(NO_LEADER)] * 3,
        [nats.errors.OutboundBufferLimitError(), SUSPENDED],
    ],
)
def test_a_server_that_is_away_for_a_moment_is_asked_again(
    errors: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        assert await find_jetstream(NatsConnection(), URL) is not None

    Answers([*errors]).install(monkeypatch)
    asyncio.run(work())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SUSPENDED, "nothing for some time"),
        (make_error(NO_LEADER), "x"),
        (make_error(10002, 400), "x"),
    ],
)
def test_a_server_that_does_not_say_whether_it_has_jetstream_is_away(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        with pytest.raises(JetStreamAwayError) as raised:
            await find_jetstream(NatsConnection(), URL)
        assert str(raised.value) == (
            f"nats://***@host: JetStream does not answer ({says}); start all servers of the "
            "cluster, or let these credentials publish to $JS.API.>"
        )

    Answers([error] * 10).install(monkeypatch)
    asyncio.run(work())


@pytest.mark.parametrize(
    "error",
    [
        nats.errors.NoRespondersError(),
        nats.js.errors.ServiceUnavailableError(),  # what nats-py makes of it
        make_error(NOT_FOR_ACCOUNT),
        make_error(NOT_AT_ALL),
    ],
)
def test_a_server_that_says_no_has_no_jetstream(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        assert await find_jetstream(NatsConnection(), URL) is None

    answers = Answers([error])
    answers.install(monkeypatch)
    asyncio.run(work())
    assert answers.asked == 1


def test_a_real_server_says_whether_it_has_jetstream() -> None:
    async def work() -> None:
        for has_it in (True, False):
            async with connected(jetstream=has_it) as (nc, _, options):
                assert (await find_jetstream(nc, options.url) is not None) is has_it

    asyncio.run(work())


def test_a_server_of_its_own_keeps_one_replica() -> None:
    async def work() -> None:
        async with connected() as (_, js, _):
            info = await create_replicated(js.add_stream, StreamConfig("s", subjects=["s"]))
            assert info.config.num_replicas == 1

    asyncio.run(work())


@pytest.mark.parametrize(("code", "status"), [(NO_LEADER, 503), (10047, 500), (10058, 400)])
def test_no_other_error_makes_a_single_replica(code: int, status: int) -> None:
    tried = []

    async def create(config: Any) -> None:
        tried.append(config.replicas)
        raise make_error(code, status)

    with pytest.raises(nats.js.errors.APIError) as raised:
        asyncio.run(create_replicated(create, KeyValueConfig("b"), "replicas"))
    assert raised.value.err_code == code
    assert tried == [3]


def test_a_cluster_of_which_too_few_servers_are_there_is_told() -> None:
    async def create(config: Any) -> None:
        raise make_error(10005, 400)

    with pytest.raises(StateError, match=r"JetStream, b: 3 servers .* cannot \(x\); start all"):
        asyncio.run(create_replicated(create, KeyValueConfig("b"), "replicas"))
