"""Which of several services answers under a prefix: one, and it knows before it says anything.

A service claims its prefix by a request on a subject that services alone listen to, on a connection
that does not hear itself. That nobody else is there to answer is the server's own word, given at
once ("no responders"): only this proves a claim. Otherwise services compare themselves. One that
serves comes before one that was away, and that before one that starts; of two alike the one that
was started later stays. The other ends.
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

_ANSWER_WITHIN = 1.0  # seconds; a service that answers later hangs
_PAUSE = 0.05  # until one that must end is gone


class LeaseState(IntEnum):
    """How a service stands to its prefix; more comes before less."""

    STARTING = 0
    RETURNING = 1  # it served, and its connection was gone since
    SERVING = 2


class _Claim(msgspec.Struct, array_like=True, frozen=True, order=True):
    state: LeaseState
    started: int  # nanoseconds
    service: str


class Lease:
    """One service's right to speak under its prefix."""

    def __init__(self, subjects: Subjects) -> None:
        self.state = LeaseState.STARTING
        self._subjects = subjects
        self._started = time.time_ns()
        self._service = secrets.token_hex(8)
        self._losses = 0

    @property
    def held(self) -> bool:
        """Whether we may speak."""
        return self.state is LeaseState.SERVING

    def lose(self) -> None:
        """Others may have come: prove it anew before anything is said."""
        self._losses += 1
        if self.held:
            self.state = LeaseState.RETURNING

    async def listen(self, nc: Client) -> None:
        """Answer others who claim the prefix."""

        async def hear(message: Msg) -> None:
            claim = _decode(message.data)
            if claim is None or claim.service == self._service:
                return
            if message.reply:
                await nc.publish(message.reply, self._encode())
            if self.held and claim > self._claim():
                self.lose()  # or it is a lie: whoever claims must answer, too

        await nc.subscribe(self._subjects.claim, cb=hear)
        await nc.flush()

    async def announce(self, nc: Client) -> None:
        """Tell others that we serve, should there be any."""
        if self.held:
            with suppress(nats.errors.Error):
                await nc.publish(self._subjects.claim, self._encode())

    async def prove(self, nc: Client) -> bool:
        """Ask who else is there; whether we may speak now. Raises if another comes before us."""
        losses = self._losses
        try:
            answer = await nc.request(self._subjects.claim, self._encode(), timeout=_ANSWER_WITHIN)
        except nats.errors.NoRespondersError:
            if losses == self._losses:
                self.state = LeaseState.SERVING
            return self.held
        except (TimeoutError, nats.errors.OutboundBufferLimitError):
            if self.state is LeaseState.STARTING and nc.is_connected:
                raise self._defeat() from None  # somebody listens, and hangs
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
