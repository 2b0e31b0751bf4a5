"""Terms of a plan: constraints, and what it may do besides placing each flow in one session."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_SENT", "UnicastLimits"]

MOST_SENT = 1e6  # multiple of sending each flow once


@dataclass(frozen=True, slots=True)
class UnicastLimits:
    """How much may go by unicast: whole flows, and single receivers of a flow in a session.

    A flow reaches at most `max_receivers` of its receivers by unicast. `max_links` limits the
    number of (receiver, flow) pairs, `max_rate` the messages per second that are sent by unicast
    beyond one copy of each flow: a flow with a single receiver adds none, and a flow that also
    travels in a session adds its rate for each receiver by unicast.
    """

    max_receivers: int = 1
    max_links: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        if self.max_receivers < 1:
            raise ValueError(f"max_receivers must be at least 1, not {self.max_receivers}")
        if self.max_links is not None and self.max_links < 0:
            raise ValueError(f"max_links must be at least 0, not {self.max_links}")
        if self.max_rate is not None and not 0 <= self.max_rate < float("inf"):
            raise ValueError(f"max_rate must be a finite number of at least 0, not {self.max_rate}")
