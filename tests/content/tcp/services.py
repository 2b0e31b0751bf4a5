"""Broker services inside the test's own process, and certificates for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import trustme

from distributary.content.tcp.service import BrokerLink, BrokerService, BrokerSettings
from distributary.machines.real import NetworkAddress, TlsFiles
from distributary.model import Attribute, AttributeKind, Schema

LOCAL = NetworkAddress("127.0.0.1", 0)
LONG = 60.0
SCHEMA = Schema((Attribute("symbol", AttributeKind.TEXT), Attribute("price", AttributeKind.FLOAT)))


class Running(BrokerService):
    """A service that keeps what it reports."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.lines: list[str] = []
        super().__init__(settings, report=self.lines.append)

    async def until(self, words: str) -> None:
        """Wait until a report has these words."""
        async with asyncio.timeout(LONG):
            while not any(words in line for line in self.lines):
                await asyncio.sleep(0.01)

    def link(self) -> BrokerLink:
        """The link that others have with it."""
        return BrokerLink(self.settings.name, self.address)


@asynccontextmanager
async def serve(
    folder: Path, name: str, *neighbours: Running, **changed: Any
) -> AsyncIterator[Running]:
    """Run a broker that connects to its neighbours, until the block ends."""
    settings = BrokerSettings(
        name,
        LOCAL,
        folder / name,
        SCHEMA,
        links=tuple(each.link() for each in neighbours),
    )
    service = Running(replace(settings, **changed))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        starting = asyncio.create_task(service.started.wait())
        async with asyncio.timeout(LONG):
            await asyncio.wait((running, starting), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if not running.done():
            yield service
            service.stop()


class Authority:
    """An authority of certificates, and the files of those that it vouches for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._ca = trustme.CA()
        self.ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str, unit: str = "somebody") -> TlsFiles:
        """A certificate with that common name and unit, also for hosts."""
        made = self._ca.issue_cert(*hosts, common_name=name, organization_unit_name=unit)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return TlsFiles(certificate, key, self.ca)
