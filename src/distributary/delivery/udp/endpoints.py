"""Resolves the destinations of actions, and sends packets there."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache

from distributary.delivery import SENDER
from distributary.delivery.errors import NetworkError
from distributary.delivery.udp.datagrams import Address, make_writer
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.sockets import Interface, send_through
from distributary.machines.actions import Send

__all__ = ["Outlet", "format_address", "parse_address"]

_SCHEME = "udp://"


def format_address(address: Address) -> str:
    """An address as text, `udp://HOST:PORT`, as the machines keep it."""
    scope = f"%{address[3]}" if len(address) == 4 and address[3] else ""
    host = f"[{address[0]}{scope}]" if ":" in address[0] else address[0]
    return f"{_SCHEME}{host}:{address[1]}"


@lru_cache(maxsize=65_536)
def parse_address(text: str) -> Address | None:
    """Parse the text of `format_address`; returns None for anything else."""
    host, _, port = text.removeprefix(_SCHEME).rpartition(":")
    if not text.startswith(_SCHEME) or not port.isdecimal() or int(port) > 65_535:
        return None
    bare, _, scope = host.strip("[]").partition("%")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        socket.inet_pton(family, bare)
    except OSError:
        return None
    if family == socket.AF_INET:
        return bare, int(port)
    return bare, int(port), 0, int(scope) if scope.isdecimal() else 0


class Outlet:
    """Sends the packets of actions through one socket; those to groups on each of their lines.

    It drops and counts packets that find the socket's buffer full or have no address yet. They are
    lost as on any network, and are repaired or asked for again.
    """

    def __init__(
        self,
        options: NetworkOptions,
        interfaces: Sequence[Interface],
        own: socket.socket,
        sender: str = "",
    ) -> None:
        self._groups = options.groups
        self._interfaces = interfaces
        self._through = interfaces[0]
        self._own = own
        self._sender = sender
        self._writer = make_writer(options.batch, plain=options.plain)
        self._known: dict[str, tuple[Address, ...]] = {}  # addresses of each group, by line
        self._worked = [False] * len(interfaces)  # whether anything was ever sent, by line
        self.unsent = 0

    def send(self, sends: Iterable[Send]) -> None:
        """Send all of them, in order; first what goes by line A and by unicast, then by line B."""
        lines: list[list[tuple[Address, bytes]]] = [[] for _ in self._interfaces]
        for action in sends:
            addresses = self._resolve(action.to)
            self.unsent += not addresses
            for packets, address in zip(lines, addresses, strict=False):
                packets.append((address, action.message))
        for line, packets in enumerate(lines):
            if packets:
                self._write(line, packets)

    def _write(self, line: int, packets: list[tuple[Address, bytes]]) -> None:
        try:
            if self._through != self._interfaces[line]:
                send_through(self._own, self._interfaces[line])
                self._through = self._interfaces[line]
            self.unsent += self._writer.write(self._own, packets)
            self._worked[line] = True
        except OSError as error:
            self.unsent += 1
            if not self._worked[
                line
            ]:  # the first send failed: a wrong setup; later failures may pass
                raise NetworkError(
                    str(packets[0][0][0]),
                    f"cannot be sent to ({error.strerror or error})",
                    "check the route to the groups, or name the interface",
                ) from None

    def _resolve(self, to: str) -> tuple[Address, ...]:
        """The addresses of a group by line, or the one of a node; none if it is not known."""
        if not to.startswith("group "):
            address = parse_address(self._sender if to == SENDER else to)
            return () if address is None else (address,)
        known = self._known.get(to)
        if known is None:
            known = self._known[to] = tuple(
                self._group_address(to, line) for line in range(len(self._interfaces))
            )
        return known

    def _group_address(self, group: str, line: int) -> Address:
        host, port = self._groups.of(group, line), self._groups.port
        return (host, port, 0, self._interfaces[line].index) if ":" in host else (host, port)
