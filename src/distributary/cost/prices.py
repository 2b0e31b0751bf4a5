"""What a message costs a receiver at each of the two filters.

Reference: Y. Tock, N. Naaman, A. Harpaz, G. Gershinsky, "Hierarchical Clustering of Message Flows
in a Multicast Data Dissemination System" (2005), eq. 1-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.model import FloatArray

__all__ = ["DEAREST", "FilteringPrices"]

DEAREST = 1e12  # so that no cost of any demand overflows


@dataclass(frozen=True, slots=True)
class FilteringPrices:
    """`alpha` per message at the session filter, `beta` per message at the flow filter."""

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        for word, price in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= price <= DEAREST:
                raise ValueError(f"{word} must be a number from 0 to {DEAREST:g}, not {price:g}")
            # Kernels are compiled for one type of price.
            object.__setattr__(self, word, float(price))
        if self.alpha + self.beta == 0:
            raise ValueError("alpha and beta cannot both be 0: nothing would cost anything")

    def work(self, received: float, accepted: float) -> float:
        """Cw: what is received passes the session filter, what is accepted the flow filter."""
        return self.alpha * received + self.beta * accepted

    @property
    def numbers(self) -> tuple[float, float, float, float, float, float, float]:
        """The prices as those of `PacketPrices`, for compiled loops."""
        return (self.alpha, 0.0, self.beta, 0.0, 1.0, 0.0, 0.0)

    def session_filter(self, rate: FloatArray) -> FloatArray:
        """What each member of its group pays for a session with this rate."""
        return self.alpha * rate

    def flow_filter(self, rate: FloatArray) -> FloatArray:
        """What each subscriber pays for a session with this rate."""
        return self.beta * rate

    def pauses(self, rate: FloatArray) -> FloatArray:
        """None: heartbeats cost nothing at these prices."""
        return np.zeros_like(rate)

    def heartbeat_price(self, pauses: FloatArray) -> FloatArray:
        """Nothing: heartbeats cost nothing at these prices."""
        return np.zeros_like(pauses)

    def stream(self, rate: FloatArray) -> FloatArray:
        """What a receiver pays for a group with one session, or for what it gets by unicast."""
        return (self.alpha + self.beta) * rate

    @classmethod
    def for_packets(
        cls, messages_per_packet: float, *, alpha0: float, alpha1: float, beta0: float, beta1: float
    ) -> Self:
        """The prices at h messages per packet: alpha0 + alpha1/h, beta0 + beta1/h (eq. 2 and 4)."""
        if not messages_per_packet >= 1:
            raise ValueError(f"a packet holds at least 1 message, not {messages_per_packet}")
        h = messages_per_packet
        return cls(alpha0 + alpha1 / h, beta0 + beta1 / h)
