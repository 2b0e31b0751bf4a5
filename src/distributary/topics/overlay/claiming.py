"""How a peer claims to be the root of a group, and finds the newest copy of the group's log.

The claim is a ballot higher than any that this peer has seen. Its leaves promise to refuse lower
ones, and say how new their copies are. The claim ends when this peer has the newest copy, from
which replication begins, or when a higher ballot of another peer ends the role.

With `give_up`, a claim needs a majority of the group's last members, or waits as long for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from distributary.topics.overlay.copies import Copies
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer, distance
from distributary.topics.overlay.messages import Copied, Fetch, Recover, Recovered
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.replication import Replication
from distributary.topics.overlay.root_role import (
    RootRole,
    RootRoles,
    find_former,
    is_majority,
    version_of,
)

__all__ = ["Claiming"]

_NO_HOLDERS: Mapping[str, Peer] = {}


class Claiming:
    """Claims groups for this peer, and hands those that it gets to `replication`."""

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        roles: RootRoles,
        copies: Copies,
        replication: Replication,
    ) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._roles = roles
        self._copies = copies
        self._replication = replication

    def claim(self, group: int, now: float, holders: Mapping[str, Peer] = _NO_HOLDERS) -> None:
        """Claim to be the root, unless this peer already does; ask these holders of copies, too."""
        if group in self._roles:
            return
        copy = self._copies.log(group)
        copy.promised = (copy.promised[0] + 1, self._pastry.own.identifier)
        copy.note()
        role = RootRole(
            copy.promised,
            now,
            members=copy.members,
            proposed=copy.proposed,
            has_entries=bool(copy.end),
            holders=dict(holders),
        )
        self._roles.begin(group, role)
        self._ask_leaves(group, now)

    def ask_holder(self, group: int, holder: Peer, now: float) -> None:
        """Ask a peer that says that it has a copy, too, unless the newest is being fetched."""
        role = self._roles[group]
        role.holders[holder.name] = holder
        if role.fetching is None:
            self._ask_leaves(group, now)

    def _ask_leaves(self, group: int, now: float) -> None:
        """Ask leaves, members and holders that were not asked yet; go on if there are none."""
        role, copy = self._roles[group], self._copies.log(group)
        members = (
            (*role.members.peers, *role.proposed.peers)
            if self._parameters.waits_for_members
            else ()
        )
        known = role.holders | {peer.name: peer for peer in members}
        for name, peer in (known | self._pastry.leaves.members).items():
            if name not in role.asked and name != self._pastry.own.name:
                role.asked[name] = now
                if name not in role.silent or name in self._pastry.leaves.members:
                    role.awaited[name] = peer
                self._effects.send(name, Recover(group, role.ballot, self._pastry.own))
        if role.awaited or self._pastry.is_settling or not self._may_go_on(group, role, now):
            self._effects.deadlines.set(("recover", group), now + self._parameters.patience)
        elif role.best is not None and version_of(role.best) > version_of(copy):
            role.fetching = role.best.peer
            role.asked[role.fetching.name] = now
            self._effects.send(role.fetching.name, Fetch(group, role.ballot, self._pastry.own))
            self._effects.deadlines.set(("recover", group), now + self._parameters.patience)
        else:
            self._replication.begin(group, now)

    def _may_go_on(self, group: int, role: RootRole, now: float) -> bool:
        """Whether no other part of the ring can have, or get, a newer log."""
        if now - role.since >= self._parameters.give_up:
            return True
        known = {self._pastry.own.name, *role.promised}
        lost = self._pastry.list_lost(now - self._parameters.give_up)
        if former := find_former(role):
            # Each claim begins anew, but nobody waits again for those that were waited for.
            there = known | self._pastry.list_missing() - {peer.name for peer in lost}
            return all(
                is_majority(peers, known) or all(peer.name in there for peer in peers)
                for peers in former
            )
        if len(lost) > self._parameters.replicas:
            return False  # all copies may be with them
        return is_majority(self._find_first_members(group, lost), known)

    def _find_first_members(self, group: int, lost: list[Peer]) -> tuple[Peer, ...]:
        """Who would be the members of a new group if no peer had been lost.

        The others may be about to create it, too; only one side can have a majority of these.
        """
        peers = dict.fromkeys((self._pastry.own, *self._pastry.leaves.members.values(), *lost))
        nearest = sorted(peers, key=lambda peer: distance(group, peer.identifier))
        return tuple(nearest[: self._parameters.replicas + 1])

    def on_recovered(self, message: Recovered, now: float) -> None:
        """Another peer's version: the newest one counts."""
        role = self._roles.get(message.group)
        if role is None or role.ballot != message.ballot or not role.is_recovering:
            return
        role.awaited.pop(message.peer.name, None)
        role.promised.add(message.peer.name)
        if role.best is None or version_of(message) > version_of(role.best):
            role.best = message
        role.learn_members(message)
        self._pastry.consider(message.leaves.values(), now)
        if not role.awaited and role.fetching is None:
            self._ask_leaves(message.group, now)

    def on_recover_overdue(self, group: int, now: float) -> None:
        """Leaves that do not answer are dead."""
        role = self._roles.get(group)
        if role is None or not role.is_recovering:
            return
        slow = self._find_slow(role, now)
        silent = {name: peer for name, peer in role.awaited.items() if name not in slow}
        role.awaited = {name: role.awaited[name] for name in slow if name in role.awaited}
        if role.fetching is not None and role.fetching.name in slow:
            self._effects.deadlines.set(("recover", group), slow[role.fetching.name])
            return
        for name in slow:  # the question or the answer may be lost
            self._effects.send(name, Recover(group, role.ballot, self._pastry.own))
        if role.fetching is not None:  # ask all again, since their best copy is gone
            silent[role.fetching.name] = role.fetching
            role.fetching, role.best = None, None
            role.promised.clear()
        role.silent |= silent.keys()
        for peer in silent.values():
            self._pastry.suspect(peer, now)
        if self._roles.get(group) is role:
            if self._parameters.waits_for_members or role.best is None:
                known = role.promised | role.awaited.keys()
                role.asked = {name: at for name, at in role.asked.items() if name in known}
            self._ask_leaves(group, now)

    def _find_slow(self, role: RootRole, now: float) -> dict[str, float]:
        """Peers that owe an answer but are alive, and until when to wait for them."""
        owing = [*role.awaited.values()] if role.fetching is None else [role.fetching]
        found: dict[str, float] = {}
        for peer in owing:
            until = self._pastry.bear_with(peer, role.asked[peer.name], now)
            if until is not None:
                found[peer.name] = until
        return found

    def on_copied(self, sender: str, message: Copied, now: float) -> None:
        """The newest copy has arrived."""
        role = self._roles.get(message.group)
        if role is None or role.ballot != message.ballot or role.fetching is None:
            return
        if role.fetching.name == sender:
            role.fetching = None
            self._copies.log(message.group).restore(message.content, message.end)
            self._replication.begin(message.group, now)
