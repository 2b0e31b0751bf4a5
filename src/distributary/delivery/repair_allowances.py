"""An allowance of retransmissions for each receiver, so that none can keep a sender busy.

A receiver asks for no more packets than are sent, for all that can be repaired when it joins, and
for some twice because a repair was lost. So its allowance starts at twice what can be repaired, and
grows by one packet with each packet sent, and at a low rate with time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["RepairAllowances"]

_LEAST = 1_024  # packets that may be asked for at once, however few can be repaired
_MOST_ASKERS = 4_096  # that are told apart; the one that was silent for longest is forgotten


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float
    sent: int


class RepairAllowances:
    """The allowances in packets, by the asking address."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._allowances)

    def allow(self, asker: str, sent: int, kept: int, now: float) -> int:
        """How many packets this asker may ask for now.

        `sent` is all packets ever sent, and `kept` how many of them can be repaired at most.
        """
        most = max(_LEAST, 2 * kept)
        found = self._allowances.get(asker)
        if found is None:
            found = self._allowances[asker] = _Allowance(most, now, sent)
            if len(self._allowances) > _MOST_ASKERS:
                self._allowances.popitem(last=False)
        self._allowances.move_to_end(asker)
        gained = (now - found.at) * self._rate + (sent - found.sent)
        found.left = min(most, found.left + gained)
        found.at, found.sent = now, sent
        return int(found.left)

    def spend(self, asker: str, packets: int) -> None:
        """Take the packets that were looked up off the allowance of an asker."""
        self._allowances[asker].left -= packets
