"""What a server's JetStream needs of us: whether it is there, and how many replicas it can keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from distributary.errors import StateError
from distributary.machines.nats.errors import JetStreamAwayError

__all__ = [
    "AWAY",
    "MORE_ROOM",
    "RESTART",
    "WRONG_SEQUENCE",
    "ask_again",
    "create_replicated",
    "find_jetstream",
]

T = TypeVar("T")

_REPLICAS = 3
_ANSWER_WITHIN = 5.0  # seconds
_ASK_TIMES = 4  # a server that was suspended, or has just started, may take longer
_PAUSE = 5.0  # seconds before it is asked again after an answer, such as that there is no leader
# Codes of the server's errors.
_NOT_ENABLED: Final = (10039, 10076)  # for the account, for the server
_NO_REPLICAS: Final = (10074, 10120)  # without a cluster, by the account's limits
_NO_PEERS: Final = 10005
# A write that was to follow another one than the last: in a stream, in a subject.
WRONG_SEQUENCE: Final = (10071, 10164)
# What a request to JetStream raises while the server, or a majority of its cluster, is away.
AWAY: Final = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)

# What to do about a server that stores nothing.
MORE_ROOM: Final = "; give the server's disk, and its limits, more room"
RESTART: Final = (
    ", and restart it if it is a server of your own: after a full disk it does not write again by "
    "itself (an embedded one is restarted)"
)


async def find_jetstream(nc: Client, url: str) -> JetStreamContext | None:
    """The JetStream of the server at `url`; None if it says that there is none for this account.

    Raises `JetStreamAwayError` if that stays unknown, such as in a cluster without a leader: a
    service that kept its state elsewhere then could serve beside another one.
    """
    js = nc.jetstream(timeout=_ANSWER_WITHIN)
    reason = ""
    for attempt in range(_ASK_TIMES):
        if attempt and reason:
            await asyncio.sleep(_PAUSE)
        try:
            await js.account_info()
        except TimeoutError:
            reason = ""
        except nats.errors.Error as error:
            if _has_no_jetstream(error):
                return None
            reason = getattr(error, "description", None) or str(error)
        else:
            return js
    raise JetStreamAwayError(url, reason or str(nc.last_error or "nothing for some time"))


def _has_no_jetstream(error: nats.errors.Error) -> bool:
    """Whether the server says so: it has a code for it, or nobody listens to the request."""
    if isinstance(error, nats.js.errors.APIError):
        no_responders = isinstance(error, nats.js.errors.ServiceUnavailableError)
        return error.err_code in _NOT_ENABLED or (no_responders and error.err_code is None)
    return isinstance(error, nats.errors.NoRespondersError)


async def ask_again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask for something, and again while JetStream is away; raises one of `AWAY` in the end."""
    for _ in range(_ASK_TIMES - 1):
        try:
            return await ask()
        except TimeoutError:
            continue  # that was a pause by itself
        except AWAY:
            await asyncio.sleep(_PAUSE)
    return await ask()


async def create_replicated(
    create: Callable[[Any], Awaitable[T]], config: Any, field: str = "num_replicas"
) -> T:
    """Create a stream or bucket with three replicas, or with one where there never are more.

    Raises `StateError` if a cluster cannot place three now: it would keep a single one for good.
    """
    try:
        return await create(replace(config, **{field: _REPLICAS}))
    except nats.js.errors.APIError as error:
        if error.err_code == _NO_PEERS:
            raise StateError(
                f"JetStream, {_name(config)}",
                f"{_REPLICAS} servers of the cluster must keep it, and cannot "
                f"({error.description})",
                "start all servers, or give them room; or create it with fewer replicas yourself",
            ) from error
        if error.err_code not in _NO_REPLICAS:
            raise
    return await create(replace(config, **{field: 1}))


def _name(config: Any) -> str:
    """The name of a stream or bucket that is to be created."""
    found = getattr(config, "name", None) or getattr(config, "bucket", None)
    return str(found or "a bucket")
