"""The plain model of brokers behind real sockets, for tests of the client's shell alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from distributary.content.codec import Codec
from distributary.content.protocol import (
    AskStatus,
    Goodbye,
    Hello,
    OpenSession,
    Refusal,
    Status,
    Welcome,
)
from distributary.machines.real import Admission, LinkConnection, Links, NetworkAddress, Rejection
from distributary.machines.real.tls import Proof
from distributary.model import Schema
from tests.content.plain_brokers import PlainNetwork

CODEC = Codec(Schema(()))
ATTRIBUTES = (("x", "integer"), ("at", "timestamp"))


class PlainService:
    """One broker of the model: requests settle and events arrive at once, unless it `holds`."""

    def __init__(self, network: PlainNetwork, name: str, services: dict[str, PlainService]) -> None:
        self.network, self.broker = network, network.brokers[name]
        self.services = services
        self.holds = False
        self.refuses = ""
        self.token = ""
        self.judged = 0  # handshakes
        self.address = ""
        self.connections: dict[int, LinkConnection] = {}
        self.links = Links(self)
        services[name] = self

    def judge(self, greeting: bytes, proof: Proof) -> Admission | Rejection:
        hello = CODEC.decode(greeting)
        assert isinstance(hello, Hello)
        self.judged += 1
        wrong = "wrong token" if self.token != hello.token else ""
        if reason := self.refuses or wrong:
            return Rejection(reason, CODEC.encode(Refusal(reason, is_final=bool(wrong))))
        welcome = Welcome(self.broker.name, 1, "", 1, ATTRIBUTES)
        return Admission(hello.name, CODEC, 1 << 24, CODEC.encode(welcome))

    async def on_open(self, connection: LinkConnection) -> None:
        self.connections[connection.number] = connection

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        if isinstance(message, AskStatus):
            connection.send([CODEC.encode(Status({"name": self.broker.name}))])
            return
        if isinstance(message, OpenSession):
            for other in [*self.connections.values()]:
                if other is not connection and other.is_open:
                    other.send([CODEC.encode(Goodbye("taken over"))])
                    other.close("taken over")
        self.say(self.network.hear(self.broker, message), connection)
        for service in self.services.values():
            service.go_on()

    def on_close(self, connection: LinkConnection) -> None:
        del self.connections[connection.number]
        session = self.broker.session
        if session is not None and session.ephemeral and not self.connections:
            self.broker.session = None

    def say(self, messages: list[Any], connection: LinkConnection | None = None) -> None:
        for each in [connection] if connection is not None else [*self.connections.values()]:
            each.send([CODEC.encode(message) for message in messages])

    def go_on(self) -> None:
        """Settle what is not settled, and let events arrive."""
        session = self.broker.session
        if session is None or self.holds:
            return
        for key in (
            *(("subscription", each) for each in session.subscriptions),
            *(("advertisement", each) for each in session.advertisements),
        ):
            if key not in session.settled:
                self.say(self.network.settle(self.broker, key))
        while session.coming:
            self.say(self.network.arrive(self.broker))

    def cut_all(self) -> None:
        for each in [*self.connections.values()]:
            each.cut("cut by the test")

    def publish(self, value: int, payload: bytes = b"") -> None:
        self.network.publish(self.broker.name, "pub", value, payload)
        for service in self.services.values():
            service.go_on()


@asynccontextmanager
async def serve_plainly(*names: str) -> AsyncIterator[tuple[PlainService, ...]]:
    """Brokers of one network, each at a port of its own."""
    network = PlainNetwork(np.random.default_rng(0), names)
    services: dict[str, PlainService] = {}
    made = tuple(PlainService(network, name, services) for name in names)
    for service in made:
        await service.links.__aenter__()
        where = await service.links.listen(NetworkAddress("127.0.0.1", 0), service.judge)
        service.address = str(where)
    try:
        yield made
    finally:
        for service in made:
            await service.links.__aexit__(None, None, None)
