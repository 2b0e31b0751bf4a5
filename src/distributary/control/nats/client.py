"""Asks a control plane for what there is to see, and operates it."""

from __future__ import annotations

import asyncio
import getpass
import math
import zlib
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client

from distributary.control import requests as r
from distributary.control.errors import ControlAwayError, ControlDeniedError, ControlRefusedError
from distributary.control.nats.answering import ENCODING, ZLIB
from distributary.control.nats.layout import Layout
from distributary.control.status import (
    AuditEntry,
    ControlStatus,
    FlowPath,
    HistoryPoint,
    PlanView,
    ReceiverView,
)
from distributary.errors import LiveError
from distributary.machines.nats.options import NatsOptions, connect_to_server

__all__ = ["ControlClient"]

T = TypeVar("T")

_CONNECT_WITHIN = 5.0  # seconds
_FIRST_ATTEMPT = 2.0  # seconds to wait for the answer to a look
_PAUSE = 0.1  # seconds before another attempt, while no service answers
_REFUSED = b'{"type":"refused"'  # how a refusal begins
_VIOLATION = "permissions violation"  # in an error of the server


class ControlClient:
    """A connection to a control plane; use it as `async with`.

    Each call is answered within `within` seconds, or raises `ControlAwayError`. It raises
    `ControlRefusedError` if the service says no, and `ControlDeniedError` if the server does not
    let these credentials ask. A call may be cancelled; an order may take effect all the same.
    `by` is who gives an order, by default the user of this machine; where the server knows users,
    the log of changes has the user's name, too.
    """

    def __init__(
        self, options: NatsOptions, prefix: str = "distributary", *, within: float = 10.0
    ) -> None:
        self._options, self._layout, self._within = options, Layout(prefix), within
        self._stack = AsyncExitStack()
        self._nc: Client
        self._asked: set[str] = set()  # subjects of requests
        self._violations: set[str] = set()  # those that the server does not let us use
        self._violated = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Connect; raises `ServerAwayError` or `ServerRefusedError` if that is impossible."""
        self._nc = await self._stack.enter_async_context(
            connect_to_server(
                self._options,
                name="distributary control client",
                within=min(self._within, _CONNECT_WITHIN),
                on_error=self._on_error,
            )
        )
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Close the connection."""
        await self._stack.aclose()

    # --- looking ----------------------------------------------------------------------------------

    async def status(self) -> ControlStatus:
        """Everything, now."""
        return await self._look(r.Look(), ControlStatus)

    async def history(self, after: float = 0.0) -> list[HistoryPoint]:
        """The last minutes, oldest first, after a time."""
        return await self._look(r.History(after), list[HistoryPoint])

    async def changes(self, most: int = 100) -> list[AuditEntry]:
        """The log of changes, newest first."""
        return await self._look(r.Changes(most), list[AuditEntry])

    async def plan_view(self) -> PlanView:
        """The plan in force: its groups, with their sessions."""
        return await self._look(r.PlanRequest(), PlanView)

    async def flow(self, name: str) -> FlowPath:
        """Where a flow travels, and who gets it."""
        return await self._look(r.FlowRequest(name), FlowPath)

    async def receiver(self, name: str) -> ReceiverView:
        """One receiver, with its flows and its last minutes."""
        return await self._look(r.ReceiverRequest(name), ReceiverView)

    # --- operating --------------------------------------------------------------------------------

    async def approve(self, number: int, by: str | None = None) -> r.Done:
        """Put a proposal in force."""
        return await self._order(r.Approve(number, _name(by)))

    async def reject(self, number: int, why: str = "", by: str | None = None) -> r.Done:
        """Drop a proposal."""
        return await self._order(r.Reject(number, _name(by), why))

    async def rollback(self, version: int | None = None, by: str | None = None) -> r.Done:
        """Put an earlier version in force again, by default the one before."""
        return await self._order(r.Rollback(version, _name(by)))

    async def pin(self, flow: str, group: int | None, by: str | None = None) -> r.Done:
        """Keep a flow in a group, or let it go again (None)."""
        return await self._order(r.Pin(flow, group, _name(by)))

    async def set_limits(self, text: str, by: str | None = None) -> r.Done:
        """Set the limits of the network: the text of a limits file, or none."""
        return await self._order(r.SetLimits(text, _name(by)))

    async def set_mode(self, mode: str, by: str | None = None) -> r.Done:
        """Let proposals take effect by themselves (`auto`), or wait for approval (`manual`)."""
        return await self._order(r.SetMode(mode, _name(by)))

    # --- asking -----------------------------------------------------------------------------------

    async def _look(self, request: r.LookRequest, kind: type[T]) -> T:
        """Ask, and ask again: whoever was to answer may have died."""
        what = "look at the control plane"
        return await self._ask(self._layout.look, request, kind, what, _FIRST_ATTEMPT)

    async def _order(self, request: r.OperatorRequest) -> r.Done:
        """Order, once: a service that does not answer may have done it."""
        subject = self._layout.order(self._options.user or request.by)
        return await self._ask(subject, request, r.Done, "operate the control plane", math.inf)

    async def _ask(self, subject: str, request: Any, kind: type[T], what: str, attempt: float) -> T:
        """Ask for an answer in `attempt` seconds, and for longer and longer if there is none."""
        data, loop = msgspec.json.encode(request), asyncio.get_running_loop()
        deadline = loop.time() + self._within
        while True:
            left = deadline - loop.time()
            try:
                within = max(min(left, attempt), 0.01)
                return _read_answer(await self._request(subject, data, within), kind)
            except nats.errors.NoRespondersError:
                if left < 2 * _PAUSE:
                    raise self._make_away() from None
                await asyncio.sleep(_PAUSE)
            except _DeniedError:
                raise ControlDeniedError(what) from None
            except (TimeoutError, nats.errors.Error):
                if left < attempt:
                    raise self._make_away() from None
                attempt *= 2

    async def _request(self, subject: str, data: bytes, within: float) -> Any:
        """Request once; raises `_DeniedError` at once if the server refuses to carry it."""
        if subject in self._violations:
            raise _DeniedError
        self._violated.clear()
        self._asked.add(subject)
        asking = asyncio.ensure_future(self._nc.request(subject, data, timeout=within))
        denied = asyncio.ensure_future(self._violated.wait())
        try:
            await asyncio.wait((asking, denied), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and subject in self._violations:
                raise _DeniedError
            return await asking
        finally:
            asking.cancel()
            denied.cancel()

    def _make_away(self) -> ControlAwayError:
        return ControlAwayError(self._layout.prefix, self._within)

    async def _on_error(self, error: Exception) -> None:
        text = str(error).lower()
        if _VIOLATION in text:
            self._violations |= {each for each in self._asked if f'"{each.lower()}"' in text}
            self._violated.set()


class _DeniedError(Exception):
    """The server does not let these credentials publish the request."""


def _read_answer(message: Any, kind: type[T]) -> T:
    data = message.data
    try:
        if (message.headers or {}).get(ENCODING) == ZLIB:
            data = zlib.decompress(data)
        if data.startswith(_REFUSED):
            raise ControlRefusedError(msgspec.json.decode(data, type=r.Refusal).says)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, zlib.error, RecursionError):
        raise LiveError(
            "the answer is not from a control service of this version; check who else uses the "
            "prefix, or use the version that runs there"
        ) from None


def _name(by: str | None) -> str:
    """Who asks: by default the user of this machine."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "operator"
