"""The prices of `cost.packets`, number by number, for compiled loops.

`PacketPrices.numbers` and `FilteringPrices.numbers` have the numbers in the order of the arguments.
"""

from __future__ import annotations

import math

from distributary.compiled import kernel
from distributary.cost.packets import FIRST_HEARTBEAT_S, HEARTBEAT_POWER, HEARTBEAT_SCALE

__all__ = ["count_heartbeats", "count_packets", "count_pauses"]


@kernel
def count_packets(rate: float, messages_per_packet: float, delay_s: float) -> float:
    """Packets per second of a session: what is priced at alpha1 and at beta1."""
    return rate / min(messages_per_packet, 1.0 + rate * delay_s)


@kernel
def count_pauses(packets: float) -> float:
    """How many of a session's packets per second a pause follows."""
    return packets * math.exp(-FIRST_HEARTBEAT_S * packets)


@kernel
def count_heartbeats(pauses: float, heartbeats: float) -> float:
    """Heartbeats per second of a group whose sessions have `pauses` together.

    They are priced at alpha1, like packets. Sums that were updated many times may have come down
    to less than 0, by rounding.
    """
    if heartbeats == 0.0:
        return 0.0
    filled = HEARTBEAT_SCALE * math.pow(FIRST_HEARTBEAT_S * max(pauses, 0.0), HEARTBEAT_POWER)
    return heartbeats + filled / (1.0 + filled / 2.0) / FIRST_HEARTBEAT_S
