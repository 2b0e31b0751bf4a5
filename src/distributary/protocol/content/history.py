"""What a broker remembers of the publications of its own clients' subscriptions.

From it follows how far an unsubscription should go: up to the broker beyond which enough of what
the subscription let through is wanted by others anyway, the critical broker.

Reference: Chen et al. (2011), sections III-B and IV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from distributary.protocol.content.messages import Name, Prune
from distributary.protocol.content.policies import Pruning

__all__ = ["History", "Seen", "prune_distance"]


class Seen(NamedTuple):
    """Of one publication: its advertisement, and what its header said on arrival."""

    advertisement: Name
    distance: float
    others: int


class History:
    """A sliding window of the publications that matched each subscription."""

    def __init__(self, pruning: Pruning) -> None:
        self._pruning = pruning
        self._seen: dict[Name, deque[Seen]] = {}

    def note(self, subscription: Name, seen: Seen) -> None:
        """One more publication matched."""
        window = self._seen.get(subscription)
        if window is None:
            window = self._seen[subscription] = deque(maxlen=self._pruning.window)
        window.append(seen)

    def prune(self, subscription: Name, links: Mapping[Name, str]) -> Prune | None:
        """How far the unsubscription goes towards each advertisement; None for all the way.

        `links` has the link by which each advertisement came that the subscription meets. With
        few publications of each, a share of 0.9 is all or none of them: those of all
        advertisements behind one link are counted together. One without any history goes all the
        way, lest its branch be never cleaned.
        """
        seen = self._seen.pop(subscription, ())
        if not seen or max(each.others for each in seen) <= self._pruning.few:
            return None
        by_link: dict[str, list[float]] = {}
        for each in seen:
            if each.advertisement in links:
                by_link.setdefault(links[each.advertisement], []).append(each.distance)
        distances = {
            link: prune_distance(found, self._pruning.threshold) for link, found in by_link.items()
        }
        return tuple((name, distances.get(link, inf)) for name, link in links.items())


def prune_distance(distances: Sequence[float], threshold: float) -> float:
    """The least d such that at least the threshold's share of the distances is at most d.

    The brokers 1 to d hops from the subscriber's then remove the subscription, those beyond keep
    it. Without end if too few publications were wanted by anybody else.
    """
    if not distances:
        return inf
    return sorted(distances)[ceil(threshold * len(distances) - 1e-9) - 1]
