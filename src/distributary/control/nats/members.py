"""The control plane as its publishers and receivers see it.

`Publisher(control=Control("nats://HOST"), ...)` and `Receiver(control=..., ...)` join it. Each
member has a connection of its own, with its own credentials, and survives whatever happens to it:
versions, records and reports are caught up with after a reconnection.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.kv import KeyValue

from distributary.control.errors import ControlAwayError, ServerAwayError
from distributary.control.nats.layout import SETTINGS, Layout, MemberRole
from distributary.control.nats.member_seats import MemberLink, PublisherPlace, ReceiverPlace
from distributary.control.nats.version_watch import VersionWatch
from distributary.control.reporting import PublisherReporter, ReceiverReporter
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.control.settings import ControlSettings, NetworkSettings
from distributary.control.tally import TallyLimits
from distributary.delivery.addresses import GroupAddresses
from distributary.delivery.udp.control import OnFault
from distributary.delivery.udp.network import NetworkOptions
from distributary.machines.nats.jetstream import AWAY
from distributary.machines.nats.options import NatsOptions, connect_to_server, find_server

__all__ = ["Control"]

_LOOK_EVERY = 0.1  # seconds between two attempts to find the control plane
_TROUBLE = (*AWAY, nats.js.errors.APIError, nats.errors.Error)


class Control:
    """A control plane: a NATS URL, the state folder of an embedded one, or `NatsOptions`.

    `interface` is the network interface of members that name none themselves. The control plane
    must be found `within` so many seconds; a member that loses it later goes on by its plan.
    """

    def __init__(
        self,
        server: str | os.PathLike[str] | NatsOptions,
        prefix: str = "distributary",
        interface: str = "",
        *,
        within: float = 10.0,
    ) -> None:
        self._server = server
        self._layout = Layout(prefix)
        self._interface = interface
        self._within = within

    def __repr__(self) -> str:
        where = self._server.address if isinstance(self._server, NatsOptions) else self._server
        return f"Control({os.fspath(where)!r})"

    @asynccontextmanager
    async def seat_publisher(
        self, name: str, flows: tuple[str, ...] | None, on_fault: OnFault
    ) -> AsyncIterator[PublisherPlace]:
        """Join as a publisher until the block ends; see `delivery.udp.control`."""
        incarnation, where = secrets.token_hex(8), _say_where()
        record = PublisherRecord(incarnation, where, time.time(), flows)
        async with AsyncExitStack() as stack:
            link = await self._join(stack, "publisher", name, on_fault)
            watch = VersionWatch(link.nc, self._layout, on_fault)
            reporter = PublisherReporter(incarnation, _limit_tally(link.nc.max_payload))
            await link.open(lambda: record, reporter, watch, within=self._within)
            first = await watch.find_first()
            await link.serve(stack)
            yield PublisherPlace(link.network, first, watch, reporter, link)

    @asynccontextmanager
    async def seat_receiver(
        self, name: str, flows: tuple[str, ...], on_fault: OnFault
    ) -> AsyncIterator[ReceiverPlace]:
        """Join as a receiver until the block ends; see `delivery.udp.control`."""
        incarnation, where = secrets.token_hex(8), _say_where()
        async with AsyncExitStack() as stack:
            link = await self._join(stack, "receiver", name, on_fault)
            reporter = ReceiverReporter(incarnation)
            wanted = tuple(sorted(set(flows)))
            record = InterestRecord(incarnation, where, time.time(), wanted)
            place = ReceiverPlace(record, reporter, link)
            await link.open(lambda: place.record, reporter, within=self._within)
            await link.serve(stack)
            yield place

    async def _join(
        self, stack: AsyncExitStack, role: MemberRole, name: str, on_fault: OnFault
    ) -> MemberLink:
        """Connect to the server, and find the control plane there."""
        if not name:
            raise ValueError(f"a {role} of a control plane needs a name")
        options = await self._find_server()
        link = MemberLink(self._layout, role, name, options.address, on_fault)
        link.nc = await stack.enter_async_context(
            connect_to_server(
                options,
                name=f"{role}/{name}",
                within=self._within,
                echo=False,
                on_reconnect=link.on_reconnect,
                on_disconnect=link.on_disconnect,
                on_error=link.on_error,
            )
        )
        settings = await self._find_settings(link.nc)
        link.network = _make_network(settings.network, self._interface)
        return link

    async def _find_server(self) -> NatsOptions:
        """The options of the server; waits for a folder of a service that is just starting."""
        server = self._server
        if isinstance(server, NatsOptions):
            return server
        if isinstance(server, str) and "://" in server:
            return NatsOptions(server)
        deadline = time.monotonic() + self._within
        while True:
            try:
                return find_server(Path(server))[0]
            except ServerAwayError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_LOOK_EVERY)

    async def _find_settings(self, nc: Client) -> ControlSettings:
        """The settings, which a service writes when it begins to serve."""
        bucket = self._layout.settings
        js = nc.jetstream(timeout=2.0)
        kv = KeyValue(bucket, f"KV_{bucket}", f"$KV.{bucket}.", js, direct=False)
        deadline = time.monotonic() + self._within
        while True:
            try:
                found = await kv.get(SETTINGS)
                return msgspec.json.decode(found.value or b"", type=ControlSettings)
            except (*_TROUBLE, msgspec.DecodeError):
                if time.monotonic() >= deadline:
                    raise ControlAwayError(self._layout.prefix, self._within) from None
            await asyncio.sleep(_LOOK_EVERY)


def _make_network(settings: NetworkSettings, interface: str) -> NetworkOptions:
    groups = GroupAddresses(settings.group_base, settings.port, settings.pairs, settings.source)
    return NetworkOptions(groups, interface, settings.ttl)


def _limit_tally(max_payload: int) -> TallyLimits:
    """Limits with which a report fits into a message, whatever is in it."""
    usual = TallyLimits()
    return usual._replace(
        counts=min(usual.counts, max_payload // 64),
        name_bytes=min(usual.name_bytes, max_payload // 4),
        longest_name=min(usual.longest_name, max_payload // 8),
    )


def _say_where() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
