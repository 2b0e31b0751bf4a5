"""The settings of a receiver."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["ReceiverParams"]


@dataclass(frozen=True, slots=True)
class ReceiverParams:
    """Times in seconds."""

    back_off: float = 0.01  # the longest wait before asking for what is missing
    receivers: float = 10.0  # about how many may miss the same packet
    repair_wait: float = 0.02  # for an answer; longer after some times in vain
    longest_wait: float = 0.5
    tries: int = 16
    naks: float = 1_000.0  # a second
    nak_burst: float = 50.0
    held_packets: int = 16_384  # that may wait for what is missing before them
    held_bytes: int = 32 << 20
    missing_ranges: int = 1_024  # of one session
    ask_every: float = 0.1  # for the plan, at first; each time twice as long
    ask_longest: float = 2.0
    prove_every: float = 0.04  # a sender in doubt is asked whether it is alive, at most
    gone_after: float = 0.5  # of questions without an answer: another sender may take its place
    history: bool = False  # ask for all that the sender has of the time before joining

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "history" and not value > 0:
                raise ValueError(f"{field.name} cannot be {value}")
        if self.receivers < 1:
            raise ValueError("there is at least one receiver")
