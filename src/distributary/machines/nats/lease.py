"""The right to serve, kept in a key-value bucket: one service has it, others stand by.

The key's value names the service that holds the lease. It renews the lease by writing the key
anew, each time naming the revision that it wrote before, so that no two services can write after
the same one. Who stands by takes the lease once the revision has stayed the same for `LASTS`
seconds by its own clock while the server answered, or at once if the holder gave the lease back.
The holder stops sending `GIVES_UP` seconds after its last renewal, which is earlier.

A service that has a folder for itself alone need not wait for the process that it follows there.

The lease decides who may try. What makes it safe is the state, which must accept no write of a
service once its successor has written.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig
from nats.js.kv import KeyValue

from distributary.errors import LiveError, StateError
from distributary.machines.nats.jetstream import AWAY, ask_again, create_replicated

__all__ = ["GIVES_UP", "LASTS", "KeptLease", "count_seconds"]

RENEW_EVERY, GIVES_UP, LASTS = 1.0, 3.0, 4.0  # seconds
_LOOK_EVERY, _SOON = 0.5, 0.1  # seconds
_KEY = "service"


def count_seconds() -> float:
    """A clock that goes on while this machine sleeps, where there is one: others do not wait."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _Holder(NamedTuple):
    """The revision of the key, and whose it is; nobody's without a service."""

    revision: int
    service: str = ""
    where: str = ""
    place: str = ""


class KeptLease:
    """One service's lease, or its place in the line.

    `bucket` is the name of the key-value bucket, and `replaced` makes the error for a service that
    another one has replaced. `place` names what the process has locked for itself, such as a
    folder: a holder with the same place is dead.
    """

    def __init__(
        self,
        js: JetStreamContext,
        bucket: str,
        replaced: Callable[[], LiveError],
        *,
        place: str = "",
        clock: Callable[[], float] = count_seconds,
    ) -> None:
        self.holder = ""  # where the service runs that has it, as far as we know
        self._js = js
        self._bucket = bucket
        self._make_replaced = replaced
        self._place = self._given_place = place
        self._clock = clock
        self._kv: KeyValue
        self._name = secrets.token_hex(8)
        self._renewals = 0
        self._revision = 0  # of our last write
        self._held_until = 0.0

    @property
    def held(self) -> bool:
        """Whether this service may send."""
        return self._clock() < self._held_until

    async def open(self) -> None:
        """Find the bucket, or create it; asks again while JetStream is away."""
        try:
            self._kv = await ask_again(self._find_or_create)
        except AWAY:
            raise
        except nats.js.errors.APIError as error:
            raise StateError(
                f"JetStream, {self._bucket}",
                f"it cannot be created ({error.description or error})",
                "give JetStream more room, or these credentials more rights",
            ) from error

    async def _find_or_create(self) -> KeyValue:
        try:
            return await self._js.key_value(self._bucket)
        except nats.js.errors.NotFoundError:
            config = KeyValueConfig(self._bucket, "Which service serves.", history=1)
            return await create_replicated(self._create, config, "replicas")

    async def _create(self, config: KeyValueConfig) -> KeyValue:
        return await self._js.create_key_value(config)

    async def take(
        self,
        stopping: Callable[[], bool],
        on_holder: Callable[[str], None] = lambda who: None,
        on_refused: Callable[[str], None] = lambda why: None,
    ) -> bool:
        """Stand by until the lease is ours; returns False if told to stop before.

        `on_holder` is called with where the holder runs, at first and when that changes, and
        `on_refused` once if the server, which is there, does not store that the lease is ours.
        """
        seen, since, is_refused = -1, 0.0, False
        while not stopping():
            is_free = False
            try:
                found, now = await self._look(), self._clock()
                if found.revision != seen:
                    seen, since = found.revision, now
                is_free = not found.service or now - since > LASTS or self._is_ours(found)
                if is_free and await self._write(found.revision):
                    self._place = ""  # whoever takes it from us is alive
                    return True
                if not is_free and found.where != self.holder:
                    self.holder = found.where
                    on_holder(found.where)
            except (*AWAY, nats.js.errors.ServerError) as error:
                seen = -1  # the holder gets its whole time again once the server is back
                if is_free and not is_refused:
                    is_refused = True
                    on_refused(getattr(error, "description", None) or str(error))
            await asyncio.sleep(_LOOK_EVERY)
        return False

    async def announce(self, nc: Client) -> None:
        """Renew the lease if it is time to. Raises an error if another has it."""
        del nc
        if self._clock() >= self._held_until - GIVES_UP + RENEW_EVERY:
            await self._renew()

    async def prove(self, nc: Client) -> bool:
        """Renew the lease; returns whether this service may send."""
        del nc
        await self._renew()
        if not self.held:
            await asyncio.sleep(_SOON)
        return self.held

    async def _renew(self) -> None:
        with suppress(*AWAY, nats.js.errors.ServerError):  # such as for lack of room
            if await self._write(self._revision):
                return
            found = await self._look()
            if found.service != self._name:
                self.lose()
                raise self._make_replaced()
            self._revision = found.revision  # a write whose answer was lost

    def lose(self) -> None:
        """Send nothing more until the lease is renewed."""
        self._held_until = 0.0

    async def give_back(self) -> None:
        """Let the next service begin at once."""
        held, self._held_until = self.held, 0.0
        if held:
            with suppress(*AWAY, nats.js.errors.APIError):
                await self._kv.delete(_KEY, last=self._revision)

    async def _look(self) -> _Holder:
        try:
            found = await self._kv.get(_KEY)
        except nats.js.errors.KeyNotFoundError as error:
            entry = error.entry
            return _Holder((entry.revision or 0) if entry else 0)
        return _Holder(found.revision or 0, *_read(found.value))

    def _is_ours(self, found: _Holder) -> bool:
        """Whether we have it still, or a dead process whose place we have locked since."""
        if found.service == self._name:
            return True
        return bool(self._place) and found.place == self._place

    async def _write(self, last: int) -> bool:
        """Write the key after this revision; returns False if somebody else has written."""
        began = self._clock()
        self._renewals += 1
        value = json.dumps(
            {
                "service": self._name,
                "renewals": self._renewals,
                "host": socket.gethostname(),
                "process": os.getpid(),
                "place": self._given_place,
            }
        )
        try:
            self._revision = await self._kv.update(_KEY, value.encode(), last=last)
        except nats.js.errors.KeyWrongLastSequenceError:
            return False
        self._held_until = began + GIVES_UP
        return True


def _read(value: bytes | None) -> tuple[str, str, str]:
    """Which service wrote this, where it runs, and the place that it has locked."""
    try:
        found = json.loads(value or b"")
        where = f"process {found['process']} on {found['host']}"
        return str(found["service"]), where, str(found["place"])
    except (ValueError, TypeError, KeyError):
        return "unknown", "an unknown process", ""
