"""How a subscriber chooses between a topic's own channel and the clusters that carry it.

Reference: Milo et al. (2007), section 4. With equal frequencies alpha and the linear prices a
cluster c is the better choice once more than (1 + alpha |c|)/(1 + alpha) of its topics are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from distributary.topics.messages import Quote

__all__ = ["Choice", "best_cluster", "cheapest_cover", "widest_cluster"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether one is on a topic's own channel, and what each topic's own channel costs."""

    is_direct: Callable[[str], bool]
    toll: Callable[[str], float]

    def find_replaced(self, quote: Quote, also: str | None = None) -> list[str]:
        """The topics' own channels that a cluster would make needless (and `also`, if carried)."""
        return [
            found.topic
            for found in quote.topics
            if found.topic == also or self.is_direct(found.topic)
        ]

    def saving(self, quote: Quote, also: str | None = None) -> float:
        """What one saves by the cluster; below 0 it costs more than it replaces."""
        return sum(self.toll(topic) for topic in self.find_replaced(quote, also)) - quote.toll


def widest_cluster(topic: str, clusters: Sequence[Quote], choice: Choice) -> Quote | None:
    """The paper's: look only at the cluster that would replace most, and take it if it pays."""
    widest = max(clusters, key=lambda quote: len(choice.find_replaced(quote, topic)), default=None)
    if widest is None or choice.saving(widest, topic) <= 0:
        return None
    return widest


def best_cluster(topic: str, clusters: Sequence[Quote], choice: Choice) -> Quote | None:
    """The cluster that saves most, if any does."""
    best = max(clusters, key=lambda quote: choice.saving(quote, topic), default=None)
    if best is None or choice.saving(best, topic) <= 0:
        return None
    return best


def cheapest_cover(
    wanted: Set[str], clusters: Sequence[Quote], toll: Callable[[str], float]
) -> tuple[list[Quote], float]:
    """Clusters that together bring what is wanted cheaply, and what that costs with the rest alone.

    They come in the order of what each saves on top of those before; one that the others make
    needless goes again.
    """
    alone, taken = set(wanted), list[Quote]()
    carried = {quote.channel: {found.topic for found in quote.topics} for quote in clusters}

    def worth(quote: Quote, topics: Set[str]) -> float:
        return sum(toll(topic) for topic in sorted(carried[quote.channel] & topics)) - quote.toll

    left = list(clusters)
    while left:
        best = max(left, key=lambda quote: worth(quote, alone))
        if worth(best, alone) <= 0:
            break
        left.remove(best)
        taken.append(best)
        alone -= carried[best.channel]
    for quote in [*taken]:
        others = set().union(*(carried[q.channel] for q in taken if q is not quote))
        if worth(quote, wanted - others) < 0:
            taken.remove(quote)
    alone = set(wanted).difference(*(carried[q.channel] for q in taken))
    return taken, sum(q.toll for q in taken) + sum(toll(topic) for topic in sorted(alone))
