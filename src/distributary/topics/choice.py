"""How a subscriber chooses between a topic's own channel and the clusters that carry the topic.

Reference: Milo et al. (2007), section 4. With equal frequencies alpha and linear prices, a cluster
c is the better choice once more than (1 + alpha |c|)/(1 + alpha) of its topics are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass

from distributary.topics.messages import Quote

__all__ = [
    "Choice",
    "Invitations",
    "choose_best_cluster",
    "choose_widest_cluster",
    "find_cheapest_cover",
]

_MOST_INVITATIONS = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """A subscriber's direct subscriptions, and the toll of each topic's own channel."""

    is_direct: Callable[[str], bool]
    toll: Callable[[str], float]

    def find_replaced(self, quote: Quote, also: str | None = None) -> list[str]:
        """The topics whose own channels a cluster would replace; `also` if it is carried."""
        return [
            found.topic
            for found in quote.topics
            if found.topic == also or self.is_direct(found.topic)
        ]

    def estimate_saving(self, quote: Quote, also: str | None = None) -> float:
        """The saving by joining the cluster; negative if it costs more than it replaces."""
        return sum(self.toll(topic) for topic in self.find_replaced(quote, also)) - quote.toll


def choose_widest_cluster(topic: str, clusters: Sequence[Quote], choice: Choice) -> Quote | None:
    """The paper's rule: consider only the cluster that replaces most, and take it if it pays."""
    widest = max(clusters, key=lambda quote: len(choice.find_replaced(quote, topic)), default=None)
    return widest if widest and choice.estimate_saving(widest, topic) > 0 else None


def choose_best_cluster(topic: str, clusters: Sequence[Quote], choice: Choice) -> Quote | None:
    """The cluster that saves most, if any does."""
    best = max(clusters, key=lambda quote: choice.estimate_saving(quote, topic), default=None)
    return best if best and choice.estimate_saving(best, topic) > 0 else None


def find_cheapest_cover(
    wanted: Set[str], clusters: Sequence[Quote], toll: Callable[[str], float]
) -> tuple[list[Quote], float]:
    """A cheap set of clusters that covers the wanted topics, and its cost with the rest direct.

    Greedy: each step adds the cluster that saves most on top of those before; at the end, clusters
    that the others have made unnecessary are removed.
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


class Invitations:
    """The last invitations that were not accepted: several new clusters may pay only together."""

    def __init__(self) -> None:
        self._quotes: dict[str, Quote] = {}

    def add(self, quote: Quote) -> None:
        """Remember an invitation, and forget the oldest one of too many."""
        self._quotes[quote.channel] = quote
        while len(self._quotes) > _MOST_INVITATIONS:
            del self._quotes[next(iter(self._quotes))]

    def drop(self, channel: str) -> None:
        """Forget the invitation to a channel."""
        self._quotes.pop(channel, None)

    def find_cover(
        self,
        wanted: Set[str],
        mine: Sequence[Quote],
        on: Container[str],
        toll: Callable[[str], float],
    ) -> tuple[list[Quote], float]:
        """The cheapest cover by own clusters and those invited to, or by the latter alone."""
        new = [quote for name, quote in self._quotes.items() if name not in on]
        covers = (find_cheapest_cover(wanted, quotes, toll) for quotes in ([*mine, *new], new))
        return min(covers, key=lambda found: found[1])
