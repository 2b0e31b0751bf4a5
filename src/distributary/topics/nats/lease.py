"""Ensures that only one service answers under a prefix.

A service claims its prefix by a request on a subject that only services listen to, on a connection
without echo. If the server replies at once that there are no responders, no other service is
connected: only this reply proves a claim. Otherwise the two services compare their claims. One that
serves wins over one that was disconnected, which wins over one that starts; of two in the same
state the one that started later wins. The loser ends.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from enum import IntEnum

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.errors import LiveError
from distributary.topics.errors import ServiceReplacedError, ServiceRunningError
from distributary.topics.nats.subjects import Subjects

__all__ = ["Lease", "LeaseState"]

_ANSWER_WITHIN = 1.0  # seconds; a service that takes longer counts as hanging
_PAUSE = 0.05  # seconds between two claims while the loser ends


class LeaseState(IntEnum):
    """The state of a service's claim; the higher one wins."""

    STARTING = 0
    RETURNING = 1  # it served before its connection was lost
    SERVING = 2


class _Claim(msgspec.Struct, array_like=True, frozen=True, order=True):
    state: LeaseState
    started: int  # nanoseconds
    service: str


class Lease:
    """One service's claim to its prefix."""

    def __init__(self, subjects: Subjects) -> None:
        self.state = LeaseState.STARTING
        self._subjects = subjects
        self._started = time.time_ns()
        self._service = secrets.token_hex(8)
        self._losses = 0

    @property
    def held(self) -> bool:
        """Whether this service may send."""
        return self.state is LeaseState.SERVING

    def lose(self) -> None:
        """Require a new proof before anything is sent, because another service may have come."""
        self._losses += 1
        if self.held:
            self.state = LeaseState.RETURNING

    async def listen(self, nc: Client) -> None:
        """Answer the claims of other services."""

        async def hear(message: Msg) -> None:
            claim = _decode(message.data)
            if claim is None or claim.service == self._service:
                return
            if message.reply:
                await nc.publish(message.reply, self._encode())
            if self.held and claim > self._claim():
                self.lose()  # a false claim does no harm: its sender must answer the next proof

        await nc.subscribe(self._subjects.claim, cb=hear)
        await nc.flush()

    async def announce(self, nc: Client) -> None:
        """Tell other services that this one serves."""
        if self.held:
            with suppress(nats.errors.Error):
                await nc.publish(self._subjects.claim, self._encode())

    async def prove(self, nc: Client) -> bool:
        """Claim the prefix; returns whether this service may send. Raises if another one wins."""
        losses = self._losses
        try:
            answer = await nc.request(self._subjects.claim, self._encode(), timeout=_ANSWER_WITHIN)
        except nats.errors.NoRespondersError:
            if losses == self._losses:
                self.state = LeaseState.SERVING
            return self.held
        except (TimeoutError, nats.errors.OutboundBufferLimitError):
            if self.state is LeaseState.STARTING and nc.is_connected:
                raise self._defeat() from None  # a service is connected but hangs
            return False
        other = _decode(answer.data)
        if other is not None and other > self._claim():
            raise self._defeat()
        await asyncio.sleep(_PAUSE)
        return False

    def _defeat(self) -> LiveError:
        starting = self.state is LeaseState.STARTING
        error = ServiceRunningError if starting else ServiceReplacedError
        return error(self._subjects.prefix)

    def _claim(self) -> _Claim:
        return _Claim(self.state, self._started, self._service)

    def _encode(self) -> bytes:
        return msgspec.msgpack.encode(self._claim())


def _decode(data: bytes) -> _Claim | None:
    try:
        return msgspec.msgpack.decode(data, type=_Claim)
    except (ValueError, RecursionError):
        return None
