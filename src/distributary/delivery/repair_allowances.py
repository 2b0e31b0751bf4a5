"""An allowance of retransmissions for each receiver, so that none can keep a sender busy.

An honest receiver requests at most the whole window when it joins, each packet sent later once, and
some packets twice because the repair was lost. So an allowance starts at twice the window, and
grows by one with each packet sent, and slowly with time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["RepairAllowances"]

_LEAST = 1_024  # packets in a full allowance, however small the window is
_MOST_REQUESTERS = 4_096  # the one that was silent for longest is forgotten


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float
    sent: int


class RepairAllowances:
    """The allowances in packets, by the address that sends NAKs."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self.forgotten = 0  # requesters, since there are too many

    def __len__(self) -> int:
        return len(self._allowances)

    def allow(self, requester: str, sent: int, kept: int, now: float) -> int:
        """How many packets this requester may have repaired now.

        `sent` counts all packets ever sent, and `kept` those that can be repaired at most.
        """
        most = max(_LEAST, 2 * kept)
        found = self._allowances.get(requester)
        if found is None:
            found = self._allowances[requester] = _Allowance(most, now, sent)
            if len(self._allowances) > _MOST_REQUESTERS:
                self._allowances.popitem(last=False)
                self.forgotten += 1
        self._allowances.move_to_end(requester)
        gained = (now - found.at) * self._rate + (sent - found.sent)
        found.left = min(most, found.left + gained)
        found.at, found.sent = now, sent
        return int(found.left)

    def spend(self, requester: str, packets: int) -> None:
        """Take packets off the allowance of a requester."""
        self._allowances[requester].left -= packets
