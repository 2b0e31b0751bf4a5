"""A peer of the overlay: Pastry and Scribe as one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributary.machines.actions import Action, Message
from distributary.topics.overlay import messages as m
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.parameters import DEFAULT_PARAMETERS, OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.scribe import Scribe

__all__ = ["OverlayPeer"]

Handler = Callable[[str, Any, float], None]


class OverlayPeer:
    """The state of one peer: a `Machine`.

    Each message that it sends is counted as work of the message's kind.
    """

    def __init__(
        self,
        own: Peer,
        parameters: OverlayParameters = DEFAULT_PARAMETERS,
        *,
        effects: Effects | None = None,
        application: GroupApplication | None = None,
    ) -> None:
        self.own = own
        self._effects = effects or Effects()
        self.pastry = Pastry(
            own,
            parameters,
            self._effects,
            arrive=self._arrive,
            change=lambda now: self.scribe.review_all(now),
        )
        self.scribe = Scribe(self.pastry, parameters, self._effects, application)
        self._gone = False
        self._handlers = self._build_handlers()

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a message of another peer or a request of the application."""
        self.note(sender, message, now)
        self.handle(sender, message, now)
        return self._effects.take()

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle an expired period or deadline."""
        self.handle_timer(name, now)
        return self._effects.take()

    def handle(self, sender: str, message: Message, now: float) -> None:
        """Handle a message, and leave the actions to whoever owns the effects."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise TypeError(f"a peer cannot handle {message!r}")
        if not self._gone:
            handler(sender, message, now)

    def note(self, sender: str, message: Message, now: float) -> None:
        """The sender is alive, unless it is still joining."""
        if not isinstance(message, m.LivenessProbe):
            self.pastry.note(sender, now)

    def handle_timer(self, name: str, now: float) -> None:
        """Handle a timer, and leave the actions to whoever owns the effects."""
        if self._gone:
            return
        match name:
            case "leaves":
                self.pastry.on_tick(now)
            case "trees":
                self.scribe.on_tick(now)
            case "deadline":
                self._effects.on_timer()
                for what in self._effects.deadlines.due(now):
                    self._on_overdue(what, now)
            case _:
                raise ValueError(f"there is no timer {name!r}")

    def understands(self, kind: type) -> bool:
        """Whether this is the type of a message or request that a peer of the overlay handles."""
        return kind in self._handlers

    def wake(self, away: float, now: float) -> None:
        """The process was suspended: nobody is dead for that, but others may be roots by now."""
        self._effects.deadlines.postpone(away)
        self.pastry.excuse(now)
        self.scribe.excuse(now)
        self.scribe.roots.reclaim_all(now)

    def _build_handlers(self) -> dict[type, Handler]:
        pastry, scribe, roots = self.pastry, self.scribe, self.scribe.roots
        with_sender: dict[type, Handler] = {
            m.Route: pastry.on_route,
            m.RouteAck: pastry.on_route_ack,
            m.EntryRequest: pastry.on_entry_request,
            m.TreeSubscribed: scribe.on_subscribed,
            m.TreeUnsubscribe: scribe.on_unsubscribe,
            m.Events: scribe.on_events,
            m.TreeKeepAlive: scribe.on_tree_keep_alive,
            m.Refresh: scribe.on_refresh,
            m.Replicate: roots.copies.on_replicate,
            m.Copied: roots.claiming.on_copied,
            m.Seat: roots.copies.on_seat,
        }
        without: dict[type, Callable[[Any, float], None]] = {
            m.StartPeer: self._start,
            m.Depart: self._depart,
            m.Listen: lambda message, now: scribe.listen(message.group, now),
            m.Silence: lambda message, now: scribe.silence(message.group, now),
            m.Say: lambda message, now: scribe.publisher.say(message.group, message.payload, now),
            m.CreateGroup: lambda message, now: scribe.create(message.group, now),
            m.KeepAlive: pastry.on_keep_alive,
            m.LivenessProbe: pastry.on_probe,
            m.ProbeAnswer: pastry.on_answer,
            m.Welcome: pastry.on_welcome,
            m.Announce: pastry.on_announce,
            m.OverlayLeave: pastry.on_leave,
            m.EntryAnswer: pastry.on_entry_answer,
            m.TreeSubscribe: scribe.on_subscribe,
            m.Orphan: scribe.on_orphan,
            m.Accepted: scribe.publisher.on_accepted,
            m.Bequest: roots.copies.on_bequest,
            m.Recover: roots.copies.on_recover,
            m.Recovered: roots.claiming.on_recovered,
            m.BallotRefused: roots.on_refused,
            m.Replicated: roots.replication.on_replicated,
            m.Fetch: roots.copies.on_fetch,
            m.Seated: roots.replication.on_seated,
            m.Release: roots.copies.on_release,
        }
        return with_sender | {kind: _leave_out_sender(take) for kind, take in without.items()}

    def _on_overdue(self, what: Any, now: float) -> None:
        match what:
            case ("route", number):
                self.pastry.on_route_overdue(number, now)
            case ("probe", peer):
                self.pastry.on_probe_overdue(peer, now)
            case "join":
                self.pastry.on_join_overdue(now)
            case ("subscribe", group):
                self.scribe.on_subscribe_overdue(group, now)
            case ("create", group):
                self.scribe.create(group, now)
            case ("publish", group):
                self.scribe.publisher.on_overdue(group, now)
            case ("recover", group):
                self.scribe.roots.claiming.on_recover_overdue(group, now)
            case ("replicate", group, name):
                self.scribe.roots.replication.on_replicate_overdue(group, name, now)
            case ("seat", group):
                self.scribe.roots.replication.on_seat_overdue(group, now)
            case ("review", group):
                self.scribe.review(group, now)
            case _:
                raise ValueError(f"there is no deadline {what!r}")

    def _start(self, message: m.StartPeer, now: float) -> None:
        self.scribe.start(now)
        self.pastry.start(message.through, now)

    def _depart(self, message: m.Depart, now: float) -> None:
        self.pastry.leave()
        self.scribe.depart(now)
        self._gone = True

    def _arrive(self, payload: m.Routable, now: float) -> None:
        if isinstance(payload, m.CreateGroup):
            self.scribe.roots.create(payload, now)
        else:
            self.scribe.application.arrive(payload, now)


def _leave_out_sender(take: Callable[[Any, float], None]) -> Handler:
    return lambda sender, message, now: take(message, now)
