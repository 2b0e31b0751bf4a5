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

from collections.abc import Callable, Mapping

from distributary.content.merge_plan import MergePlan
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
from distributary.model import Filter, Schema, equivalent

__all__ = ["OutLink"]

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
        self._plan: MergePlan | None = None  # of the first loose one

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
            self._hide(name, filter)
            return []
        return self._announce(name, filter)

    def drop(self, name: Name, prune: Prune | None = EVERYWHERE) -> list[Statement]:
        """End a subscription: send at once what it had hidden, then retract it."""
        filter = self.needed.pop(name)
        if name in self.hidden:
            self._unhide(name)
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
            self._unhide(name)
            self._loosen(filter)
        else:
            self.loose[name] = None

    def adopt(self, told: Mapping[Name, Filter]) -> None:
        """Keep subscriptions that the neighbour holds from a previous incarnation."""
        for name, filter in told.items():
            if name in self.sent:
                continue
            if name in self.hidden:
                self._unhide(name)
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
        """Do one small step of the deferred work.

        Nothing may come of it although something is loose: then take the next step soon.
        """
        left = self._policy.pacing.compared
        while self.loose and left > 0:
            name = next(iter(self.loose))
            left -= 1
            if name in self.needed and not self.sent.is_covered(self.needed[name], but=name):
                self._tighten(name)  # what covered it has ended in the meantime
                continue
            if not self._policy.merges:
                return self._sweep(name)
            if self._plan is None or self._plan.name != name:
                self._plan = MergePlan(name, self.sent, self.hidden)
            left -= self._plan.prepare(left)
            if self._plan.is_ready and (said := self._merge(self._plan)):
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

    def _merge(self, plan: MergePlan) -> list[Statement]:
        """Send some of the unions that replace a subscription, unless it is equivalent to one."""
        said: list[Statement] = []
        for _ in range(self._policy.pacing.unions):
            is_first = not plan.has_begun
            part = plan.take_part()
            if not part:
                break
            if len(part) == 1:
                said += self._reveal(next(iter(part)), instead_of=plan.name)
                continue
            union = Filter.of((box for each in part.values() for box in each.boxes), self._schema)
            if is_first and plan.is_finished and equivalent(union, self.sent[plan.name]):
                self._tighten(plan.name)
                return []
            said += self._announce(self._new_name(), union, True, instead_of=plan.name)
        if plan.is_finished:
            said.append(self._retract(plan.name, NO_FURTHER))
        return said

    # --- parts -----------------------------------------------------------------------------------

    def _need_again(self, name: Name, filter: Filter) -> list[Statement]:
        """Reuse a subscription that is still sent; retract what it covers."""
        self._tighten(name)
        if not self._policy.retracts:
            return []
        if self.sent.is_covered(filter, but=name):
            said = self._retract(name, self._at_once)
            if self._plan is not None:  # only its subscription may cover these now
                self._plan.note_hidden(self.hidden.find_covered(filter))
            return [said]
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
        self._unhide(name)
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
        self._tighten(name)
        if name in self.needed:
            self._hide(name, filter)
        return UnsubscribeStatement(name, prune)

    def _tighten(self, name: Name) -> None:
        """A subscription is not loose any more."""
        self.loose.pop(name, None)
        self._next.pop(name, None)
        if self._plan is not None and self._plan.name == name:
            self._plan = None

    def _hide(self, name: Name, filter: Filter) -> None:
        self.hidden.add(filter, name)
        if self._plan is not None:
            self._plan.note_hidden([name])

    def _unhide(self, name: Name) -> None:
        filter = self.hidden.remove(name)
        if self._plan is not None:
            self._plan.note_gone(name, filter)
