"""Prices by message and by packet, where a session fills its packets as its own rate lets it.

A packet leaves when it holds h messages, or `delay_s` after its first. A session of rate R thus has
min(h, 1 + R x delay) messages in a packet: about one if it is slow, h if it is fast. Tock's
alpha(h) = alpha0 + alpha1/h and beta(h) = beta0 + beta1/h (eq. 2 and 4) then differ from session to
session; `FilteringPrices`, with one h for all, suits a plan of fast sessions.

The sender also says of a stream that pauses how far it has come, in heartbeats: 10 ms after its
last packet, then at doubling intervals up to 1 s. One heartbeat serves all streams of a group that
are due or soon would be. If p packets leave per second at random times, p x exp(-10 ms x p) of them
are followed by such a pause. The more pauses the sessions of a group have together, the more
heartbeats it sends, up to one in 5 ms. A receiver's unicast stream is a group of its own.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from distributary.cost.prices import DEAREST, FilteringPrices
from distributary.model import Demand, FloatArray, Packing

__all__ = [
    "FIRST_HEARTBEAT_S",
    "HEARTBEAT_POWER",
    "HEARTBEAT_SCALE",
    "PacketPrices",
    "Prices",
    "count_for",
]

FIRST_HEARTBEAT_S = 0.01  # after a stream's last packet: the sender's `heartbeat_min`
# Fitted to what the sender's machine sends in virtual time, for 1 to 40 streams of a group with
# 0.01 to 1,700 packets/s each.
HEARTBEAT_SCALE, HEARTBEAT_POWER = 1.36, 0.76
_PRICES = ("alpha0", "alpha1", "beta0", "beta1")


@dataclass(frozen=True, slots=True)
class PacketPrices:
    """`alpha0` per message and `alpha1` per packet at the session filter, beta at the flow filter.

    `messages_per_packet` (h) and `delay_s` say when a packet leaves. `heartbeats` is how many
    packets per second a group sends whose sessions are idle; with 0, no heartbeat costs anything.
    """

    alpha0: float
    alpha1: float
    beta0: float
    beta1: float
    messages_per_packet: float = 8.0
    delay_s: float = 0.001
    heartbeats: float = 1.0

    def __post_init__(self) -> None:
        for word in (*_PRICES, "heartbeats"):
            price = getattr(self, word)
            if not 0 <= price <= DEAREST:
                raise ValueError(f"{word} must be a number from 0 to {DEAREST:g}, not {price:g}")
            # Kernels are compiled for one type of price.
            object.__setattr__(self, word, float(price))
        if sum(getattr(self, word) for word in _PRICES) == 0:
            raise ValueError("alpha and beta cannot all be 0: nothing would cost anything")
        packing = self.packing
        object.__setattr__(self, "messages_per_packet", float(packing.messages_per_packet))
        object.__setattr__(self, "delay_s", float(packing.delay_s))

    @property
    def packing(self) -> Packing:
        """When a packet leaves."""
        return Packing(self.messages_per_packet, self.delay_s)

    @property
    def alpha(self) -> float:
        """What a message costs at the session filter if every packet is full."""
        return self.linear.alpha

    @property
    def beta(self) -> float:
        """What a message costs at the flow filter if every packet is full."""
        return self.linear.beta

    @property
    def linear(self) -> FilteringPrices:
        """The prices if every packet is full."""
        return FilteringPrices.for_packets(
            self.messages_per_packet,
            alpha0=self.alpha0,
            alpha1=self.alpha1,
            beta0=self.beta0,
            beta1=self.beta1,
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """All seven numbers in the order of the fields, for compiled loops."""
        return astuple(self)

    def session_filter(self, rate: FloatArray) -> FloatArray:
        """What each member of its group pays for a session with this rate, heartbeats aside."""
        return self.alpha0 * rate + self.alpha1 * self.packing.packets(rate)

    def flow_filter(self, rate: FloatArray) -> FloatArray:
        """What each subscriber pays for a session with this rate."""
        return self.beta0 * rate + self.beta1 * self.packing.packets(rate)

    def pauses(self, rate: FloatArray) -> FloatArray:
        """How many packets per second of each session a pause follows."""
        packets = self.packing.packets(rate)
        with np.errstate(under="ignore"):
            pauses: FloatArray = packets * np.exp(-FIRST_HEARTBEAT_S * packets)
        return pauses

    def heartbeat_rate(self, pauses: FloatArray) -> FloatArray:
        """Heartbeats per second of groups, by the pauses of their sessions together."""
        if self.heartbeats == 0:
            return np.zeros_like(pauses)
        filled = HEARTBEAT_SCALE * (FIRST_HEARTBEAT_S * pauses) ** HEARTBEAT_POWER
        heartbeats: FloatArray = self.heartbeats + filled / (1 + filled / 2) / FIRST_HEARTBEAT_S
        return heartbeats

    def heartbeat_price(self, pauses: FloatArray) -> FloatArray:
        """What each member of a group pays for its heartbeats."""
        return self.alpha1 * self.heartbeat_rate(pauses)

    def stream(self, rate: FloatArray) -> FloatArray:
        """What a receiver pays for a group with one session, or for what it gets by unicast."""
        price = self.session_filter(rate) + self.flow_filter(rate)
        return price + np.where(rate > 0, self.heartbeat_price(self.pauses(rate)), 0.0)


Prices = FilteringPrices | PacketPrices


def count_for(demand: Demand, prices: Prices) -> Demand:
    """The demand in the unit of the prices: packets hold messages, whatever the demand counts."""
    return demand.count_in("messages") if isinstance(prices, PacketPrices) else demand
