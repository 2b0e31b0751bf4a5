"""The groups that a receiver has joined, over as many sockets as that takes.

A socket of Linux joins 20 IPv4 groups unless the system is set otherwise; then another is opened.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from distributary.live.multicast.errors import NetworkError
from distributary.live.multicast.network import NetworkOptions
from distributary.live.multicast.sockets import Interface, join, leave, open_group_socket

__all__ = ["Memberships"]


class Memberships:
    """Joins and leaves groups by their names in actions; `on_open` hears of each new socket."""

    def __init__(
        self,
        options: NetworkOptions,
        interface: Interface,
        on_open: Callable[[socket.socket], None],
    ) -> None:
        self._options = options
        self._interface = interface
        self._on_open = on_open
        self._socket_of: dict[str, socket.socket] = {}
        self.sockets: list[socket.socket] = []

    @property
    def count(self) -> int:
        """How many groups are joined."""
        return len(self._socket_of)

    def join(self, group: str) -> None:
        """Receive what is sent to a group."""
        address = self._options.groups.of(group)
        for opened in self.sockets:
            if join(opened, address, self._interface):
                self._socket_of[group] = opened
                return
        opened = open_group_socket(self._options)
        self.sockets.append(opened)
        if not join(opened, address, self._interface):
            raise NetworkError(
                address, "the system lets a socket join no group at all", "raise its limits"
            )
        self._socket_of[group] = opened
        self._on_open(opened)

    def leave(self, group: str) -> None:
        """Receive no more of it."""
        opened = self._socket_of.pop(group, None)
        if opened is not None:
            leave(opened, self._options.groups.of(group), self._interface)

    def close(self) -> None:
        """Close all sockets, which leaves all groups."""
        for opened in self.sockets:
            opened.close()
        self._socket_of.clear()
