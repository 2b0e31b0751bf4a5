"""Looks at services that are not part of the control plane: topics and content brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from distributary.errors import DistributaryError

if TYPE_CHECKING:
    from distributary.content.tcp import Credentials
    from distributary.machines.nats.options import NatsOptions

__all__ = ["BrokerLook", "Look", "TopicLook", "look_at_all"]


class Look(Protocol):
    """A service that can be asked for its status."""

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        ...

    async def fetch(self) -> Mapping[str, Any]:
        """Its status as plain values."""
        ...


@dataclass(frozen=True, slots=True)
class TopicLook:
    """The topic service behind a NATS server."""

    options: NatsOptions
    prefix: str = "distributary"
    within: float = 3.0

    @property
    def address(self) -> str:
        """The server's address, without secrets."""
        return self.options.address

    async def fetch(self) -> Mapping[str, Any]:
        """Connect, ask and leave: somebody looks at the page, which is rare."""
        from distributary.machines.nats.options import connect_to_server
        from distributary.topics.nats.status import fetch_status
        from distributary.topics.nats.subjects import Subjects

        name = "distributary dashboard"
        async with connect_to_server(self.options, name=name, within=self.within) as client:
            found = await fetch_status(client, Subjects(self.prefix), within=self.within)
        return found.document()


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """A content broker."""

    address: str
    credentials: Credentials
    within: float = 3.0

    async def fetch(self) -> Mapping[str, Any]:
        """Ask the broker for its status."""
        from distributary.content.tcp import fetch_status

        return await fetch_status(self.address, self.credentials, within=self.within)


async def look_at_all(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Ask all of them at once: each has its address, and its status or what went wrong."""
    return list(await asyncio.gather(*map(_look_at, looks)))


async def _look_at(look: Look) -> dict[str, Any]:
    try:
        status = await look.fetch()
    except (DistributaryError, OSError, TimeoutError) as error:
        says = " ".join(str(error).split()) or type(error).__name__
        return {"address": look.address, "status": None, "says": says}
    return {"address": look.address, "status": status, "says": ""}
