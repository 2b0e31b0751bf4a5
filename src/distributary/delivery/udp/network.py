"""The network settings that publishers and receivers share."""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.delivery.addresses import GroupAddresses

__all__ = ["NetworkOptions"]

JUMBO = 9_216


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """`interface` is the name or IPv4 address of an interface; if empty, the system chooses."""

    groups: GroupAddresses = field(default_factory=GroupAddresses)
    interface: str = ""
    ttl: int = 1  # 0 stays on this machine, 1 on the link
    own_port: int = 0  # of the unicast socket; 0 lets the system choose
    socket_buffer: int = 8 << 20  # bytes requested; the system may allow less
    largest_packet: int = JUMBO  # bytes; a receiver drops what is longer
    batch: int = 64  # packets, or pieces of several, that one system call reads
    plain: bool = False  # one system call for each packet, as on systems without recvmmsg

    def __post_init__(self) -> None:
        if not 0 <= self.ttl <= 255:
            raise ValueError(f"a TTL is a number from 0 to 255, not {self.ttl}")
        if not 0 <= self.own_port < 65_536:
            raise ValueError(f"a port is a number up to 65535, not {self.own_port}")
        if min(self.socket_buffer, self.largest_packet, self.batch) < 1:
            raise ValueError("socket_buffer, largest_packet and batch are at least 1")
