"""Roots number the events that peers publish to a group: each event once, in one order for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import Accepted, GroupPublication, PublishBatch
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.roots import Roots
from distributary.topics.overlay.window import EventWindow, PublicationLog

__all__ = ["Numbering", "Trunk"]


class Trunk(Protocol):
    """The tree, as its root sees it."""

    roots: Roots

    def take_over(self, group: int, log: PublicationLog, now: float) -> int:
        """Continue from this log; returns the number up to which the tree has had its events."""
        ...

    def grow(
        self, group: int, first: int, publications: tuple[GroupPublication, ...], now: float
    ) -> None:
        """Pass accepted events down the tree."""
        ...

    def open(self, group: int, now: float) -> None:
        """The root starts to serve."""
        ...


@dataclass(slots=True)
class _Desk:
    """What publishers of a group wait for."""

    waiting: list[PublishBatch] = field(default_factory=list)
    owed: list[tuple[int, Peer, int]] = field(default_factory=list)


class Numbering:
    """The `GroupApplication` of publications: the log of a group is its last events."""

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        trunk: Trunk,
        accepted: Callable[[Accepted, float], None],
    ) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._trunk = trunk
        self._accepted = accepted
        self._desks: dict[int, _Desk] = {}

    def new_log(self, group: int) -> PublicationLog:
        """An empty log."""
        return PublicationLog(EventWindow(0, self._parameters.window), self._parameters.window)

    def drop_log(self, group: int) -> None:
        """Logs are not stored."""

    def take_over(self, group: int, log: PublicationLog, now: float) -> int:
        """Continue the tree from this log."""
        return self._trunk.take_over(group, log, now)

    def accept(self, group: int, first: int, end: int, now: float) -> None:
        """Pass events down and acknowledge them."""
        if end > first:
            window = self._trunk.roots.log(group).window
            self._trunk.grow(group, first, window.part(first, end), now)
        owed = self._desk(group).owed
        while owed and owed[0][0] <= end:
            _, publisher, number = owed.pop(0)
            self._acknowledge(group, publisher, number, now)

    def open(self, group: int, now: float) -> None:
        """Serve children and publishers that wait."""
        self._trunk.open(group, now)
        desk = self._desk(group)
        waiting, desk.waiting = desk.waiting, []
        for message in waiting:
            self._publish(message, now)

    def close(self, group: int, now: float) -> None:
        """Publishers will ask the next root."""
        self._desks.pop(group, None)

    def skip_to(self, group: int, number: int, now: float) -> None:
        """Skip numbers that a child has seen but no surviving copy has."""
        log: PublicationLog = self._trunk.roots.log(group)
        if number > log.end:
            self._effects.count("skipped", number - log.end)
            log.skip_to(number)
            self._trunk.roots.rewrite(group, now)

    def arrive(self, payload: Any, now: float) -> None:
        """A publisher's events have reached the root."""
        if not isinstance(payload, PublishBatch):
            raise TypeError(f"a root of publications cannot handle {payload!r}")
        self._publish(payload, now)
        self._trunk.roots.flush(now)

    def _desk(self, group: int) -> _Desk:
        return self._desks.setdefault(group, _Desk())

    def _publish(self, message: PublishBatch, now: float) -> None:
        """Number events, each once however often it is received."""
        group, roots = message.group, self._trunk.roots
        roots.claim(group, now)
        if group not in roots:
            return  # another peer is the root: the publisher will try again
        desk = self._desk(group)
        if not roots.serves(group):
            desk.waiting.append(message)
            return
        log: PublicationLog = roots.log(group)
        if log.end - roots.accepted(group) >= self._parameters.window:
            return  # the window must not drop events that are not accepted
        publisher, number = message.publications[-1].publisher, message.publications[-1].number
        known = log.numbers.get(publisher.name, 0)
        new = tuple(found for found in message.publications if found.number > known)
        if new:
            roots.append(group, new)
            desk.owed.append((log.end, publisher, number))
        elif all(owed[1] != publisher for owed in desk.owed):
            self._acknowledge(group, publisher, number, now)

    def _acknowledge(self, group: int, publisher: Peer, number: int, now: float) -> None:
        message = Accepted(group, number, self._pastry.own)
        if publisher == self._pastry.own:
            self._accepted(message, now)
        else:
            self._effects.send(publisher.name, message)
