"""One direction of a link: what the neighbour must know, and what it has been sent.

A subscription is *needed* if it came from elsewhere and intersects an advertisement from that
neighbour. It is either *sent*, or *hidden* because something sent covers it. A sent subscription
that lets through more than is needed is *loose*: a remnant of a subscription that ended, or a union
of several of which some have ended. It only costs events that nobody behind this broker wants, so
replacing it is deferred and done step by step.

At every moment, in whatever order calls come, each needed subscription is covered by something
sent. Statements must be sent in the order in which they are returned: a replacement precedes the
retraction, so that the neighbour never lacks anything in between either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from distributary.content.messages import (
    EVERYWHERE,
    Name,
    Prune,
    Statement,
    SubscribeStatement,
    UnsubscribeStatement,
)
from distributary.content.policies import Covering
from distributary.matching.covering import CoverIndex
from distributary.model import Box, Filter, Schema, equivalent

__all__ = ["OutLink"]

# A union of more boxes is sent in parts, which bounds the size of a message.
MOST_BOXES = 64
# An unsubscription that the next broker does not forward at once but in its own time.
NO_FURTHER: Prune = ()


class OutLink:
    """The subscriptions sent to one neighbour, and those that they cover."""

    def __init__(self, schema: Schema, policy: Covering, new_name: Callable[[], Name]) -> None:
        self.needed: dict[Name, Filter] = {}
        self.sent: CoverIndex[Name] = CoverIndex(schema)
        self.hidden: CoverIndex[Name] = CoverIndex(schema)
        self.loose: dict[Name, None] = {}
        self._schema = schema
        self._policy = policy
        self._new_name = new_name
        self._at_once: Prune | None = NO_FURTHER if policy.merges else EVERYWHERE
        self._next: dict[Name, list[Name]] = {}  # hidden by a loose one, still to be sent

    def list_sent(self) -> Mapping[Name, Filter]:
        """All subscriptions sent and not retracted."""
        return {name: self.sent[name] for name in self.sent}

    # --- immediate -------------------------------------------------------------------------------

    def need(self, name: Name, filter: Filter) -> list[Statement]:
        """Make sure that the neighbour's subscriptions cover this one from now on."""
        self.needed[name] = filter
        if name in self.sent:
            return self._need_again(name, filter)
        if self._policy.quenches and self.sent.is_covered(filter):
            self.hidden.add(filter, name)
            return []
        return self._announce(name, filter)

    def drop(self, name: Name, prune: Prune | None = EVERYWHERE) -> list[Statement]:
        """End a subscription: send at once what it had hidden, then retract it."""
        filter = self.needed.pop(name)
        if name in self.hidden:
            self.hidden.remove(name)
            self._loosen(filter)
            return []
        if self._policy.merges:
            return self._end_sent(name)
        said = [
            each for root in self._find_roots(name) for each in self._reveal(root, instead_of=name)
        ]
        return [*said, self._retract(name, prune)]

    def preserve(self, name: Name) -> None:
        """End a subscription here but leave it in place at the neighbour for now."""
        filter = self.needed.pop(name)
        if name in self.hidden:
            self.hidden.remove(name)
            self._loosen(filter)
        else:
            self.loose[name] = None

    def adopt(self, told: Mapping[Name, Filter]) -> None:
        """Keep subscriptions that the neighbour holds from a previous incarnation."""
        for name, filter in told.items():
            if name in self.sent:
                continue
            if name in self.hidden:
                self.hidden.remove(name)
            covered = self.sent.find_covered(filter) if self._policy.retracts else []
            if name not in self.needed or (self._policy.retracts and self.sent.is_covered(filter)):
                self.loose[name] = None
            else:
                self.loose.update(dict.fromkeys(covered))
            self.sent.add(filter, name)

    def drop_unmatched(self, still: Callable[[Filter], bool]) -> list[Statement]:
        """Drop the subscriptions that no event of the neighbour can match any more."""
        gone = [name for name, filter in self.needed.items() if not still(filter)]
        said = [each for name in gone for each in self.drop(name, NO_FURTHER)]
        left = [name for name in self.sent if name not in self.needed]
        return said + [
            self._retract(name, NO_FURTHER) for name in left if not still(self.sent[name])
        ]

    # --- deferred --------------------------------------------------------------------------------

    def step(self) -> list[Statement]:
        """Do one small step of the deferred work; empty if there is none."""
        while self.loose:
            name = next(iter(self.loose))
            if name in self.needed and not self.sent.is_covered(self.needed[name], but=name):
                del self.loose[name]  # what covered it has ended in the meantime
                continue
            said = self._merge(name) if self._policy.merges else self._sweep(name)
            if said:
                return said
        return []

    def _sweep(self, name: Name) -> list[Statement]:
        """Send one subscription that a remnant hides; retract the remnant if there is none."""
        roots = self._next.pop(name, [])
        while True:
            while roots:
                root = roots.pop()
                if root in self.hidden and not self.sent.is_covered(self.needed[root], but=name):
                    self._next[name] = roots
                    return self._reveal(root, instead_of=name)
            roots = self._find_roots(name)  # more may have been hidden in the meantime
            if not roots:
                return [self._retract(name, NO_FURTHER)]

    def _merge(self, name: Name) -> list[Statement]:
        """Replace a subscription by the union of those it hides, unless both are equivalent."""
        roots = self._find_roots(name)
        filters = [self.needed[root] for root in roots]
        if not roots:
            return [self._retract(name, NO_FURTHER)]
        if len(roots) == 1:
            return [*self._reveal(roots[0], instead_of=name), self._retract(name, NO_FURTHER)]
        parts = [Filter.of(boxes, self._schema) for boxes in _split_boxes(filters)]
        if len(parts) == 1 and equivalent(parts[0], self.sent[name]):
            del self.loose[name]
            return []
        unions = [(self._new_name(), part) for part in parts]
        said = [each for union in unions for each in self._announce(*union, True, instead_of=name)]
        return [*said, self._retract(name, NO_FURTHER)]

    # --- parts -----------------------------------------------------------------------------------

    def _need_again(self, name: Name, filter: Filter) -> list[Statement]:
        """Reuse a subscription that is still sent; retract what it covers."""
        self.loose.pop(name, None)
        self._next.pop(name, None)
        if not self._policy.retracts:
            return []
        if self.sent.is_covered(filter, but=name):
            return [self._retract(name, self._at_once)]
        covered = self.sent.find_covered(filter)
        return [self._retract(other, self._at_once) for other in covered if other != name]

    def _end_sent(self, name: Name) -> list[Statement]:
        """End a sent subscription under merging: it stays, loose, while it hides something."""
        if self.hidden.find_covered(self.sent[name]):
            self.loose[name] = None
            return []
        return [self._retract(name, NO_FURTHER)]

    def _loosen(self, gone: Filter) -> None:
        """Mark unions that hid an ended subscription as loose."""
        if self._policy.merges:
            for name in self.sent.find_covers(gone):
                if name not in self.needed:
                    self.loose[name] = None

    def _find_roots(self, name: Name) -> list[Name]:
        """The widest of the subscriptions that only this one hides, in order of arrival."""
        freed = [
            hidden
            for hidden in self.hidden.find_covered(self.sent[name])
            if not self.sent.is_covered(self.needed[hidden], but=name)
        ]
        return self._keep_widest(freed) if len(freed) > 1 else freed

    def _keep_widest(self, names: list[Name]) -> list[Name]:
        """Drop each subscription that a remaining one covers; of equal ones, one stays."""
        index: CoverIndex[Name] = CoverIndex(self._schema)
        for name in names:
            index.add(self.needed[name], name)
        for name in reversed(names):
            if index.is_covered(self.needed[name], but=name):
                index.remove(name)
        return list(index)

    def _reveal(self, name: Name, instead_of: Name) -> list[Statement]:
        self.hidden.remove(name)
        return self._announce(name, self.needed[name], True, instead_of=instead_of)

    def _announce(
        self,
        name: Name,
        filter: Filter,
        triggered: bool = False,
        *,
        instead_of: Name | None = None,
    ) -> list[Statement]:
        """Send a subscription, then retract what it covers."""
        covered = self.sent.find_covered(filter) if self._policy.retracts else []
        self.sent.add(filter, name)
        said: list[Statement] = [SubscribeStatement(name, filter, triggered)]
        return said + [
            self._retract(other, self._at_once) for other in covered if other != instead_of
        ]

    def _retract(self, name: Name, prune: Prune | None) -> Statement:
        """Retract a subscription; it becomes hidden if it is still needed."""
        filter = self.sent.remove(name)
        self.loose.pop(name, None)
        self._next.pop(name, None)
        if name in self.needed:
            self.hidden.add(filter, name)
        return UnsubscribeStatement(name, prune)


def _split_boxes(filters: Iterable[Filter]) -> Iterator[tuple[Box, ...]]:
    """Sorted boxes, so that similar ones are together, in parts of at most `MOST_BOXES`."""
    boxes = sorted({box for filter in filters for box in filter.boxes}, key=Box.order)
    for first in range(0, len(boxes), MOST_BOXES):
        yield tuple(boxes[first : first + MOST_BOXES])
