"""Requests of operators and dashboards, and their answers.

Answers are JSON. Those that are long are compressed, which a header says.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from distributary.control.messages import AnswerRequest, Ask, ControlMessage
from distributary.control.nats.layout import Layout
from distributary.control.requests import Answer, Look, LookRequest, OperatorRequest, Refusal
from distributary.control.status import ControlStatus
from distributary.machines.real.log_lines import Log, LogLine
from distributary.machines.real.tasks import own_tasks

__all__ = ["ENCODING", "ZLIB", "Answering"]

ENCODING, ZLIB = "Distributary-Encoding", "zlib"  # a header, and its value

_LONG = 16_384  # bytes
_HEADERS = 512  # bytes of a message for all but its data
_PATIENCE = 1.0  # seconds that a request for the status waits while the machine is held up
_TOO_LONG: Final = "the answer has {:,} bytes, and the NATS server carries {:,}; raise max_payload"

_looks = msgspec.json.Decoder(LookRequest)
_orders = msgspec.json.Decoder(OperatorRequest)


class Answering:
    """Takes requests, and answers them while this service holds the lease.

    `put` hands a request to the machine. While it is held up, such as by a server that cannot
    store, `latest` answers who asks for the status. So it does while nobody can have the lease
    (`is_stuck`), after a while in which another service would have answered.
    """

    def __init__(
        self,
        layout: Layout,
        put: Callable[[ControlMessage], Awaitable[None]],
        latest: Callable[[], ControlStatus | None],
        log: Log,
        *,
        may_answer: Callable[[], bool],
        is_stuck: Callable[[], bool],
    ) -> None:
        self._layout, self._put = layout, put
        self._latest, self._log = latest, log
        self._may_answer, self._is_stuck = may_answer, is_stuck
        self._asked: dict[int, Msg] = {}
        self._tickets = itertools.count()
        self._most = 1 << 20

    async def listen(self, nc: Client, stack: AsyncExitStack) -> None:
        """Take requests until the stack ends."""
        self._most = nc.max_payload - _HEADERS
        self._start = await stack.enter_async_context(own_tasks())
        for subject, hear in (
            (self._layout.look, self._hear_look),
            (self._layout.all_orders, self._hear_order),
        ):
            found = await nc.subscribe(subject, cb=hear)
            stack.push_async_callback(_unsubscribe, found)

    async def answer(self, actions: list[AnswerRequest]) -> None:
        """Answer requests."""
        for action in actions:
            message = self._asked.pop(action.ticket, None)
            if message is not None and self._may_answer():
                await self._respond(message, action.answer)

    async def _hear_look(self, message: Msg) -> None:
        request = await self._read(message, _looks)
        if request is None:
            return
        ticket = next(self._tickets)
        self._asked[ticket] = message
        if isinstance(request, Look):
            self._start(self._answer_late(ticket))
        try:
            async with asyncio.timeout(_PATIENCE):  # others ask, too
                await self._put(Ask(ticket, request))
        except TimeoutError:
            if not isinstance(request, Look):
                del self._asked[ticket]

    async def _hear_order(self, message: Msg) -> None:
        request = await self._read(message, _orders)
        if request is not None:
            request = msgspec.structs.replace(request, by=self._find_operator(message, request.by))
            says = f"{request.by} asks for {request.__struct_config__.tag}"
            self._log(LogLine("info", "request", says, msgspec.to_builtins(request)))
            ticket = next(self._tickets)
            self._asked[ticket] = message
            await self._put(Ask(ticket, request))

    def _find_operator(self, message: Msg, says: str) -> str:
        """Who gives an order: the name that the subject proves, and whom that one speaks for."""
        try:
            proven = self._layout.read_order(message.subject)
        except ValueError:
            proven = "somebody"
        return proven if says in ("", proven) else f"{says} (as {proven})"

    async def _read(self, message: Msg, decoder: msgspec.json.Decoder[Any]) -> Any:
        if not message.reply:
            return None
        try:
            return decoder.decode(message.data)
        except (ValueError, RecursionError) as error:
            says = f"the request cannot be read ({error}); use the version of the control service"
            if self._may_answer():
                await self._respond(message, Refusal(says))
            return None

    async def _answer_late(self, ticket: int) -> None:
        """Answer a request for the status that the machine has not answered."""
        await asyncio.sleep(_PATIENCE)
        latest = self._latest()
        if latest is not None and (self._may_answer() or self._is_stuck()):
            message = self._asked.pop(ticket, None)
            if message is not None:
                await self._respond(message, latest)

    async def _respond(self, message: Msg, answer: Answer) -> None:
        data, headers = msgspec.json.encode(answer), None
        if len(data) > _LONG:
            data, headers = zlib.compress(data, 1), {ENCODING: ZLIB}
        if len(data) > self._most:
            data, headers = _encode_refusal(len(data), self._most), None
        with suppress(nats.errors.Error):
            await message._client.publish(message.reply, data, headers=headers)


def _encode_refusal(size: int, most: int) -> bytes:
    return msgspec.json.encode(Refusal(_TOO_LONG.format(size, most)))


async def _unsubscribe(found: Subscription) -> None:
    with suppress(nats.errors.Error):
        await found.unsubscribe()
