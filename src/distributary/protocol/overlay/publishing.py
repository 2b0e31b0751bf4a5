"""Publishing to groups: in order, and again until the root accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distributary.protocol.overlay.effects import Effects
from distributary.protocol.overlay.identifiers import Peer
from distributary.protocol.overlay.messages import Accepted, Publication, Publish
from distributary.protocol.overlay.parameters import OverlayParameters
from distributary.protocol.overlay.pastry import Pastry

__all__ = ["Publisher"]

# A new root finds out what there was within so many times the patience.
_ROOT_TIMES = 3


@dataclass(slots=True)
class _Outgoing:
    """What this peer publishes to a group: one batch on its way, the rest after it."""

    number: int = 0
    batch: tuple[Publication, ...] = ()
    rest: list[Publication] = field(default_factory=list)
    root: Peer | None = None


class Publisher:
    """What one peer has published, and whether it is accepted.

    The first batch looks for the root; the next ones go straight to the one that answered.
    """

    def __init__(self, pastry: Pastry, parameters: OverlayParameters, effects: Effects) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._outgoing: dict[int, _Outgoing] = {}

    def accepted(self, group: int) -> int:
        """The number of this peer's last event in a group that the root accepted."""
        outgoing = self._outgoing.get(group, _Outgoing())
        return outgoing.number - len(outgoing.rest) - len(outgoing.batch)

    def say(self, group: int, payload: Any, now: float) -> None:
        """Publish; batches follow each other, so that events stay in order."""
        outgoing = self._outgoing.setdefault(group, _Outgoing())
        outgoing.number += 1
        outgoing.rest.append(Publication(self._pastry.own, outgoing.number, payload, now))
        if not outgoing.batch:
            self._publish(group, outgoing, now)

    def on_overdue(self, group: int, now: float) -> None:
        """The root may be another by now."""
        outgoing = self._outgoing[group]
        outgoing.root = None
        self._publish(group, outgoing, now)

    def on_accepted(self, message: Accepted, now: float) -> None:
        """What was published will not be lost: now the rest."""
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
        message = Publish(group, outgoing.batch)
        if outgoing.root is None or outgoing.root == self._pastry.own:
            self._pastry.route(group, message, now)
        else:
            self._pastry.pass_to(outgoing.root, group, message, now)
