"""Run machines in real time: drivers with timers and tasks, links over TCP, a durable store."""

from distributary.machines.real.addresses import AddressError, NetworkAddress, parse_address
from distributary.machines.real.connection import Codec, ConnectionLimits, FullQueue, LinkConnection
from distributary.machines.real.direct import DirectDriver
from distributary.machines.real.driver import Driver
from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.links import (
    Admission,
    ConnectionStatistics,
    Dialer,
    LinkOwner,
    Links,
    Rejection,
)
from distributary.machines.real.store import Store
from distributary.machines.real.tasks import own_tasks
from distributary.machines.real.timers import Timers
from distributary.machines.real.tls import Proof, TlsError, TlsFiles
from distributary.machines.real.tokens import TokenFileError, Tokens, read_tokens

__all__ = [
    "AddressError",
    "Admission",
    "Codec",
    "ConnectionLimits",
    "ConnectionStatistics",
    "Dialer",
    "DirectDriver",
    "Driver",
    "FullQueue",
    "LinkConnection",
    "LinkOwner",
    "Links",
    "NetworkAddress",
    "Proof",
    "Rejection",
    "Store",
    "Timers",
    "TlsError",
    "TlsFiles",
    "TokenFileError",
    "Tokens",
    "own_tasks",
    "parse_address",
    "read_tokens",
    "take_lock",
]
