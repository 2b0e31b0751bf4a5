"""Addresses of the form HOST:PORT, and which of them stay on this machine."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from distributary.errors import LiveError

__all__ = [
    "AddressError",
    "NetworkAddress",
    "check_encryption",
    "check_local",
    "is_local",
    "parse_address",
    "resolve",
]

HIGHEST_PORT = 65_535


class AddressError(LiveError):
    """The address `where` cannot be used."""

    def __init__(self, where: str, reason: str, remedy: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}; {remedy}")


@dataclass(frozen=True, slots=True)
class NetworkAddress:
    """A host, by name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> NetworkAddress:
    """Parse HOST:PORT or [IPv6]:PORT; anything else is a `ValueError`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is ambiguous: write an IPv6 address as [ADDRESS]:PORT")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= HIGHEST_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to {HIGHEST_PORT}")
    return NetworkAddress(host, int(port))


async def resolve(address: NetworkAddress) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Look up the IP addresses of a host, in the system's order of preference."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise AddressError(
            str(address), f"the host is unknown ({_describe(error)})", "check the name"
        ) from error
    unique = dict.fromkeys((family, (str(at[0]), address.port)) for family, _, _, _, at in found)
    return [*unique]


def check_encryption(
    address: NetworkAddress, hosts: list[str], *, encrypted: bool, insecure: bool
) -> None:
    """Refuse an address outside this machine without TLS, unless that is asked for."""
    if encrypted or insecure or is_local(hosts):
        return
    raise AddressError(
        str(address),
        "is not on this machine, and without TLS others on the network can read and change "
        "everything",
        "give TLS certificates, use a loopback address such as 127.0.0.1, or accept that with "
        "--insecure",
    )


async def check_local(address: NetworkAddress) -> None:
    """Refuse to believe everybody outside this machine: an `AddressError`."""
    if not is_local([host for _, (host, _) in await resolve(address)]):
        raise AddressError(
            str(address),
            "is not on this machine, and anybody on the network could connect under any name",
            "have names proven with --tls-ca or --tokens, or accept that with --insecure",
        )


def is_local(hosts: list[str]) -> bool:
    """Whether all these IP addresses stay on this machine."""
    return all(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _describe(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
