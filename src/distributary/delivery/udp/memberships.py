"""The groups that a receiver has joined, over as many sockets as needed.

On Linux a socket can join 20 IPv4 groups by default; then another socket is opened. The control
group has a socket of its own, to tell its packets from others. On systems where a socket for
several groups would receive other packets too, each group has its own socket. With pairs both
lines of a group are joined, and no socket has groups of both lines.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from distributary.delivery import CONTROL_GROUP
from distributary.delivery.errors import NetworkError
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.sockets import Interface, can_share, join, leave, open_group_socket

__all__ = ["Memberships"]


class Memberships:
    """Joins and leaves groups by name; calls `on_open` and `on_close` for each socket."""

    def __init__(
        self,
        options: NetworkOptions,
        interfaces: Sequence[Interface],
        on_open: Callable[[socket.socket], None],
        on_close: Callable[[socket.socket], object],
    ) -> None:
        self._options = options
        self._on_open = on_open
        self._on_close = on_close
        self._lines = tuple(enumerate(interfaces))
        self._socket_of: dict[tuple[str, int], socket.socket] = {}  # by group and line
        self._shared: list[list[socket.socket]] = [[] for _ in interfaces]  # for several groups
        self._line_of: dict[socket.socket, int] = {}
        self.sockets: list[socket.socket] = []

    @property
    def count(self) -> int:
        """How many groups are joined; two lines of one count once."""
        return len(self._socket_of) // len(self._lines)

    def join(self, group: str) -> None:
        """Receive what is sent to a group, on all its lines."""
        for line, interface in self._lines:
            self._socket_of[group, line] = self._join_line(group, line, interface)

    def _join_line(self, group: str, line: int, interface: Interface) -> socket.socket:
        address = self._options.groups.of(group, line)
        alone = group == CONTROL_GROUP or not can_share()
        for opened in [] if alone else self._shared[line]:
            if join(opened, address, interface, self._options.groups.source):
                return opened
        opened = open_group_socket(self._options, interface, address if alone else None)
        self.sockets.append(opened)
        self._line_of[opened] = line
        if not alone:
            self._shared[line].append(opened)
        if not join(opened, address, interface, self._options.groups.source):
            raise NetworkError(
                address, "the system lets a socket join no group at all", "raise its limits"
            )
        self._on_open(opened)
        return opened

    def leave(self, group: str) -> None:
        """Stop receiving what is sent to a group."""
        for line, interface in self._lines:
            opened = self._socket_of.pop((group, line), None)
            if opened is None:
                continue
            groups = self._options.groups
            leave(opened, groups.of(group, line), interface, groups.source)
            if opened not in self._shared[line]:
                self._on_close(opened)
                self.sockets.remove(opened)
                del self._line_of[opened]
                opened.close()

    def is_control(self, opened: socket.socket) -> bool:
        """Whether a socket is the control group's."""
        return any(self._socket_of.get((CONTROL_GROUP, line)) is opened for line, _ in self._lines)

    def line_of(self, opened: socket.socket) -> int | None:
        """The line of a socket's groups: 0 for A, 1 for B, None where there is one line."""
        return self._line_of.get(opened) if len(self._lines) > 1 else None

    def close(self) -> None:
        """Close all sockets, which leaves all groups."""
        for opened in self.sockets:
            opened.close()
        self._socket_of.clear()
