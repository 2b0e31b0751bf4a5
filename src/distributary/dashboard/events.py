"""The stream of events to one browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from distributary.dashboard.answers import refuse
from distributary.dashboard.feed import Feed

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["Events"]

_STUCK_S = 20.0  # a browser that takes nothing for so long is cut off


class Events:
    """Sends every new state of the feed; a slow browser gets fewer of them."""

    def __init__(self, feed: Feed, most: int) -> None:
        self._feed = feed
        self._most = most

    async def stream(self, request: Request) -> Response:
        """Answer with events until the browser leaves."""
        del request
        if self._feed.watchers >= self._most:
            says = f"{self._most} browsers watch already; close one"
            answer: Response = refuse(says, 503)
            answer.headers["Retry-After"] = "10"
            return answer
        return _EventStream(self._write())

    async def _write(self) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        async for snapshot in self._feed.watch():
            yield b"id: %d\ndata: %b\n\n" % (snapshot.number, snapshot.encoded)


class _EventStream(StreamingResponse):
    """Gives up when the browser takes nothing any more."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self.headers["X-Accel-Buffering"] = "no"  # for a proxy in front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(_STUCK_S):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except* (TimeoutError, OSError):
            pass  # it is gone, or as good as gone
