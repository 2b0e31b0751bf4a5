"""One direction of a link: what the neighbour has been told, and what it has to know.

*Needed* is each subscription that came from elsewhere and meets an advertisement from that
neighbour. It is *sent*, or *hidden* because something sent covers it. Whatever is sent and not
needed as it stands is *loose*, if it lets more through than is needed: a remnant of a subscription
that ended, or a union of several of which some ended. It is harmless but for events that nobody
behind this broker wants, so it can wait; it is replaced step by step.

At every moment, and in whatever order calls come, each needed subscription is covered by something
sent. Statements are to be sent in the order in which they are returned: what replaces comes before
what is taken back. So the neighbour, too, never lacks anything in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from distributary.matching.covering import CoverIndex
from distributary.model import Box, Filter, Schema, equivalent
from distributary.protocol.content.messages import (
    EVERYWHERE,
    Name,
    Prune,
    Statement,
    Subscribed,
    Unsubscribed,
)
from distributary.protocol.content.policies import Covering

__all__ = ["OutLink"]

# A union of more boxes is said in parts, so that no message is without bounds.
MOST_BOXES = 64
# An unsubscription that each broker passes on in its own time.
NO_FURTHER: Prune = ()


class OutLink:
    """The subscriptions that one neighbour has been told of, and those that it covers for."""

    def __init__(self, schema: Schema, policy: Covering, new_name: Callable[[], Name]) -> None:
        self.needed: dict[Name, Filter] = {}
        self.sent: CoverIndex[Name] = CoverIndex(schema)
        self.hidden: CoverIndex[Name] = CoverIndex(schema)
        self.loose: dict[Name, None] = {}
        self._schema = schema
        self._policy = policy
        self._new_name = new_name
        self._at_once: Prune | None = NO_FURTHER if policy.merges else EVERYWHERE
        self._next: dict[Name, list[Name]] = {}  # roots found for a loose one, not yet said

    def told(self) -> Mapping[Name, Filter]:
        """Everything sent and not taken back."""
        return {name: self.sent[name] for name in self.sent}

    # --- at once ---------------------------------------------------------------------------------

    def need(self, name: Name, filter: Filter) -> list[Statement]:
        """A subscription has to be known there from now on."""
        self.needed[name] = filter
        if name in self.sent:
            return self._need_again(name, filter)
        if self._policy.quenches and self.sent.is_covered(filter):
            self.hidden.add(filter, name)
            return []
        return self._say(name, filter)

    def drop(self, name: Name, prune: Prune | None = EVERYWHERE) -> list[Statement]:
        """It need not be known any more: say at once what it had hidden, then take it back."""
        filter = self.needed.pop(name)
        if name in self.hidden:
            self.hidden.remove(name)
            self._loosen(filter)
            return []
        if self._policy.merges:
            return self._leave(name)
        said = [each for root in self._roots(name) for each in self._reveal(root, instead_of=name)]
        return [*said, self._retract(name, prune)]

    def preserve(self, name: Name) -> None:
        """It need not be known any more, but it is left there for now."""
        filter = self.needed.pop(name)
        if name in self.hidden:
            self.hidden.remove(name)
            self._loosen(filter)
        else:
            self.loose[name] = None

    def adopt(self, told: Mapping[Name, Filter]) -> None:
        """The neighbour knows these from a former life of this broker: they stay for now."""
        for name, filter in told.items():
            if name in self.sent:
                continue
            if name in self.hidden:
                self.hidden.remove(name)
            covered = self.sent.covered(filter) if self._policy.retracts else []
            if name not in self.needed or (self._policy.retracts and self.sent.is_covered(filter)):
                self.loose[name] = None
            else:
                self.loose.update(dict.fromkeys(covered))
            self.sent.add(filter, name)

    def limit(self, still: Callable[[Filter], bool]) -> list[Statement]:
        """Fewer events come from there: drop what could match none of them any more."""
        gone = [name for name, filter in self.needed.items() if not still(filter)]
        said = [each for name in gone for each in self.drop(name, NO_FURTHER)]
        left = [name for name in self.sent if name not in self.needed]
        return said + [
            self._retract(name, NO_FURTHER) for name in left if not still(self.sent[name])
        ]

    # --- when time allows ------------------------------------------------------------------------

    def step(self) -> list[Statement]:
        """A small part of the work that can wait; nothing if there is none."""
        while self.loose:
            name = next(iter(self.loose))
            if name in self.needed and not self.sent.is_covered(self.needed[name], but=name):
                del self.loose[name]  # what covered it is gone meanwhile
                continue
            said = self._merge(name) if self._policy.merges else self._sweep(name)
            if said:
                return said
        return []

    def _sweep(self, name: Name) -> list[Statement]:
        """Say one of those that a remnant hides; when there is none left take it back."""
        roots = self._next.pop(name, [])
        while True:
            while roots:
                root = roots.pop()
                if root in self.hidden and not self.sent.is_covered(self.needed[root], but=name):
                    self._next[name] = roots
                    return self._reveal(root, instead_of=name)
            roots = self._roots(name)  # more may have been hidden since
            if not roots:
                return [self._retract(name, NO_FURTHER)]

    def _merge(self, name: Name) -> list[Statement]:
        """Say the union of those that it hides, instead of it; or find that they are the same."""
        roots = self._roots(name)
        filters = [self.needed[root] for root in roots]
        if not roots:
            return [self._retract(name, NO_FURTHER)]
        if len(roots) == 1:
            return [*self._reveal(roots[0], instead_of=name), self._retract(name, NO_FURTHER)]
        parts = [Filter.of(boxes, self._schema) for boxes in _parts(filters)]
        if len(parts) == 1 and equivalent(parts[0], self.sent[name]):
            del self.loose[name]
            return []
        unions = [(self._new_name(), part) for part in parts]
        said = [each for union in unions for each in self._say(*union, True, instead_of=name)]
        return [*said, self._retract(name, NO_FURTHER)]

    # --- parts -----------------------------------------------------------------------------------

    def _need_again(self, name: Name, filter: Filter) -> list[Statement]:
        """It is still known there; what was said in its place meanwhile is taken back."""
        self.loose.pop(name, None)
        self._next.pop(name, None)
        if not self._policy.retracts:
            return []
        if self.sent.is_covered(filter, but=name):
            return [self._retract(name, self._at_once)]
        covered = self.sent.covered(filter)
        return [self._retract(other, self._at_once) for other in covered if other != name]

    def _leave(self, name: Name) -> list[Statement]:
        """A subscription that is said ends: only if it hides something does it stay for now."""
        if self.hidden.covered(self.sent[name]):
            self.loose[name] = None
            return []
        return [self._retract(name, NO_FURTHER)]

    def _loosen(self, gone: Filter) -> None:
        """Something hidden has ended: the unions that hid it may be more than is needed."""
        if self._policy.merges:
            for name in self.sent.covering(gone):
                if name not in self.needed:
                    self.loose[name] = None

    def _roots(self, name: Name) -> list[Name]:
        """Of those that nothing but this covers the widest, one of each; in the order they came."""
        freed = [
            hidden
            for hidden in self.hidden.covered(self.sent[name])
            if not self.sent.is_covered(self.needed[hidden], but=name)
        ]
        return self._widest(freed) if len(freed) > 1 else freed

    def _widest(self, names: list[Name]) -> list[Name]:
        """One after the other goes if one that is still there covers it: equal ones never all."""
        index: CoverIndex[Name] = CoverIndex(self._schema)
        for name in names:
            index.add(self.needed[name], name)
        for name in reversed(names):
            if index.is_covered(self.needed[name], but=name):
                index.remove(name)
        return list(index)

    def _reveal(self, name: Name, instead_of: Name) -> list[Statement]:
        self.hidden.remove(name)
        return self._say(name, self.needed[name], True, instead_of=instead_of)

    def _say(
        self,
        name: Name,
        filter: Filter,
        triggered: bool = False,
        *,
        instead_of: Name | None = None,
    ) -> list[Statement]:
        """Send a subscription, then take back what it covers."""
        covered = self.sent.covered(filter) if self._policy.retracts else []
        self.sent.add(filter, name)
        said: list[Statement] = [Subscribed(name, filter, triggered)]
        return said + [
            self._retract(other, self._at_once) for other in covered if other != instead_of
        ]

    def _retract(self, name: Name, prune: Prune | None) -> Statement:
        """Take a subscription back; one that is still needed is hidden from now on."""
        filter = self.sent.remove(name)
        self.loose.pop(name, None)
        self._next.pop(name, None)
        if name in self.needed:
            self.hidden.add(filter, name)
        return Unsubscribed(name, prune)


def _parts(filters: Iterable[Filter]) -> Iterator[tuple[Box, ...]]:
    """Boxes in their order, so that those that are alike come together, no more than so many."""
    boxes = sorted({box for filter in filters for box in filter.boxes}, key=Box.order)
    for first in range(0, len(boxes), MOST_BOXES):
        yield tuple(boxes[first : first + MOST_BOXES])
