"""How a root replicates the log of a group, and names the replicas as the group's members.

The replicas are the leaves nearest to the group's key. They get a full copy first, then the entries
as they are written; what a replica does not confirm is sent again while it seems alive. An entry is
accepted once all replicas have it, and enough of the former members know the members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributary.topics.overlay.copies import Copies
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication, GroupLog
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import Members, Replicate, Replicated, Seat, Seated
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.root_role import (
    RootRole,
    RootRoles,
    RootState,
    find_former,
    is_majority,
)

__all__ = ["Replication"]


class Replication:
    """Replicates the logs of the groups whose newest copy this peer, their root, has found.

    `review` finds this peer's place in the tree of a group again.
    """

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        application: GroupApplication,
        roles: RootRoles,
        copies: Copies,
        review: Callable[[int, float], None],
    ) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._application = application
        self._roles = roles
        self._copies = copies
        self._review = review

    def begin(self, group: int, now: float) -> None:
        """Write the log, unless another peer is nearer to the key by now."""
        if self._pastry.next_hop(group) is not None:
            self._roles.give_up(group, now)
            return
        role = self._roles[group]
        copy = self._copies.log(group)
        role.former = self._find_former_to_tell(role)
        copy.written, copy.members = role.ballot, role.members
        role.state = RootState.WRITING
        role.accepted = self._application.take_over(group, copy, now)
        role.until = copy.end
        self._choose_replicas(group, role, now)
        self._advance(group, now)

    def append(self, group: int, entries: tuple[Any, ...]) -> None:
        """Write entries to the own copy; `flush` sends them to the replicas."""
        self._copies.log(group).extend(entries)
        self._roles.unsent[group] = None

    def flush(self, now: float) -> None:
        """Send what was written to the replicas."""
        unsent, self._roles.unsent = self._roles.unsent, {}
        for group in unsent:
            role = self._roles.get(group)
            if role is not None and not role.is_recovering:
                self._send_rest(group, role, now)
                self._advance(group, now)

    def review(self, group: int, now: float) -> None:
        """The leaves have changed, so the replicas may have changed."""
        role = self._roles.get(group)
        if role is None or role.is_recovering:
            return
        if self._may_be_unaware(group, role):
            self._roles.give_up(group, now)
        else:
            self._choose_replicas(group, role, now)
            self._advance(group, now)

    def _may_be_unaware(self, group: int, role: RootRole) -> bool:
        """Whether this root has no entries, and a new replica was not asked for its own."""
        nearest = self._pastry.leaves.nearest_members(group, self._parameters.replicas)
        return not self._copies.log(group).end and any(p.name not in role.promised for p in nearest)

    def rewrite(self, group: int, now: float) -> None:
        """The content was replaced: send it to all replicas."""
        role = self._roles[group]
        role.accepted = self._application.take_over(group, self._copies.log(group), now)
        for name in role.replicas:
            self._send_whole(group, role, name, now)

    # The replicas, and those who must know them as the members.

    def _choose_replicas(self, group: int, role: RootRole, now: float) -> None:
        nearest = self._pastry.leaves.nearest_members(group, self._parameters.replicas)
        chosen = {peer.name: peer for peer in nearest}
        for name in role.replicas.keys() - chosen.keys():
            role.have.pop(name, None)
            role.sent.pop(name, None)
            self._effects.deadlines.drop(("replicate", group, name))
        new = [name for name in chosen if name not in role.replicas]
        changed = bool(new) or len(chosen) != len(role.replicas)
        role.replicas = chosen
        copy = self._copies.log(group)
        if changed or copy.proposed.version[0] != role.ballot:
            self._seat_members(group, role, now)
        for name in new:
            self._send_whole(group, role, name, now)

    def _find_former_to_tell(self, role: RootRole) -> tuple[tuple[Peer, ...], ...]:
        """Former members of whom a majority must learn of the next ones.

        The claim has waited for those without a majority, in vain: nobody waits for them again.
        """
        if not self._parameters.waits_for_members:
            return ()
        known = {self._pastry.own.name, *role.promised}
        return tuple(peers for peers in find_former(role) if is_majority(peers, known))

    def _seat_members(self, group: int, role: RootRole, now: float) -> None:
        """The members have changed: a majority of the former ones must know."""
        copy = self._copies.log(group)
        before, number = copy.proposed.version
        version = (role.ballot, number + 1 if before == role.ballot else 0)
        copy.proposed = Members(version, (self._pastry.own, *role.replicas.values()))
        if self._parameters.waits_for_members:
            role.seated, role.settled = {self._pastry.own.name}, False
            role.changed_at = now
            self._send_seats(group, role, now)
        else:
            copy.members, role.settled = copy.proposed, True
        copy.note()

    def _send_seats(self, group: int, role: RootRole, now: float) -> None:
        """Name the members to the former ones and to each other, again once they are settled."""
        message = Seat(group, role.ballot, self._copies.log(group).proposed, role.settled)
        former = (peer for peers in role.former for peer in peers)
        for peer in dict.fromkeys((*former, *role.replicas.values())):
            told = role.settled or peer.name not in role.seated
            if told and peer != self._pastry.own:
                self._effects.send(peer.name, message)
        if not role.settled:
            self._effects.deadlines.set(("seat", group), now + self._parameters.patience)

    def on_seated(self, message: Seated, now: float) -> None:
        """A member knows the members."""
        role = self._roles.get(message.group)
        if role is None or self._copies.log(message.group).proposed.version != message.version:
            return
        role.seated.add(message.peer.name)
        self._advance(message.group, now)

    def on_seat_overdue(self, group: int, now: float) -> None:
        """Tell members again, until enough of them know."""
        role = self._roles.get(group)
        if role is None or role.is_recovering:
            return
        self._advance(group, now)
        if self._roles.get(group) is role and not role.settled:
            self._send_seats(group, role, now)

    def _settle_members(self, group: int, role: RootRole, now: float) -> bool:
        """Whether enough of the former members know the members, who are told so."""
        if role.settled:
            return True
        waited = now - role.changed_at >= self._parameters.give_up
        if not waited and not all(is_majority(peers, role.seated) for peers in role.former):
            return False
        copy = self._copies.log(group)
        copy.members, role.settled = copy.proposed, True
        copy.note()
        self._send_seats(group, role, now)
        role.former = (copy.members.peers,)
        return True

    # Entries on their way to the replicas.

    def _send_whole(self, group: int, role: RootRole, name: str, now: float) -> None:
        copy = self._copies.log(group)
        role.sent[name] = copy.end
        message = Replicate(group, role.ballot, copy.end, (), copy.copy(), self._name_members(copy))
        self._effects.send(name, message)
        self._expect(group, name, now)

    def _name_members(self, copy: GroupLog) -> Members | None:
        """The members, if they are not named apart."""
        return None if self._parameters.waits_for_members else copy.members

    def _send_rest(self, group: int, role: RootRole, now: float) -> None:
        copy = self._copies.log(group)
        message: Replicate | None = None  # the same for most
        for name in role.replicas:
            first = role.sent[name]
            if message is None or message.first != first:
                entries = copy.part(first)
                if entries is None:
                    self._send_whole(group, role, name, now)
                    continue
                message = Replicate(group, role.ballot, first, entries, None, None)
            self._effects.send(name, message)
            role.sent[name] = copy.end
            if ("replicate", group, name) not in self._effects.deadlines:
                self._expect(group, name, now)

    def _repeat_rest(self, group: int, role: RootRole, name: str) -> None:
        """Repeat what a replica has not confirmed, but no full copy: it may be slow already."""
        copy, have = self._copies.log(group), role.have.get(name)
        entries = None if have is None else copy.part(have)
        if have is not None and entries is not None:
            role.sent[name] = copy.end
            message = Replicate(group, role.ballot, have, entries, None, None)
            self._effects.send(name, message)

    def _expect(self, group: int, name: str, now: float) -> None:
        self._roles[group].since_sent[name] = now
        self._effects.deadlines.set(("replicate", group, name), now + self._parameters.patience)

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
        if role is None or name not in role.replicas:
            return
        until = self._pastry.bear_with(role.replicas[name], role.since_sent[name], now)
        if until is not None:
            self._repeat_rest(group, role, name)
            self._effects.deadlines.set(("replicate", group, name), until)
        else:
            self._pastry.suspect(role.replicas[name], now)
            self._review(group, now)

    def _advance(self, group: int, now: float) -> None:
        """Accept everything that all replicas have."""
        role = self._roles.get(group)
        if role is None or any(name not in role.have for name in role.replicas):
            return
        if role.is_recovering or not self._settle_members(group, role, now):
            return
        copy = self._copies.log(group)
        end = min((role.have[name] for name in role.replicas), default=copy.end)
        first, role.accepted = role.accepted, max(role.accepted, end)
        self._application.accept(group, first, role.accepted, now)
        if role.state is RootState.WRITING and role.accepted >= role.until:
            role.state = RootState.SERVING
            self._application.open(group, now)
