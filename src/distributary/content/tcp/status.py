"""Ask a broker for its statistics and the network as seen from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from distributary.content.errors import BrokerAwayError, BrokerRefusedError
from distributary.content.protocol import AskStatus, Goodbye, Status
from distributary.content.tcp.dialing import CLIENT_LIMITS, Credentials, check_address, make_dialer
from distributary.machines.real import LinkConnection, Links

__all__ = ["fetch_status"]


async def fetch_status(
    broker: str, credentials: Credentials, *, within: float = 10.0
) -> Mapping[str, Any]:
    """Ask the broker at an address for its status; opens no session."""
    await check_address(broker, credentials)
    asking = _Asking()
    dialer = make_dialer(
        broker,
        credentials,
        on_refused=lambda refusal: asking.fail(BrokerRefusedError(broker, refusal.reason)),
        on_trouble=partial(setattr, asking, "trouble"),
    )
    async with Links(asking, CLIENT_LIMITS) as links:
        links.dial(dialer)
        try:
            async with asyncio.timeout(within):
                return await asking.answer
        except TimeoutError:
            raise BrokerAwayError(broker, asking.trouble) from None


class _Asking:
    """Asks on each connection, and takes the first answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.trouble = "it did not answer"

    def fail(self, error: Exception) -> None:
        """End with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)

    async def on_open(self, connection: LinkConnection) -> None:
        """Ask."""
        connection.send([connection.codec.encode(AskStatus())])

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Take the answer."""
        if isinstance(message, Status) and not self.answer.done():
            self.answer.set_result(message.status)
        elif isinstance(message, Goodbye):
            self.fail(BrokerRefusedError(str(connection.peer.name), message.reason))

    def on_close(self, connection: LinkConnection) -> None:
        """Wait for the next connection."""
        self.trouble = connection.reason
