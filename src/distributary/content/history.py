"""The recent publications of each subscription of a broker's own clients.

They determine how far an unsubscription travels: up to the critical broker, beyond which enough of
what the subscription lets through is wanted by others anyway.

Reference: Chen et al. (2011), sections III-B and IV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from math import ceil, inf
from typing import NamedTuple

from distributary.content.messages import Name, Prune
from distributary.content.policies import Pruning
from distributary.machines.actions import Save

__all__ = ["History", "Seen", "find_prune_distance"]


class Seen(NamedTuple):
    """A publication's advertisement, the values of its header on arrival, and when it arrived."""

    advertisement: Name
    distance: float
    others: int
    at: float = 0.0


class History:
    """A sliding window of the publications that matched each subscription.

    `now` is the time of the latest statement. What is older than the policy says counts no more;
    it is dropped when the next publication is noted.
    """

    def __init__(self, pruning: Pruning) -> None:
        self.now = 0.0
        self._pruning = pruning
        self._seen: dict[Name, deque[Seen]] = {}
        self._changed: dict[Name, None] | None = None  # since they were saved; None: nobody saves

    def __len__(self) -> int:
        """The number of subscriptions whose windows are not saved as they are."""
        return len(self._changed or ())

    def note(self, subscription: Name, seen: Seen) -> None:
        """Record a publication that matched a subscription."""
        window = self._seen.get(subscription)
        if window is None:
            window = self._seen[subscription] = deque(maxlen=self._pruning.window)
        window.append(seen)
        while window[0].at < seen.at - self._pruning.expires:
            window.popleft()
        if self._changed is not None:
            self._changed[subscription] = None

    def count_entries(self, now: float) -> int:
        """The number of publications remembered, once for each subscription that they matched."""
        oldest = now - self._pruning.expires
        return sum(each.at >= oldest for window in self._seen.values() for each in window)

    def begin_saving(self) -> None:
        """Remember from now on what has to be saved."""
        self._changed = {}

    def save(self, most: int | None = None) -> list[Save]:
        """Save changed windows, all of them or the oldest `most`."""
        changed = self._changed or {}
        names = list(islice(changed, most))
        for name in names:
            del changed[name]
        return [Save(("history", name), tuple(self._seen.get(name, ())) or None) for name in names]

    def restore(self, subscription: Name, seen: Iterable[Seen]) -> None:
        """Restore a window that was saved."""
        self._seen[subscription] = deque(seen, self._pruning.window)

    def forget_others(self, subscriptions: Container[Name]) -> None:
        """Drop the windows of other subscriptions than these."""
        for name in [name for name in self._seen if name not in subscriptions]:
            del self._seen[name]
            if self._changed is not None:
                self._changed[name] = None

    def prune(self, subscription: Name, links: Mapping[Name, str]) -> Prune | None:
        """How far the unsubscription travels towards each advertisement; None for all the way.

        `links` maps each advertisement that the subscription intersects to the link it came from.
        Publications of all advertisements behind a link are pooled: with few publications of each
        advertisement, a threshold of 0.9 would mean all or nothing. A link without history is
        unsubscribed all the way, so that its branch does not stay forever.
        """
        window = self._seen.pop(subscription, ())
        if self._changed is not None:
            self._changed[subscription] = None
        oldest = self.now - self._pruning.expires
        seen = [each for each in window if each.at >= oldest]
        if not seen or max(each.others for each in seen) <= self._pruning.few:
            return None
        by_link: dict[str, list[float]] = {}
        for each in seen:
            if each.advertisement in links:
                by_link.setdefault(links[each.advertisement], []).append(each.distance)
        distances = {
            link: find_prune_distance(found, self._pruning.threshold)
            for link, found in by_link.items()
        }
        return tuple((name, distances.get(link, inf)) for name, link in links.items())


def find_prune_distance(distances: Sequence[float], threshold: float) -> float:
    """The smallest d such that at least a share `threshold` of the distances is at most d.

    The brokers within d hops of the subscriber's remove the subscription, those beyond keep it.
    Infinite if too few publications were wanted by others.
    """
    if not distances:
        return inf
    return sorted(distances)[ceil(threshold * len(distances) - 1e-9) - 1]
