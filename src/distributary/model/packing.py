"""How many messages share a packet, and how many packets a session sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model.interest import FloatArray

__all__ = ["Packing", "packets_per_second"]


@dataclass(frozen=True, slots=True)
class Packing:
    """A packet leaves when it holds `messages_per_packet`, or `delay_s` after its first message."""

    messages_per_packet: float = 8.0
    delay_s: float = 0.001

    def __post_init__(self) -> None:
        if not 1 <= self.messages_per_packet < np.inf:
            raise ValueError(
                "messages_per_packet must be a finite number of at least 1, "
                f"not {self.messages_per_packet}"
            )
        if not 0 <= self.delay_s < np.inf:
            raise ValueError(f"delay_s must be a finite number of at least 0, not {self.delay_s}")

    def packets(self, rate: FloatArray) -> FloatArray:
        """Packets per second of sessions that carry `rate` messages per second."""
        return packets_per_second(rate, self.messages_per_packet, self.delay_s)


def packets_per_second(rate: FloatArray, messages_per_packet: float, delay_s: float) -> FloatArray:
    """Packets per second of sessions that carry `rate` messages per second.

    While the first message of a packet waits, rate x delay more arrive: a slow session sends nearly
    every message by itself, a fast one fills its packets.
    """
    with np.errstate(over="ignore"):  # an infinite filling is above any packet's size
        filling = np.minimum(messages_per_packet, 1 + rate * delay_s)
    packets: FloatArray = np.asarray(rate / filling, np.float64)
    return packets
