"""The copies of groups' logs that a peer keeps, and its promises to the roots that ask for them.

A copy may be the root's own, a replica, or left from an earlier role. Its holder answers the root
with the highest ballot that it has seen, and refuses all lower ones; if it is a root itself, it
thereby steps down. A copy that no root has written for long may not be needed any more: its holder
asks the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication, GroupLog
from distributary.topics.overlay.messages import (
    NOBODY,
    BallotRefused,
    Bequest,
    Copied,
    CreateGroup,
    Fetch,
    Recover,
    Recovered,
    Release,
    Replicate,
    Replicated,
    Seat,
    Seated,
)
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.root_role import RootRoles, version_of

__all__ = ["Copies"]

_STALE_PERIODS = 10  # a copy that no root has written for so many periods may not be needed


class Copies:
    """This peer's copies, by group: of the groups whose root it is, and of others."""

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        application: GroupApplication,
        roles: RootRoles,
    ) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._application = application
        self._roles = roles
        self._copies: dict[int, GroupLog] = {}
        self._touched: dict[int, float] = {}  # when a root was last heard of, by group

    def log(self, group: int) -> Any:
        """This peer's copy of a group's log; an empty one if it has none."""
        if group not in self._copies:
            self._copies[group] = self._application.new_log(group)
        return self._copies[group]

    def groups(self) -> Iterator[int]:
        """The groups of which this peer has a copy, as root or replica."""
        return (group for group, copy in self._copies.items() if copy.written > NOBODY)

    def adopt(self, logs: Mapping[int, GroupLog]) -> None:
        """Start with these copies, from an earlier run of this peer."""
        self._copies.update(logs)

    # Answers to roots.

    def on_recover(self, message: Recover, now: float) -> None:
        """Another peer claims to be the root."""
        self._pastry.hear(message.peer, now)
        group, copy = message.group, self.log(message.group)
        if message.ballot < copy.promised:
            self._effects.send(message.peer.name, BallotRefused(group, copy.promised))
            return
        copy.promised = message.ballot
        copy.note()
        self._touched[group] = now
        found = Recovered(
            group,
            message.ballot,
            self._pastry.own,
            self._pastry.leaves.members,
            copy.written,
            copy.end,
            copy.members,
            copy.proposed,
        )
        self._effects.send(message.peer.name, found)
        self._roles.give_up(group, now)

    def on_fetch(self, message: Fetch, now: float) -> None:
        """A new root needs this copy."""
        group, copy = message.group, self.log(message.group)
        if message.ballot < copy.promised:
            self._effects.send(message.peer.name, BallotRefused(group, copy.promised))
            return
        found = Copied(group, message.ballot, copy.end, copy.copy())
        self._effects.send(message.peer.name, found)

    def on_replicate(self, sender: str, message: Replicate, now: float) -> None:
        """Keep a copy for the root."""
        group, copy = message.group, self.log(message.group)
        if message.ballot < copy.promised:
            self._effects.send(sender, BallotRefused(group, copy.promised))
            return
        self._touched[group] = now
        end: int | None = None
        if message.content is not None:
            copy.restore(message.content, message.first)
            copy.written = copy.promised = message.ballot
            if message.members is not None:
                copy.members = copy.proposed = message.members
            copy.note()
            end = copy.end
        elif copy.written == message.ballot and message.first <= copy.end:
            copy.extend(message.entries[copy.end - message.first :])
            end = copy.end
        self._effects.send(sender, Replicated(group, message.ballot, self._pastry.own, end))
        self._roles.give_up(group, now)

    def on_seat(self, sender: str, message: Seat, now: float) -> None:
        """The root names the members."""
        copy = self.log(message.group)
        if message.ballot < copy.promised:
            self._effects.send(sender, BallotRefused(message.group, copy.promised))
            return
        copy.promised = message.ballot
        copy.proposed = max(copy.proposed, message.members)
        if message.settled:
            copy.members = max(copy.members, message.members)
        copy.note()
        self._touched[message.group] = now
        seated = Seated(message.group, message.members.version, self._pastry.own)
        self._effects.send(sender, seated)
        if self._roles.get(message.group) is not None:
            self._roles.give_up(message.group, now)

    # Hand-over of copies when their holder leaves.

    def bequeath(self, now: float) -> None:
        """Leave the copies with enough peers that one of each survives."""
        for group in self.groups():
            copy = self._copies[group]
            bequest = Bequest(group, copy.written, copy.end, copy.members, copy.copy())
            for peer in self._pastry.leaves.nearest_members(group, self._parameters.replicas + 1):
                self._effects.send(peer.name, bequest)

    def on_bequest(self, message: Bequest, now: float) -> None:
        """Keep the copy of a leaving peer if it is newer."""
        copy = self.log(message.group)
        role = self._roles.get(message.group)
        is_newer = version_of(message) > version_of(copy)
        if is_newer and (role is None or role.is_recovering):
            copy.restore(message.content, message.end)
            copy.written = message.written
            copy.promised = max(copy.promised, message.written)
            copy.members = max(copy.members, message.members)
            copy.note()
            self._touched[message.group] = now

    # Copies that nobody needs.

    def on_release(self, message: Release, now: float) -> None:
        """The copy is not needed any more."""
        copy = self._copies.get(message.group)
        if copy is None or message.group in self._roles or message.ballot < copy.promised:
            return
        self.forget(message.group)

    def forget(self, group: int) -> None:
        """Drop the copy, and with it the promises."""
        del self._copies[group]
        self._touched.pop(group, None)
        self._application.drop_log(group)

    def on_tick(self, now: float) -> None:
        """Ask whether copies are needed that no root has written for long."""
        oldest = now - _STALE_PERIODS * self._parameters.tree_period
        for group, copy in list(self._copies.items()):
            if group in self._roles or self._touched.setdefault(group, now) > oldest:
                continue
            self._touched[group] = now
            if copy.written == NOBODY:
                self.forget(group)  # only a promise to a root that was lost
            elif self._pastry.active and not self._is_member(copy):
                self._pastry.route(group, CreateGroup(group, self._pastry.own), now)

    def _is_member(self, copy: GroupLog) -> bool:
        """Whether this peer is a replica, and the root is one of its leaves."""
        peers = copy.members.peers
        return self._pastry.own in peers and peers[0].name in self._pastry.leaves.members
