"""What a server's JetStream needs of us: whether it is there, and how many replicas it can keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

__all__ = ["AWAY", "create_replicated", "find_jetstream"]

T = TypeVar("T")

_REPLICAS = 3
_ANSWER_WITHIN = 5.0  # seconds
_ASK_TIMES = 4  # a server that was suspended, or has just started, may take longer
# What a request to JetStream raises while the server, or a majority of its cluster, is away.
AWAY: Final = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)


async def find_jetstream(nc: Client) -> JetStreamContext | None:
    """The JetStream of the server, if it has one that these credentials may use."""
    js = nc.jetstream(timeout=_ANSWER_WITHIN)
    for _ in range(_ASK_TIMES):
        try:
            await js.account_info()
        except TimeoutError:
            continue
        except (nats.errors.Error, nats.js.errors.Error):
            return None
        return js
    return None


async def create_replicated(
    create: Callable[[Any], Awaitable[T]], config: Any, field: str = "num_replicas"
) -> T:
    """Create a stream or bucket with three replicas, or with one where three cannot be."""
    try:
        return await create(replace(config, **{field: _REPLICAS}))
    except nats.js.errors.APIError:
        return await create(replace(config, **{field: 1}))
