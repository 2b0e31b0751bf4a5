"""NATS for shells: connections, an embedded server, JetStream, and a lease for one service."""

from distributary.extras import require

require("live")  # before the imports that need it

from distributary.machines.nats.embedded import EmbeddedServer, run_embedded_server
from distributary.machines.nats.errors import (
    JetStreamAwayError,
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
)
from distributary.machines.nats.lease import KeptLease
from distributary.machines.nats.options import NatsOptions, connect_to_server, find_server

__all__ = [
    "EmbeddedServer",
    "JetStreamAwayError",
    "KeptLease",
    "NatsOptions",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "connect_to_server",
    "find_server",
    "run_embedded_server",
]
