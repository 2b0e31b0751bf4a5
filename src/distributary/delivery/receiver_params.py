"""The settings of a receiver."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["ReceiverParams"]


@dataclass(frozen=True, slots=True)
class ReceiverParams:
    """Times in seconds."""

    back_off: float = 0.01  # the longest wait before the first NAK for a gap
    receivers: float = 10.0  # about how many may miss the same packet; shapes the wait
    repair_wait: float = 0.02  # for the repair, before the next NAK; doubles after five NAKs
    longest_wait: float = 0.5  # that `repair_wait` doubles up to
    tries: int = 16  # NAKs before a gap is given up
    naks: float = 1_000.0  # a second
    nak_burst: float = 50.0
    held_packets: int = 16_384  # that may wait behind gaps
    held_bytes: int = 32 << 20
    missing_ranges: int = 1_024  # of one stream
    streams: int = 16_384  # that are followed
    ask_every: float = 0.1  # interval of plan requests; doubles each time
    ask_longest: float = 2.0  # that `ask_every` doubles up to
    prove_every: float = 0.04  # least interval of probes to a sender
    gone_after: float = (
        0.5  # time without a reply to probes, after which a rival replaces the sender
    )
    silent_after: float = 5.0  # without announcements, after which a publisher is probed
    publishers: int = 64  # followed at a time
    line_wait: float = 0.02  # for the other line of a pair, before `back_off`
    line_silence: float = 1.5  # after which nothing waits for that line
    clock_every: float = 60.0  # interval of requests by which the sender's clock is estimated
    history: bool = False  # start at packet 1 of each stream, as far as it can be repaired

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "history" and not value > 0:
                raise ValueError(f"{field.name} cannot be {value}")
        if self.receivers < 1:
            raise ValueError(f"receivers is at least 1, not {self.receivers}")
