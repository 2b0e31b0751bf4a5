"""Roots: the peers that number the events of a group, and how the numbers survive a root.

The root of a group is the peer nearest to the group's key. Before it serves, it asks all its leaves
for their copies of the group's log, under a ballot higher than any they have seen, and they promise
to refuse lower ballots; a former root among them thereby steps down. The new root continues from
the newest copy. An event is accepted, passed down the tree and acknowledged to its publisher once
all replicas have it: the leaves nearest to the key, one of which is the next root.

Numbers are therefore assigned once and accepted events are kept, as long as the root or one of its
replicas survives from each crash to its repair, and no live peer is taken for dead by all others at
once. The messages are those of Paxos; requiring all replicas instead of a majority makes up for
their changing membership.

Reference: M. Castro, P. Druschel, A.-M. Kermarrec, A. Rowstron, "Scribe: A large-scale and
decentralized application-level multicast infrastructure" (2002), section 3.3 for the change of
roots; there events may be lost and are not numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import (
    Accepted,
    Ballot,
    BallotRefused,
    Bequest,
    CreateGroup,
    GroupPublication,
    PublishBatch,
    Recover,
    Recovered,
    Replicate,
    Replicated,
)
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.window import NOBODY, EventWindow, LogCopy

__all__ = ["Roots", "Trunk"]


class Trunk(Protocol):
    """The tree, as its root sees it."""

    def take_over(self, group: int, log: LogCopy, now: float) -> int:
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

    def review(self, group: int, now: float) -> None:
        """Find a place in the tree again."""
        ...


class _RootState(Enum):
    """How far a root has come since its claim."""

    RECOVERING = "recovering"  # collects copies of the log
    WRITING = "writing"  # replicates the events of former roots
    SERVING = "serving"  # accepts new events


@dataclass(slots=True)
class _Role:
    """The role of a root, from its claim on."""

    ballot: Ballot
    best: Recovered | None = None
    asked: set[str] = field(default_factory=set)
    awaited: dict[str, Peer] = field(default_factory=dict)
    state: _RootState = _RootState.RECOVERING
    until: int = 0  # events of former roots must be accepted before it serves
    accepted: int = 0
    replicas: dict[str, Peer] = field(default_factory=dict)
    have: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    waiting: list[PublishBatch] = field(default_factory=list)
    owed: list[tuple[int, Peer, int]] = field(default_factory=list)

    @property
    def is_recovering(self) -> bool:
        """Whether the root still collects copies of the log."""
        return self.state is _RootState.RECOVERING


class Roots:
    """The groups whose root is this peer, and its copies of the logs of others."""

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
        self._roles: dict[int, _Role] = {}
        self._copies: dict[int, LogCopy] = {}

    def __contains__(self, group: int) -> bool:
        return group in self._roles

    def serves(self, group: int) -> bool:
        """Whether this peer is the root of the group and has finished recovery."""
        role = self._roles.get(group)
        return role is not None and role.state is _RootState.SERVING

    def groups(self) -> Iterator[int]:
        """The groups of which this peer has a copy, as root or replica."""
        return (group for group, copy in self._copies.items() if copy.written > NOBODY)

    def _copy(self, group: int) -> LogCopy:
        if group not in self._copies:
            self._copies[group] = LogCopy(EventWindow(0, self._parameters.window))
        return self._copies[group]

    # Becoming the root, and stepping down.

    def claim(self, group: int, now: float) -> None:
        """Claim to be the root, unless this peer already does."""
        if group in self._roles:
            return
        copy = self._copy(group)
        copy.promised = (copy.promised[0] + 1, self._pastry.own.identifier)
        self._roles[group] = _Role(copy.promised)
        self._ask_leaves(group, now)

    def _ask_leaves(self, group: int, now: float) -> None:
        """Ask the leaves that were not asked yet; if there are none, begin to write."""
        role = self._roles[group]
        for name, peer in self._pastry.leaves.members.items():
            if name not in role.asked:
                role.asked.add(name)
                role.awaited[name] = peer
                self._effects.send(name, Recover(group, role.ballot, self._pastry.own))
        if role.awaited or self._pastry.is_settling:
            self._effects.deadlines.set(("recover", group), now + self._parameters.patience)
        else:
            self._begin_writing(group, now)

    def on_recover(self, message: Recover, now: float) -> None:
        """Another peer claims to be the root."""
        self._pastry.hear(message.peer, now)
        copy = self._copy(message.group)
        if message.ballot < copy.promised:
            self._effects.send(message.peer.name, BallotRefused(message.group, copy.promised))
            return
        copy.promised = message.ballot
        window = copy.window
        found = Recovered(
            message.group,
            message.ballot,
            self._pastry.own,
            self._pastry.leaves.members,
            copy.written,
            window.first,
            window.part(window.first),
            dict(copy.numbers),
        )
        self._effects.send(message.peer.name, found)
        self.give_up(message.group, now)

    def on_recovered(self, message: Recovered, now: float) -> None:
        """Another peer's copy: the newest one counts."""
        role = self._roles.get(message.group)
        if role is None or role.ballot != message.ballot or not role.is_recovering:
            return
        role.awaited.pop(message.peer.name, None)
        if role.best is None or _version(message) > _version(role.best):
            role.best = message
        self._pastry.consider(message.leaves.values(), now)
        if not role.awaited:
            self._ask_leaves(message.group, now)

    def on_recover_overdue(self, group: int, now: float) -> None:
        """Leaves that do not answer are dead."""
        role = self._roles.get(group)
        if role is None or not role.is_recovering:
            return
        silent, role.awaited = role.awaited, {}
        for peer in silent.values():
            self._pastry.suspect(peer, now)
        if self._roles.get(group) is role:
            self._ask_leaves(group, now)

    def on_refused(self, message: BallotRefused, now: float) -> None:
        """There is or was a root with a higher ballot: look again later."""
        role = self._roles.get(message.group)
        copy = self._copy(message.group)
        copy.promised = max(copy.promised, message.ballot)
        if role is not None and message.ballot > role.ballot:
            del self._roles[message.group]
            self._effects.deadlines.set(("review", message.group), now + self._parameters.patience)

    def give_up(self, group: int, now: float) -> None:
        """Stop being the root; the tree finds another."""
        if self._roles.pop(group, None) is not None:
            self._trunk.review(group, now)

    def step_down(self, group: int, hop: Peer, now: float) -> None:
        """Another peer is nearer to the key: tell it that the group exists."""
        if self._roles.pop(group, None) is not None:
            self._pastry.pass_to(hop, group, CreateGroup(group), now)

    def depart(self, now: float) -> None:
        """Leave copies with enough peers that one survives, and tell the next roots."""
        for group in self.groups():
            copy = self._copies[group]
            window, numbers = copy.window, dict(copy.numbers)
            items = window.part(window.first)
            bequest = Bequest(group, copy.written, window.first, items, numbers)
            for peer in self._pastry.leaves.nearest_members(group, self._parameters.replicas + 1):
                self._effects.send(peer.name, bequest)
        for group in list(self._roles):
            for peer in self._pastry.leaves.nearest_members(group, 1):
                self.step_down(group, peer, now)

    def on_bequest(self, message: Bequest, now: float) -> None:
        """Keep the copy of a leaving peer if it is newer."""
        copy = self._copy(message.group)
        age = message.written, message.first + len(message.publications)
        role = self._roles.get(message.group)
        if age > (copy.written, copy.window.end) and (role is None or role.is_recovering):
            copy.window = EventWindow(message.first, self._parameters.window, message.publications)
            copy.numbers = dict(message.numbers)
            copy.written = message.written
            copy.promised = max(copy.promised, message.written)

    # Writing the log.

    def _begin_writing(self, group: int, now: float) -> None:
        if self._pastry.next_hop(group) is not None:
            self.give_up(group, now)
            return
        role = self._roles[group]
        copy = self._copy(group)
        best = role.best
        if best is not None and _version(best) > (copy.written, copy.window.end):
            copy.window = EventWindow(best.first, self._parameters.window, best.publications)
            copy.numbers = dict(best.numbers)
        copy.written = role.ballot
        role.state = _RootState.WRITING
        role.accepted = self._trunk.take_over(group, copy, now)
        role.until = copy.window.end
        self._choose_replicas(group, role, now)
        self._advance(group, now)

    def review(self, group: int, now: float) -> None:
        """The leaves have changed, so the replicas may have changed."""
        role = self._roles.get(group)
        if role is not None and not role.is_recovering:
            self._choose_replicas(group, role, now)
            self._advance(group, now)

    def skip_to(self, group: int, number: int, now: float) -> None:
        """Skip numbers that a child has seen but no surviving copy has."""
        role, copy = self._roles[group], self._copy(group)
        if number <= copy.window.end:
            return
        self._effects.count("skipped", number - copy.window.end)
        copy.window = EventWindow(number, self._parameters.window)
        role.accepted = self._trunk.take_over(group, copy, now)
        for name in role.replicas:
            self._send_whole(group, role, name, now)

    def _choose_replicas(self, group: int, role: _Role, now: float) -> None:
        nearest = self._pastry.leaves.nearest_members(group, self._parameters.replicas)
        chosen = {peer.name: peer for peer in nearest}
        for name in role.replicas.keys() - chosen.keys():
            role.have.pop(name, None)
            role.sent.pop(name, None)
            self._effects.deadlines.drop(("replicate", group, name))
        new = [name for name in chosen if name not in role.replicas]
        role.replicas = chosen
        for name in new:
            self._send_whole(group, role, name, now)

    def _send_whole(self, group: int, role: _Role, name: str, now: float) -> None:
        copy = self._copy(group)
        window = copy.window
        items, numbers = window.part(window.first), dict(copy.numbers)
        role.sent[name] = window.end
        self._effects.send(name, Replicate(group, role.ballot, window.first, items, numbers))
        self._expect(group, name, now)

    def _send_rest(self, group: int, role: _Role, now: float) -> None:
        window = self._copy(group).window
        for name in role.replicas:
            if role.sent[name] < window.first:
                self._send_whole(group, role, name, now)
                continue
            items = window.part(role.sent[name])
            self._effects.send(name, Replicate(group, role.ballot, role.sent[name], items, None))
            role.sent[name] = window.end
            if ("replicate", group, name) not in self._effects.deadlines:
                self._expect(group, name, now)

    def _expect(self, group: int, name: str, now: float) -> None:
        self._effects.deadlines.set(("replicate", group, name), now + self._parameters.patience)

    def on_replicate(self, sender: str, message: Replicate, now: float) -> None:
        """Keep a copy for the root."""
        group, copy = message.group, self._copy(message.group)
        if message.ballot < copy.promised:
            self._effects.send(sender, BallotRefused(group, copy.promised))
            return
        copy.promised = message.ballot
        end: int | None = None
        if message.numbers is not None:
            copy.window = EventWindow(message.first, self._parameters.window, message.publications)
            copy.numbers = dict(message.numbers)
            copy.written = message.ballot
            end = copy.window.end
        elif copy.written == message.ballot and message.first <= copy.window.end:
            copy.extend(message.publications[copy.window.end - message.first :])
            end = copy.window.end
        self._effects.send(sender, Replicated(group, message.ballot, self._pastry.own, end))
        self.give_up(group, now)

    def on_replicated(self, message: Replicated, now: float) -> None:
        """A replica has everything before `end`."""
        group, name = message.group, message.peer.name
        role = self._roles.get(group)
        if role is None or role.ballot != message.ballot or name not in role.replicas:
            return
        if message.end is None:
            self._send_whole(group, role, name, now)
            return
        role.have[name] = max(message.end, role.have.get(name, 0))
        self._effects.deadlines.drop(("replicate", group, name))
        if role.have[name] < role.sent[name]:
            self._expect(group, name, now)
        self._advance(group, now)

    def on_replicate_overdue(self, group: int, name: str, now: float) -> None:
        """A replica that does not answer is dead."""
        role = self._roles.get(group)
        if role is not None and name in role.replicas:
            self._pastry.suspect(role.replicas[name], now)
            self._trunk.review(group, now)

    def _advance(self, group: int, now: float) -> None:
        """Accept everything that all replicas have."""
        role = self._roles.get(group)
        if role is None or any(name not in role.have for name in role.replicas):
            return
        window = self._copy(group).window
        end = min((role.have[name] for name in role.replicas), default=window.end)
        if end > role.accepted:
            first, role.accepted = role.accepted, end
            self._trunk.grow(group, first, window.part(first, end), now)
        while role.owed and role.owed[0][0] <= role.accepted:
            _, publisher, number = role.owed.pop(0)
            self._acknowledge(group, publisher, number, now)
        if role.state is _RootState.WRITING and role.accepted >= role.until:
            role.state = _RootState.SERVING
            self._trunk.open(group, now)
            waiting, role.waiting = role.waiting, []
            for message in waiting:
                self.on_publish(message, now)

    def on_publish(self, message: PublishBatch, now: float) -> None:
        """Number events, each once however often it is received."""
        group = message.group
        self.claim(group, now)
        role = self._roles.get(group)
        if role is None:
            return  # another peer is the root: the publisher will try again
        if role.state is not _RootState.SERVING:
            role.waiting.append(message)
            return
        copy = self._copy(group)
        if copy.window.end - role.accepted >= self._parameters.window:
            return  # the window must not drop events that are not accepted
        publisher, number = message.publications[-1].publisher, message.publications[-1].number
        known = copy.numbers.get(publisher.name, 0)
        new = [found for found in message.publications if found.number > known]
        if new:
            copy.extend(new)
            role.owed.append((copy.window.end, publisher, number))
            self._send_rest(group, role, now)
            self._advance(group, now)
        elif all(owed[1] != publisher for owed in role.owed):
            self._acknowledge(group, publisher, number, now)

    def _acknowledge(self, group: int, publisher: Peer, number: int, now: float) -> None:
        message = Accepted(group, number, self._pastry.own)
        if publisher == self._pastry.own:
            self._accepted(message, now)
        else:
            self._effects.send(publisher.name, message)


def _version(found: Recovered) -> tuple[Ballot, int]:
    return found.written, found.first + len(found.publications)
