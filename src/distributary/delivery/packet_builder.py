"""Builds the packets of one incarnation of a publisher."""

from __future__ import annotations

from collections.abc import Callable

from distributary.delivery.authentication import Authenticator
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import CONTROL_STREAM, Header, PacketKind

__all__ = ["PacketBuilder"]


class PacketBuilder:
    """Puts publisher, incarnation and time into headers; `wall_clock` returns ns since 1970."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        authenticator: Authenticator,
        wall_clock: Callable[[], int] | None,
    ) -> None:
        self._number = publisher_number(name)
        self._incarnation = incarnation
        self._authenticator = authenticator
        self._wall_clock = wall_clock

    def build(
        self,
        kind: PacketKind,
        body: bytes,
        *,
        count: int = 0,
        stream: OutgoingStream | None = None,
        sequence: int = 0,
    ) -> bytes:
        """A packet of a stream, or of none, with `count` items in its body."""
        header = Header(
            kind,
            0,
            count,
            self._number,
            CONTROL_STREAM if stream is None else stream.number,
            self._incarnation,
            sequence,
            0 if self._wall_clock is None else self._wall_clock(),
        )
        return self._authenticator.encode_packet(header, body)

    def is_of_publisher(self, header: Header) -> bool:
        """Whether a packet names this publisher as its sender, in any incarnation."""
        return header.publisher == self._number

    def is_addressed(self, header: Header) -> bool:
        """Whether a receiver's packet is for this publisher, and this incarnation of it."""
        return (header.publisher, header.incarnation) == (self._number, self._incarnation)
