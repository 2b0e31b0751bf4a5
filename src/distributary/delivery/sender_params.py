"""The settings of a sender."""

from __future__ import annotations

from dataclasses import dataclass, fields

from distributary.delivery.authentication import TAG_SIZE
from distributary.delivery.wire import HEADER_SIZE, LARGEST_PACKET, MESSAGE_HEADER_SIZE, MOST_RANGES

__all__ = ["SenderParams"]


@dataclass(frozen=True, slots=True)
class SenderParams:
    """Times in seconds, sizes in bytes; a packet's size is that of the UDP payload."""

    packet_size: int = 1_400
    messages_per_packet: int = 8  # h
    max_age: float = 0.001  # a message waits no longer than this for others to fill its packet
    window_packets: int = 16_384  # of each stream
    window_bytes: int = 16 << 20  # of each stream
    journal_packets: int = 4_096  # of the directory's journal that can be repaired
    rate: float = 100e6  # bytes a second, of all that is sent
    burst: float = 256e3
    repair_share: float = 0.5  # of the rate, at most, for repairs
    hold_off: float = (
        0.005  # least time between two repairs of a packet, or two answers to requests
    )
    asker_rate: float = 1_000.0  # packets/s by which each receiver's repair allowance grows
    queue_packets: int = (
        1_024  # closed packets that may wait for the pacing; then `offer` raises `FullError`
    )
    queue_repairs: int = 65_536  # packets that may wait to be retransmitted
    heartbeat_min: float = 0.01  # after the last packet of a stream; the interval doubles each time
    heartbeat_max: float = 1.0
    announce_every: float = 1.0
    announce_soon: float = 0.05  # while the plan changes
    grace: float = 0.5  # from the announcement of a plan until it takes effect
    claim_wait: float = 5.0  # for answers of other publishers that are heard
    proof_wait: float = 0.5  # for the proof that another publisher is alive
    peer_silence: float = 3.0  # without announcements, after which another publisher is gone
    linger: float = 5.0  # how long a stream that has ended is repaired after its last packet

    def __post_init__(self) -> None:
        least = HEADER_SIZE + TAG_SIZE + 16 * MOST_RANGES
        if not max(least, HEADER_SIZE + MESSAGE_HEADER_SIZE) <= self.packet_size <= LARGEST_PACKET:
            raise ValueError(f"a packet has {least} to {LARGEST_PACKET} bytes")
        if self.messages_per_packet > 0xFFFF:
            raise ValueError("a packet has at most 65,535 messages")
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value > 0 or (value == 0 and field.name in ("max_age", "grace", "hold_off"))):
                raise ValueError(f"{field.name} cannot be {value}")
        if self.repair_share > 1 or self.heartbeat_min > self.heartbeat_max:
            raise ValueError("repair_share is at most 1, and heartbeat_min at most heartbeat_max")
