"""The groups that a receiver has joined, over as many sockets as needed.

On Linux a socket can join 20 IPv4 groups by default; then another socket is opened. The control
group has a socket of its own, to tell its packets from others. On systems where a socket for
several groups would receive other packets too, each group has its own socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

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
        interface: Interface,
        on_open: Callable[[socket.socket], None],
        on_close: Callable[[socket.socket], object],
    ) -> None:
        self._options = options
        self._interface = interface
        self._on_open = on_open
        self._on_close = on_close
        self._socket_of: dict[str, socket.socket] = {}
        self._shared: list[socket.socket] = []  # those for several groups
        self.sockets: list[socket.socket] = []

    @property
    def count(self) -> int:
        """How many groups are joined."""
        return len(self._socket_of)

    def join(self, group: str) -> None:
        """Receive what is sent to a group."""
        address = self._options.groups.of(group)
        alone = group == CONTROL_GROUP or not can_share()
        for opened in [] if alone else self._shared:
            if join(opened, address, self._interface):
                self._socket_of[group] = opened
                return
        opened = open_group_socket(self._options, self._interface, address if alone else None)
        self.sockets.append(opened)
        if not alone:
            self._shared.append(opened)
        if not join(opened, address, self._interface):
            raise NetworkError(
                address, "the system lets a socket join no group at all", "raise its limits"
            )
        self._socket_of[group] = opened
        self._on_open(opened)

    def leave(self, group: str) -> None:
        """Stop receiving what is sent to a group."""
        opened = self._socket_of.pop(group, None)
        if opened is None:
            return
        leave(opened, self._options.groups.of(group), self._interface)
        if opened not in self._shared:
            self._on_close(opened)
            self.sockets.remove(opened)
            opened.close()

    def is_control(self, opened: socket.socket) -> bool:
        """Whether a socket is the control group's."""
        return self._socket_of.get(CONTROL_GROUP) is opened

    def close(self) -> None:
        """Close all sockets, which leaves all groups."""
        for opened in self.sockets:
            opened.close()
        self._socket_of.clear()
