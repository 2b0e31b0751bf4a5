"""Scribe: the tree of a group is the union of its subscribers' routes to the group's key.

The parent of each peer of the tree, subscriber or helper, is its current next hop to the key. When
the next hop changes, the peer joins the new parent before it leaves the old one. Every period,
parents send their children a keep-alive with the number of the next event; a child takes a silent
parent for dead and asks the next hop of that moment. A child says which event it needs next and is
sent what it missed: every peer handles events in the order of their numbers, each once. A parent
that no longer has the missing events asks its own parent.

A subscriber gets every event from its confirmation on, and possibly a few from just before.

Reference: Castro et al., "Scribe" (2002), sections 3.2 to 3.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import (
    CreateGroup,
    Events,
    GroupPublication,
    LostEvents,
    Orphan,
    ReceivedEvent,
    Refresh,
    TreeKeepAlive,
    TreeSubscribe,
    TreeSubscribed,
    TreeUnsubscribe,
)
from distributary.topics.overlay.numbering import Numbering
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.publishing import GroupPublisher
from distributary.topics.overlay.roots import Roots
from distributary.topics.overlay.window import EventWindow, PublicationLog

__all__ = ["Scribe"]

# A child that misses this many refreshes is gone.
_SILENT_REFRESHES = 2
# A parent that is still joining the tree gets this many times the patience.
_PLACE_TIMES = 8


@dataclass(slots=True)
class _Child:
    """A child; `start` is what it asked for while that is not promised yet."""

    peer: Peer
    heard: float
    waits: bool = False
    start: int | None = None


@dataclass(slots=True)
class _Tree:
    """This peer's place in the tree of a group.

    `parent` sends events; `asked` is the peer asked to be the parent. `window` is None until the
    next number is known. `wanted` is the number of the next event for the application.
    """

    group: int
    subscribed: bool = False
    wanted: int | None = None
    children: dict[str, _Child] = field(default_factory=dict)
    parent: Peer | None = None
    heard: float = 0.0
    asked: Peer | None = None
    asked_at: float = 0.0
    answered: bool = False
    window: EventWindow | None = None
    floor: int = 0

    def start(self) -> int | None:
        """The number to ask a parent for."""
        if self.window is not None:
            return self.window.end
        return min((c.start for c in self.children.values() if c.start is not None), default=None)


class Scribe:
    """One peer's part of the trees."""

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        application: GroupApplication | None = None,
    ) -> None:
        self._pastry = pastry
        self._own = pastry.own
        self._parameters = parameters
        self._effects = effects
        self._trees: dict[int, _Tree] = {}
        self._ticks = 0
        self.publisher = GroupPublisher(pastry, parameters, effects)
        self.application = application or Numbering(
            pastry, parameters, effects, self, self.publisher.on_accepted
        )
        self.roots = Roots(pastry, parameters, effects, self.application, self.review)

    # Requests of the application.

    def listen(self, group: int, now: float) -> None:
        """Subscribe the application."""
        tree = self._tree(group)
        if not tree.subscribed:
            tree.subscribed = True
            if tree.window is not None and (group not in self.roots or self.roots.serves(group)):
                tree.wanted = tree.window.end
            self.review(group, now)

    def silence(self, group: int, now: float) -> None:
        """Unsubscribe the application."""
        tree = self._trees.get(group)
        if tree is not None and tree.subscribed:
            tree.subscribed, tree.wanted = False, None
            self._prune(tree)

    def create(self, group: int, now: float) -> None:
        """Tell the root that the group exists."""
        if self._pastry.active:
            self._pastry.route(group, CreateGroup(group), now)
        else:
            self._effects.deadlines.set(("create", group), now + self._parameters.patience)

    # The place in the tree.

    def _tree(self, group: int) -> _Tree:
        if group not in self._trees:
            self._trees[group] = _Tree(group)
        return self._trees[group]

    def review_all(self, now: float) -> None:
        """Routes may have changed: review all groups."""
        for group in list(dict.fromkeys((*self._trees, *self.roots.groups()))):
            self.review(group, now)

    def review(self, group: int, now: float) -> None:
        """Make the next hop to the key the parent, or be the root if there is none."""
        if not self._pastry.active:
            return
        hop = self._pastry.next_hop(group)
        if hop is None:
            self._be_root(group, now)
            return
        self.roots.step_down(group, hop, now)
        tree = self._trees.get(group)
        if tree is None:
            return
        if not tree.subscribed and not tree.children:
            self._prune(tree)
        elif hop == tree.parent:
            self._cancel_request(tree)
        elif hop != tree.asked:
            self._cancel_request(tree)
            self._ask(tree, hop, now)

    def _be_root(self, group: int, now: float) -> None:
        tree = self._tree(group)
        self._cancel_request(tree)
        if tree.parent is not None:
            self._effects.send(tree.parent.name, TreeUnsubscribe(group))
            tree.parent = None
        self.roots.claim(group, now)
        self.roots.review(group, now)

    def _ask(self, tree: _Tree, hop: Peer, now: float) -> None:
        tree.asked, tree.asked_at, tree.answered = hop, now, False
        self._effects.send(hop.name, TreeSubscribe(tree.group, self._own, tree.start()))
        self._effects.deadlines.set(("subscribe", tree.group), now + self._parameters.patience)

    def _cancel_request(self, tree: _Tree) -> None:
        if tree.asked is not None and tree.asked != tree.parent:
            self._effects.send(tree.asked.name, TreeUnsubscribe(tree.group))
            self._effects.deadlines.drop(("subscribe", tree.group))
            tree.asked = None

    def on_subscribe_overdue(self, group: int, now: float) -> None:
        """Without an answer the hop is dead; with an answer but no place, ask again."""
        tree = self._trees.get(group)
        if tree is None or tree.asked is None:
            return
        until = self._pastry.bear_with(tree.asked, tree.asked_at, now)
        if not tree.answered and until is not None:
            self._effects.deadlines.set(("subscribe", group), until)
            return
        asked, tree.asked = tree.asked, None
        if not tree.answered:
            if tree.parent == asked:
                tree.parent = None
            self._pastry.suspect(asked, now)
        elif tree.parent == asked:
            tree.parent = None  # it has no events itself: look for another place
        self.review(group, now)

    def on_subscribe(self, message: TreeSubscribe, now: float) -> None:
        """A new or known child asks for events."""
        if not self._pastry.active:
            return
        tree = self._tree(message.group)
        child = _Child(message.peer, now, waits=True, start=message.start)
        tree.children[message.peer.name] = child
        if self._has_place(tree):
            self._serve(tree, child, now)
        else:
            answer = TreeSubscribed(message.group, self._own, None, tree.floor)
            self._effects.send(message.peer.name, answer)
        self.review(message.group, now)

    def _has_place(self, tree: _Tree) -> bool:
        if tree.group in self.roots:
            return self.roots.serves(tree.group)
        return tree.window is not None

    def _serve(self, tree: _Tree, child: _Child, now: float) -> None:
        """Promise a child its events and send those that it missed."""
        if child.start is not None and tree.group in self.roots:
            self.application.skip_to(tree.group, child.start, now)
        window = tree.window
        assert window is not None
        start = max(window.end if child.start is None else child.start, tree.floor)
        child.waits, child.start = False, None
        self._effects.send(
            child.peer.name, TreeSubscribed(tree.group, self._own, start, tree.floor)
        )
        if start < window.first:
            # Request everything from there again; the other children ignore what they already have.
            tree.window = EventWindow(start, self._parameters.window)
            self._catch_up(tree, now)
        elif start < window.end:
            missed = Events(tree.group, start, window.part(start), again=True)
            self._effects.send(child.peer.name, missed)

    def on_subscribed(self, sender: str, message: TreeSubscribed, now: float) -> None:
        """A parent answers."""
        tree = self._trees.get(message.group)
        if tree is None or message.peer not in (tree.asked, tree.parent):
            self._effects.send(sender, TreeUnsubscribe(message.group))
            return
        if message.start is None:
            tree.answered = True
            wait = _PLACE_TIMES * self._parameters.patience
            self._effects.deadlines.set(("subscribe", message.group), now + wait)
            return
        if message.peer == tree.asked:
            self._effects.deadlines.drop(("subscribe", message.group))
            old, tree.parent, tree.asked = tree.parent, message.peer, None
            if old is not None and old != message.peer:
                self._effects.send(old.name, TreeUnsubscribe(message.group))
        tree.heard = now
        tree.floor = max(tree.floor, message.floor)
        self._begin(tree, message.start, now)

    def _begin(self, tree: _Tree, start: int, now: float) -> None:
        """Events will come from this number on."""
        limit = self._parameters.window
        if tree.window is None:
            tree.window = EventWindow(start, limit)
        elif tree.window.end < tree.floor:
            tree.window = EventWindow(tree.floor, limit)
        elif start > tree.window.end:
            self._catch_up(tree, now)  # a new child needs earlier events
        self._want(tree, start)
        for child in tree.children.values():
            if child.waits:
                self._serve(tree, child, now)

    def _want(self, tree: _Tree, start: int) -> None:
        if not tree.subscribed:
            return
        if tree.wanted is not None and tree.wanted < tree.floor:
            lost = LostEvents(tree.group, tree.wanted, tree.floor)
            self._effects.deliver(self._own.name, lost, 0.0)
            tree.wanted = tree.floor
        if tree.wanted is None:
            tree.wanted = start

    def on_unsubscribe(self, sender: str, message: TreeUnsubscribe, now: float) -> None:
        """A child leaves."""
        tree = self._trees.get(message.group)
        if tree is not None and tree.children.pop(sender, None) is not None:
            self._prune(tree)

    def on_orphan(self, message: Orphan, now: float) -> None:
        """A parent leaves, or no longer knows this child."""
        if message.gone:
            self._pastry.suspect(message.peer, now)
        tree = self._trees.get(message.group)
        if tree is not None and message.peer in (tree.parent, tree.asked):
            tree.parent = None if tree.parent == message.peer else tree.parent
            tree.asked = None if tree.asked == message.peer else tree.asked
            self.review(message.group, now)

    def _prune(self, tree: _Tree) -> None:
        """Leave the tree if nobody needs this peer in it."""
        if tree.subscribed or tree.children or tree.group in self.roots:
            return
        self._cancel_request(tree)
        if tree.parent is not None:
            self._effects.send(tree.parent.name, TreeUnsubscribe(tree.group))
        self._effects.deadlines.drop(("subscribe", tree.group))
        del self._trees[tree.group]

    def depart(self, now: float) -> None:
        """Tell parents and children."""
        for tree in self._trees.values():
            if tree.parent is not None:
                self._effects.send(tree.parent.name, TreeUnsubscribe(tree.group))
            for name in tree.children:
                self._effects.send(name, Orphan(tree.group, self._own, gone=True))
        self.roots.depart(now)

    # Events.

    def on_events(self, sender: str, message: Events, now: float) -> None:
        """Events of the parent; if there is a gap, ask for what is missing."""
        tree = self._trees.get(message.group)
        if tree is None or tree.window is None or message.group in self.roots:
            return
        if tree.parent is not None and tree.parent.name == sender:
            tree.heard = now
        if message.first > tree.window.end:
            self._catch_up(tree, now)
            return
        self._pass_down(
            tree, message.publications[tree.window.end - message.first :], message.again
        )

    def _pass_down(self, tree: _Tree, new: tuple[GroupPublication, ...], again: bool) -> None:
        window = tree.window
        if not new or window is None:
            return
        first = window.end
        window.extend(new)
        message = Events(tree.group, first, new, again)
        for name, child in tree.children.items():
            if not child.waits:
                self._effects.send(name, message)
        if tree.wanted is None:
            return
        for number, found in enumerate(new, first):
            if number == tree.wanted:
                received = ReceivedEvent(tree.group, number, found)
                self._effects.deliver(self._own.name, received, found.since)
                tree.wanted += 1

    def _catch_up(self, tree: _Tree, now: float) -> None:
        """Ask the parent for the missing events, unless a request is outstanding."""
        if tree.asked is None and tree.parent is not None:
            self._ask(tree, tree.parent, now)

    # For the roots.

    def take_over(self, group: int, log: PublicationLog, now: float) -> int:
        """Continue from a log; what the tree has already had is not sent again."""
        tree = self._tree(group)
        if tree.window is not None:
            log.catch_up(tree.window)
        window = log.window
        had = window.first if tree.window is None else max(window.first, tree.window.end)
        kept = window.part(window.first, had)
        tree.window = EventWindow(window.first, self._parameters.window, kept)
        tree.floor = window.first
        return had

    def grow(
        self, group: int, first: int, publications: tuple[GroupPublication, ...], now: float
    ) -> None:
        """Pass accepted events down."""
        tree = self._tree(group)
        self._pass_down(tree, publications, again=False)
        if tree.window is not None:
            tree.floor = tree.window.first

    def open(self, group: int, now: float) -> None:
        """Serve the children that wait."""
        tree = self._tree(group)
        if tree.window is not None:
            self._begin(tree, tree.window.end, now)

    # For roots whose events are no log.

    def begin_stream(self, group: int, first: int) -> None:
        """Number what the tree carries from `first` on, or from where it is if that is later."""
        tree = self._tree(group)
        if tree.window is not None:
            first = max(first, tree.window.end)
        tree.window = EventWindow(first, self._parameters.window)
        tree.floor = first

    def multicast(self, group: int, publications: tuple[GroupPublication, ...]) -> None:
        """Pass events down from the root, once it serves."""
        tree = self._tree(group)
        self._pass_down(tree, publications, again=False)
        if tree.window is not None:
            tree.floor = tree.window.first

    def is_used(self, group: int) -> bool:
        """Whether anybody here or below needs the tree."""
        tree = self._trees.get(group)
        return tree is not None and (tree.subscribed or bool(tree.children))

    def abandon(self, group: int, now: float) -> None:
        """As its root, end a group that does not exist and that nobody needs."""
        del self._trees[group]
        self.roots.abandon(group, now)

    # Failure detection.

    def start(self, now: float) -> None:
        """Start the period of keep-alives."""
        phase = self._own.identifier % 991 / 991
        self._effects.set_timer("trees", now + phase * self._parameters.tree_period)

    def on_tick(self, now: float) -> None:
        """Once per period: send keep-alives to children and suspect silent parents."""
        parameters = self._parameters
        self._ticks += 1
        self._effects.set_timer("trees", now + parameters.tree_period)
        self._drop_silent_children(now)
        self._send_keep_alives()
        oldest = now - parameters.misses * parameters.tree_period
        for tree in list(self._trees.values()):
            if tree.parent is not None and tree.heard < oldest:
                silent, tree.parent = tree.parent, None
                self._pastry.suspect(silent, now)
            elif tree.parent is not None and self._ticks % parameters.refresh_every == 0:
                self._effects.send(tree.parent.name, Refresh(tree.group))
        self.roots.copies.on_tick(now)
        self.review_all(now)

    def _drop_silent_children(self, now: float) -> None:
        refresh = self._parameters.refresh_every * self._parameters.tree_period
        oldest = now - _SILENT_REFRESHES * refresh - self._parameters.patience
        for tree in list(self._trees.values()):
            silent = [name for name, child in tree.children.items() if child.heard < oldest]
            for name in silent:
                del tree.children[name]
                self._effects.send(name, Orphan(tree.group, self._own, gone=False))
            if silent:
                self._prune(tree)

    def _send_keep_alives(self) -> None:
        words: defaultdict[str, list[tuple[int, int | None]]] = defaultdict(list)
        for tree in self._trees.values():
            end = tree.window.end if self._has_place(tree) and tree.window is not None else None
            for name in tree.children:
                words[name].append((tree.group, end))
        for name, groups in words.items():
            for part in self._group_keep_alives(groups):
                self._effects.send(name, TreeKeepAlive(tuple(part)))

    def _group_keep_alives(
        self, groups: list[tuple[int, int | None]]
    ) -> Iterable[list[tuple[int, int | None]]]:
        return [groups] if self._parameters.per_neighbour else [[found] for found in groups]

    def on_tree_keep_alive(self, sender: str, message: TreeKeepAlive, now: float) -> None:
        """A parent is alive; an event that it has sent may have been lost."""
        for group, end in message.groups:
            tree = self._trees.get(group)
            parent = None if tree is None else tree.parent
            if tree is not None and parent is not None and parent.name == sender:
                tree.heard = now
                if end is not None and tree.window is not None and end > tree.window.end:
                    self._catch_up(tree, now)
            elif tree is None or tree.asked is None or tree.asked.name != sender:
                self._effects.send(sender, TreeUnsubscribe(group))

    def on_refresh(self, sender: str, message: Refresh, now: float) -> None:
        """A child is alive, if it is known as one."""
        tree = self._trees.get(message.group)
        if tree is not None and sender in tree.children:
            tree.children[sender].heard = now
        else:
            self._effects.send(sender, Orphan(message.group, self._own, gone=False))

    def excuse(self, now: float) -> None:
        """No parent or child is dead because this peer could not receive."""
        for tree in self._trees.values():
            tree.heard = now
            for child in tree.children.values():
                child.heard = now

    # Inspection.

    def neighbours(self) -> Iterable[str]:
        """The names of this peer's leaves."""
        return self._pastry.leaves.members

    def next_wanted(self, group: int) -> int | None:
        """The number of the next event for the application; None until it is confirmed."""
        tree = self._trees.get(group)
        return None if tree is None else tree.wanted

    def place(self, group: int) -> tuple[Peer | None, frozenset[str], bool] | None:
        """The parent, the children's names and whether the application is subscribed."""
        tree = self._trees.get(group)
        if tree is None:
            return None
        return tree.parent, frozenset(tree.children), tree.subscribed
