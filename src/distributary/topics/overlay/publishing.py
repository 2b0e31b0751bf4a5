"""Publishing to groups: in order, repeated until the root accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import Accepted, GroupPublication, PublishBatch
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry

__all__ = ["GroupPublisher"]

# A new root recovers the log within this many times the patience.
_ROOT_TIMES = 3


@dataclass(slots=True)
class _Outgoing:
    """What this peer publishes to a group: the batch in flight, and the rest."""

    number: int = 0
    batch: tuple[GroupPublication, ...] = ()
    rest: list[GroupPublication] = field(default_factory=list)
    root: Peer | None = None


class GroupPublisher:
    """The events that one peer publishes, until the root accepts them.

    The first batch is routed to the root; later ones go directly to the root that answered.
    """

    def __init__(self, pastry: Pastry, parameters: OverlayParameters, effects: Effects) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._outgoing: dict[int, _Outgoing] = {}

    def last_accepted(self, group: int) -> int:
        """The number of this peer's last event in a group that the root accepted."""
        outgoing = self._outgoing.get(group, _Outgoing())
        return outgoing.number - len(outgoing.rest) - len(outgoing.batch)

    def say(self, group: int, payload: Any, now: float) -> None:
        """Publish an event; one batch is in flight at a time, so events stay in order."""
        outgoing = self._outgoing.setdefault(group, _Outgoing())
        outgoing.number += 1
        outgoing.rest.append(GroupPublication(self._pastry.own, outgoing.number, payload, now))
        if not outgoing.batch:
            self._publish(group, outgoing, now)

    def on_overdue(self, group: int, now: float) -> None:
        """The root may have changed: route the batch again."""
        outgoing = self._outgoing[group]
        outgoing.root = None
        self._publish(group, outgoing, now)

    def on_accepted(self, message: Accepted, now: float) -> None:
        """The batch will not be lost: publish the next one."""
        outgoing = self._outgoing.get(message.group)
        if outgoing is None:
            return
        outgoing.root = message.root
        if outgoing.batch and outgoing.batch[-1].number <= message.number:
            self._effects.count("accepted", len(outgoing.batch))
            outgoing.batch = ()
            self._effects.deadlines.drop(("publish", message.group))
            self._publish(message.group, outgoing, now)

    def _publish(self, group: int, outgoing: _Outgoing, now: float) -> None:
        if not outgoing.batch:
            outgoing.batch, outgoing.rest = tuple(outgoing.rest), []
        if not outgoing.batch:
            return
        wait = _ROOT_TIMES * self._parameters.patience
        self._effects.deadlines.set(("publish", group), now + wait)
        if not self._pastry.active:
            return  # the deadline tries again
        message = PublishBatch(group, outgoing.batch)
        if outgoing.root is None or outgoing.root == self._pastry.own:
            self._pastry.route(group, message, now)
        else:
            self._pastry.pass_to(outgoing.root, group, message, now)
