"""What a broker knows of the overlay: which links there are, and so who is behind each neighbour.

Brokers tell each other all links that they know of. A link is agreed by its two ends; each change
of it has a higher number than everything that they knew before, so that all brokers come to know
the same, in whatever order they hear it. A link that would close a cycle is refused. If two links
come up at once that close one together, all brokers find out the same one to give up: the latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from distributary.content.protocol import LinkFact

__all__ = ["Spanning", "is_plausible", "show_path"]

# Facts of links that exist or existed; more are refused.
MOST_FACTS = 10_000


class Spanning:
    """The links of the overlay as one broker knows them."""

    def __init__(self, name: str, facts: Iterable[LinkFact] = ()) -> None:
        self._name = name
        self._facts: dict[tuple[str, str], LinkFact] = {}
        self._toward: dict[str, str] | None = None
        self.merge(facts)

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def facts(self) -> tuple[LinkFact, ...]:
        """Everything known, sorted."""
        return tuple(sorted(self._facts.values()))

    @property
    def links(self) -> list[tuple[str, str]]:
        """The links that exist, sorted."""
        return sorted(ends for ends, fact in self._facts.items() if fact.exists)

    def merge(self, facts: Iterable[LinkFact]) -> list[LinkFact]:
        """Take over newer facts; returns them."""
        newer = []
        for fact in facts:
            known = self._facts.get((fact.low, fact.high))
            if known is None or (fact.change, not fact.exists) > (known.change, not known.exists):
                self._facts[fact.low, fact.high] = fact
                newer.append(fact)
        if newer:
            self._toward = None
        return newer

    def set_link(self, neighbour: str, *, exists: bool) -> list[LinkFact]:
        """State that there is a link to a neighbour, or no more; returns what is new of it."""
        low, high = sorted((self._name, neighbour))
        known = self._facts.get((low, high))
        if (known is not None and known.exists) == exists:
            return []
        change = 1 + max((fact.change for fact in self._facts.values()), default=0)
        return self.merge([LinkFact(low, high, change, exists)])

    def has_link(self, neighbour: str) -> bool:
        """Whether there is a link to a neighbour."""
        fact = self._facts.get((min(self._name, neighbour), max(self._name, neighbour)))
        return fact is not None and fact.exists

    def find_detour(self, neighbour: str, facts: Iterable[LinkFact] = ()) -> list[str]:
        """A way to a broker other than a direct link, also over links that it tells of; or []."""
        joined = Spanning(self._name, [*self._facts.values(), *facts])
        direct = (min(self._name, neighbour), max(self._name, neighbour))
        others = [ends for ends in joined.links if ends != direct]
        return _find_path(self._name, neighbour, others)

    def find_surplus(self) -> tuple[tuple[str, str], list[str]] | None:
        """The link to give up because it is in a cycle, and the way between its ends without it.

        Of each cycle the latest link goes, and of several equally late ones the last by name.
        """
        kept: list[tuple[str, str]] = []
        for fact in sorted((f for f in self._facts.values() if f.exists), key=_age):
            if path := _find_path(fact.low, fact.high, kept):
                return (fact.low, fact.high), path
            kept.append((fact.low, fact.high))
        return None

    def direction_of(self, broker: str) -> str | None:
        """The neighbour behind which a broker is; this broker for itself; None if unknown."""
        if self._toward is None:
            self._toward = self._find_directions()
        return self._toward.get(broker)

    def _find_directions(self) -> dict[str, str]:
        around = _neighbours(self.links)
        found = {self._name: self._name}
        queue = deque([self._name])
        while queue:
            at = queue.popleft()
            for each in around.get(at, ()):
                if each not in found:
                    found[each] = each if at == self._name else found[at]
                    queue.append(each)
        return found


def show_path(path: Iterable[str]) -> str:
    """A way between brokers, for people."""
    return " - ".join(path)


def is_plausible(facts: tuple[LinkFact, ...]) -> bool:
    """Whether facts that a peer tells are well-formed and not too many."""
    return len(facts) <= MOST_FACTS and all(
        0 < len(fact.low) <= 200
        and 0 < len(fact.high) <= 200
        and fact.low < fact.high
        and 0 < fact.change < 2**53
        for fact in facts
    )


def _age(fact: LinkFact) -> tuple[int, str, str]:
    return fact.change, fact.low, fact.high


def _neighbours(links: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    around: dict[str, list[str]] = {}
    for low, high in links:
        around.setdefault(low, []).append(high)
        around.setdefault(high, []).append(low)
    return around


def _find_path(start: str, end: str, links: Iterable[tuple[str, str]]) -> list[str]:
    around = _neighbours(links)
    came_from = {start: start}
    queue = deque([start])
    while queue and end not in came_from:
        at = queue.popleft()
        for each in around.get(at, ()):
            if each not in came_from:
                came_from[each] = at
                queue.append(each)
    if end not in came_from:
        return []
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]
