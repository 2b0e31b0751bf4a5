"""Resolves the destinations of actions, and sends packets there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

from distributary.delivery import SENDER
from distributary.delivery.errors import NetworkError
from distributary.delivery.udp.datagrams import Address, make_writer
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.sockets import Interface
from distributary.machines.actions import Send

__all__ = ["Outlet", "Wake", "format_address", "parse_address"]

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
    """Sends the packets of actions through one socket.

    It drops and counts packets that find the socket's buffer full or have no address yet. They are
    lost as on any network, and are repaired or asked for again.
    """

    def __init__(
        self, options: NetworkOptions, interface: Interface, own: socket.socket, sender: str = ""
    ) -> None:
        self._groups = options.groups
        self._scope = interface.index
        self._own = own
        self._sender = sender
        self._writer = make_writer(options.batch, plain=options.plain)
        self._known: dict[str, Address] = {}
        self.sent = False  # whether anything was ever sent
        self.unsent = 0

    def send(self, sends: Iterable[Send]) -> None:
        """Send all of them, in order."""
        packets = []
        for action in sends:
            address = self._resolve(action.to)
            if address is None:
                self.unsent += 1
            else:
                packets.append((address, action.message))
        if not packets:
            return
        try:
            self.unsent += self._writer.write(self._own, packets)
            self.sent = True
        except OSError as error:
            self.unsent += 1
            if not self.sent:  # the first send failed: a wrong setup; later failures may pass
                raise NetworkError(
                    str(packets[0][0][0]),
                    f"cannot be sent to ({error.strerror or error})",
                    "check the route to the groups, or name the interface",
                ) from None

    def _resolve(self, to: str) -> Address | None:
        if to.startswith("group "):
            known = self._known.get(to)
            if known is None:
                host, port = self._groups.of(to), self._groups.port
                known = (host, port, 0, self._scope) if ":" in host else (host, port)
                self._known[to] = known
            return known
        if to == SENDER:
            return parse_address(self._sender) if self._sender else None
        return parse_address(to)


class Wake:
    """The timer of a machine, on the running event loop."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float | None) -> None:
        """Set the timer to a time of `time.monotonic`; None stops it."""
        self.stop()
        if at is not None:
            self._handle = self._loop.call_at(at, self._call)

    def stop(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
