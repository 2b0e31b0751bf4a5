"""The control service: stands by, serves when the lease is its own, and stands by again.

It can be stopped, killed and started again anywhere: all that it needs is on the NATS server.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import nats.errors
from nats.aio.client import Client

from distributary.control.errors import ControlReplacedError, NoJetStreamError, ServerAwayError
from distributary.control.nats.layout import Layout
from distributary.control.nats.stand_bys import answer_as_stand_by
from distributary.control.nats.store import MORE_ROOM, REFUSED, RESTART, StoppedError
from distributary.control.nats.stream_process import SparkChoice
from distributary.control.nats.term import Term
from distributary.control.settings import ControlSettings
from distributary.control.status import ControlStatus
from distributary.errors import StateError
from distributary.machines.nats.errors import JetStreamAwayError
from distributary.machines.nats.jetstream import AWAY, find_jetstream
from distributary.machines.nats.lease import KeptLease
from distributary.machines.nats.options import NatsOptions, connect_to_server
from distributary.machines.real import take_lock
from distributary.machines.real.log_lines import Log, LogLine, log_nothing

__all__ = ["ControlService"]

_SOON = 0.05  # seconds
_LOCK, _PLACE = "control.lock", "place"


class ControlService:
    """Runs a control plane until it is told to stop.

    The `folder` is its own; it has the files of the stream, and nothing that must be kept. `run`
    may be cancelled at any time.
    """

    def __init__(
        self,
        options: NatsOptions,
        settings: ControlSettings,
        folder: Path,
        *,
        spark: SparkChoice | None = None,
        log: Log = log_nothing,
    ) -> None:
        self.options = options
        self.settings = settings
        self.standing_by = asyncio.Event()  # at least once
        self.started = asyncio.Event()  # has served at least once
        self._layout = Layout(settings.prefix)
        self._folder, self._spark, self._log = folder, spark or SparkChoice(), log
        self._where = f"process {os.getpid()} on {socket.gethostname()}"
        self._is_stopping = False
        self._nc: Client
        self._lease: KeptLease | None = None
        self._term: Term | None = None  # while it serves

    @property
    def latest(self) -> ControlStatus | None:
        """The status of about a second ago; None while this service does not serve."""
        return None if self._term is None else self._term.latest

    def note_refused(self, name: str) -> None:
        """Note that the server refused somebody with this name, or without any, for the token."""
        who = f"as {name!r}" if name else "without a name"
        says = f"the NATS server let nobody in {who}: wrong name or token"
        self._log(LogLine("warning", "refused", says))
        if self._term is not None:
            self._term.note_refused(who)

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._is_stopping = True
        if self._term is not None:
            self._term.stop()

    async def run(self) -> None:
        """Serve until `stop`, or until the server does not let us in any more."""
        with _lock_folder(self._folder):
            async with connect_to_server(
                self.options,
                name="distributary control",
                on_reconnect=self._on_reconnect,
                on_disconnect=self._on_disconnect,
            ) as self._nc:
                try:
                    await self._serve_in_turn()
                except nats.errors.ConnectionClosedError:
                    raise self._make_away() from None

    async def _serve_in_turn(self) -> None:
        js = await find_jetstream(self._nc, self.options.url)
        if js is None:
            raise NoJetStreamError(self.options.url)
        lease = self._lease = KeptLease(
            js,
            self._layout.lease,
            lambda: ControlReplacedError(self._layout.prefix),
            place=_name_place(self._folder),
        )
        try:
            await lease.open()
        except AWAY as error:
            raise JetStreamAwayError(self.options.url, str(error)) from error
        while not self._is_stopping:
            async with answer_as_stand_by(self._nc, self._layout):
                self.standing_by.set()
                if not await lease.take(
                    lambda: self._is_stopping, self._tell_holder, self._tell_refused
                ):
                    return
            if not await self._serve(lease):
                return

    async def _serve(self, lease: KeptLease) -> bool:
        """Serve until told to stop (False), or until another service has taken over (True)."""
        self._term = Term(
            self._nc,
            lease,
            self.settings,
            self._folder,
            spark=self._spark,
            where=self._where,
            prove=partial(self._prove, lease),
            log=self._log,
            started=self.started,
        )
        if self._is_stopping:
            self._term.stop()
        try:
            await self._term.run()
        except ControlReplacedError:
            says = "another service has taken over; this one stands by"
            self._log(LogLine("warning", "replaced", says))
        except StoppedError:
            return False  # what could not be stored is confirmed to nobody
        finally:
            self._term = None
            await lease.give_back()
        return True

    def _tell_holder(self, holder: str) -> None:
        self._log(LogLine("info", "standing by", f"{holder} serves {self._layout.prefix!r}"))

    def _tell_refused(self, why: str) -> None:
        says = f"JetStream does not store that this service serves ({why}){MORE_ROOM}{RESTART}"
        self._log(LogLine("warning", REFUSED, says))

    async def _prove(self, lease: KeptLease, attempt: int) -> None:
        """Return once this service may write; raises if it never may again.

        `attempt` counts the writes that failed before: they end with the service.
        """
        while True:
            if self._is_stopping and (attempt or not lease.held):
                raise StoppedError
            if lease.held:
                return
            if self._nc.is_closed:
                raise self._make_away()
            if self._nc.is_connected:
                await lease.prove(self._nc)
            else:
                await asyncio.sleep(_SOON)

    def _make_away(self) -> ServerAwayError:
        reason = self._nc.last_error or "the connection is closed for good"
        return ServerAwayError(self.options.url, str(reason))

    async def _on_disconnect(self) -> None:
        if self._lease is None:
            return  # it never was connected
        self._lease.lose()
        if self._is_stopping or self._nc.is_closed:
            return  # by us
        self._log(LogLine("warning", "server away", f"{self.options.address} is connected no more"))
        if self._term is not None:
            self._term.note_connection(is_connected=False)

    async def _on_reconnect(self) -> None:
        self._log(LogLine("info", "server back", f"{self.options.address} is connected again"))
        if self._term is not None:
            self._term.note_connection(is_connected=True)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    lock = take_lock(folder / _LOCK)
    try:
        yield
    finally:
        os.close(lock)


def _name_place(folder: Path) -> str:
    """A name for a folder that is unique, and stays the same."""
    path = folder / _PLACE
    try:
        if not path.exists():
            path.write_text(secrets.token_hex(8))
        return path.read_text()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StateError(str(path), f"cannot be used ({reason})", "remove it") from None
