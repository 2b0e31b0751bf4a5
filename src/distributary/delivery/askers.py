"""How much each asker may have looked up, so that no one asker can keep a sender busy.

A receiver that loses packets asks for no more than is sent, for all that can be repaired when it
joins, and for some again because a repair was lost. So an asker has an allowance: it begins with
twice what can be repaired, and gains one packet with each that is sent, and some with time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Askers"]

_LEAST = 1_024  # packets that may be asked for at once, however few can be repaired
_MOST_ASKERS = 4_096  # that are told apart; the one that was silent for longest is forgotten


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float
    sent: int


class Askers:
    """The allowances, in packets, by the address that asks."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._allowances)

    def allow(self, asker: str, sent: int, kept: int, now: float) -> int:
        """How many packets this one may ask for now.

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
        """So many were looked up for an asker that was just allowed them."""
        self._allowances[asker].left -= packets
