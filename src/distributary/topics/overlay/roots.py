"""Roots: the peers that write the log of a group, and how the log survives a root.

The root of a group is the peer nearest to the group's key. Before it serves, it asks all its leaves
for the versions of their copies of the group's log, under a ballot higher than any they have seen,
and they promise to refuse lower ballots; a former root among them thereby steps down. The new root
fetches the newest copy, unless it has it, and continues from there. An entry is accepted once all
replicas have it: the leaves nearest to the key, one of which is the next root.

Accepted entries are therefore kept as long as the root or one of its replicas survives from each
crash to its repair. The messages are those of Paxos; requiring all replicas instead of a majority
makes up for their changing membership.

With `give_up`, a partition does not split a group, unless it lasts longer than that. The root and
its replicas are the group's members. A new root needs the promises of a majority of the members
(or of half of them, with their root), and a root that changes the members needs a majority of the
former ones to know. Whoever does not get it waits `give_up` seconds for the others.

What a log holds is the application's business: see `GroupLog` and `GroupApplication`.

Reference: M. Castro, P. Druschel, A.-M. Kermarrec, A. Rowstron, "Scribe: A large-scale and
decentralized application-level multicast infrastructure" (2002), section 3.3 for the change of
roots; there events may be lost and are not numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication, GroupLog
from distributary.topics.overlay.identifiers import Peer, distance
from distributary.topics.overlay.messages import (
    NOBODY,
    Ballot,
    BallotRefused,
    Bequest,
    Copied,
    CreateGroup,
    Fetch,
    Members,
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
from distributary.topics.overlay.root_role import (
    RootRole,
    RootState,
    find_former,
    is_majority,
    version_of,
)

__all__ = ["Roots"]

_NO_HOLDERS: Mapping[str, Peer] = {}
_STALE_PERIODS = 10  # a copy that no root has written for so many periods may not be needed


class Roots:
    """The groups whose root is this peer, and its copies of the logs of others.

    `review` finds this peer's place in the tree of a group again.
    """

    def __init__(
        self,
        pastry: Pastry,
        parameters: OverlayParameters,
        effects: Effects,
        application: GroupApplication,
        review: Callable[[int, float], None],
    ) -> None:
        self._pastry = pastry
        self._parameters = parameters
        self._effects = effects
        self._application = application
        self._review = review
        self._roles: dict[int, RootRole] = {}
        self._copies: dict[int, GroupLog] = {}
        self._touched: dict[int, float] = {}  # when a root was last heard of, by group
        self._unsent: dict[int, None] = {}  # groups with entries for their replicas

    def __contains__(self, group: int) -> bool:
        return group in self._roles

    def serves(self, group: int) -> bool:
        """Whether this peer is the root of the group and has finished recovery."""
        role = self._roles.get(group)
        return role is not None and role.state is RootState.SERVING

    def ballot(self, group: int) -> Ballot:
        """The ballot of this peer's role as root."""
        return self._roles[group].ballot

    def accepted(self, group: int) -> int:
        """The number of the first entry that is not accepted yet."""
        return self._roles[group].accepted

    def is_in_doubt(self, group: int) -> bool:
        """Whether all copies may be with peers that cannot be reached; there is none here."""
        missing = len(self._pastry.list_missing())
        return not self.log(group).end and missing > self._parameters.replicas

    def held(self) -> Iterator[int]:
        """The groups of which this peer is the root, or is about to be."""
        return iter([*self._roles])

    def groups(self) -> Iterator[int]:
        """The groups of which this peer has a copy, as root or replica."""
        return (group for group, copy in self._copies.items() if copy.written > NOBODY)

    def log(self, group: int) -> Any:
        """This peer's copy of a group's log; an empty one if it has none."""
        if group not in self._copies:
            self._copies[group] = self._application.new_log(group)
        return self._copies[group]

    def adopt(self, logs: Mapping[int, GroupLog]) -> None:
        """Start with these copies, from an earlier run of this peer."""
        self._copies.update(logs)

    # Becoming the root, and stepping down.

    def claim(self, group: int, now: float, holders: Mapping[str, Peer] = _NO_HOLDERS) -> None:
        """Claim to be the root, unless this peer already does; ask these holders of copies, too."""
        if group in self._roles:
            return
        copy = self.log(group)
        copy.promised = (copy.promised[0] + 1, self._pastry.own.identifier)
        copy.note()
        self._roles[group] = RootRole(
            copy.promised,
            now,
            members=copy.members,
            proposed=copy.proposed,
            has_entries=bool(copy.end),
            holders=dict(holders),
        )
        self._ask_leaves(group, now)

    def _ask_leaves(self, group: int, now: float) -> None:
        """Ask leaves, members and holders that were not asked yet; go on if there are none."""
        role, copy = self._roles[group], self.log(group)
        members = (*role.members.peers, *role.proposed.peers) if self._waits else ()
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
            self._begin_writing(group, now)

    @property
    def _waits(self) -> bool:
        return self._parameters.give_up > 0

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

    def _find_former_to_tell(self, role: RootRole) -> tuple[tuple[Peer, ...], ...]:
        """Former members of whom a majority must learn of the next ones.

        The claim has waited for those without a majority, in vain: nobody waits for them again.
        """
        if not self._waits:
            return ()
        known = {self._pastry.own.name, *role.promised}
        return tuple(peers for peers in find_former(role) if is_majority(peers, known))

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
        self.give_up(group, now)

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
            if self._waits or role.best is None:
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

    def on_fetch(self, message: Fetch, now: float) -> None:
        """A new root needs this copy."""
        group, copy = message.group, self.log(message.group)
        if message.ballot < copy.promised:
            self._effects.send(message.peer.name, BallotRefused(group, copy.promised))
            return
        found = Copied(group, message.ballot, copy.end, copy.copy())
        self._effects.send(message.peer.name, found)

    def on_copied(self, sender: str, message: Copied, now: float) -> None:
        """The newest copy has arrived."""
        role = self._roles.get(message.group)
        if role is None or role.ballot != message.ballot or role.fetching is None:
            return
        if role.fetching.name == sender:
            role.fetching = None
            self.log(message.group).restore(message.content, message.end)
            self._begin_writing(message.group, now)

    def on_refused(self, message: BallotRefused, now: float) -> None:
        """There is or was a root with a higher ballot: look again later."""
        role = self._roles.get(message.group)
        copy = self.log(message.group)
        if message.ballot > copy.promised:
            copy.promised = message.ballot
            copy.note()
        if role is not None and message.ballot > role.ballot:
            self._drop(message.group, now)
            self._effects.deadlines.set(("review", message.group), now + self._parameters.patience)

    def _drop(self, group: int, now: float) -> None:
        """End the role; the application is told if it has begun."""
        role = self._roles.pop(group)
        self._unsent.pop(group, None)
        for name in role.replicas:
            self._effects.deadlines.drop(("replicate", group, name))
        self._effects.deadlines.drop(("recover", group))
        self._effects.deadlines.drop(("seat", group))
        if not role.is_recovering:
            self._application.close(group, now)

    def give_up(self, group: int, now: float) -> None:
        """Stop being the root; the tree finds another, which may be this peer again."""
        if group in self._roles:
            self._drop(group, now)
            self._review(group, now)

    def step_down(self, group: int, hop: Peer, now: float) -> None:
        """Another peer is nearer to the key: tell it that the group exists."""
        if group in self._roles:
            self._drop(group, now)
            holder = self._pastry.own if self.log(group).end else None
            self._pastry.pass_to(hop, group, CreateGroup(group, holder), now)

    def reclaim_all(self, now: float) -> None:
        """Step down and claim again: this peer was away, and others may be roots by now."""
        for group in list(self._roles):
            self.give_up(group, now)

    def depart(self, now: float) -> None:
        """Leave copies with enough peers that one survives, and tell the next roots."""
        for group in self.groups():
            copy = self._copies[group]
            bequest = Bequest(group, copy.written, copy.end, copy.members, copy.copy())
            for peer in self._pastry.leaves.nearest_members(group, self._parameters.replicas + 1):
                self._effects.send(peer.name, bequest)
        for group in list(self._roles):
            self._drop(group, now)
            for peer in self._pastry.leaves.nearest_members(group, 1):
                self._pastry.pass_to(peer, group, CreateGroup(group), now)

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

    # Writing the log.

    def _begin_writing(self, group: int, now: float) -> None:
        if self._pastry.next_hop(group) is not None:
            self.give_up(group, now)
            return
        role = self._roles[group]
        copy = self.log(group)
        role.former = self._find_former_to_tell(role)
        copy.written, copy.members = role.ballot, role.members
        role.state = RootState.WRITING
        role.accepted = self._application.take_over(group, copy, now)
        role.until = copy.end
        self._choose_replicas(group, role, now)
        self._advance(group, now)

    def append(self, group: int, entries: tuple[Any, ...]) -> None:
        """Write entries to the own copy; `flush` sends them to the replicas."""
        self.log(group).extend(entries)
        self._unsent[group] = None

    def flush(self, now: float) -> None:
        """Send what was written to the replicas."""
        unsent, self._unsent = self._unsent, {}
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
            self.give_up(group, now)
        else:
            self._choose_replicas(group, role, now)
            self._advance(group, now)

    def _may_be_unaware(self, group: int, role: RootRole) -> bool:
        """Whether this root has no entries, and a new replica was not asked for its own."""
        nearest = self._pastry.leaves.nearest_members(group, self._parameters.replicas)
        return not self.log(group).end and any(p.name not in role.promised for p in nearest)

    def rewrite(self, group: int, now: float) -> None:
        """The content was replaced: send it to all replicas."""
        role = self._roles[group]
        role.accepted = self._application.take_over(group, self.log(group), now)
        for name in role.replicas:
            self._send_whole(group, role, name, now)

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
        copy = self.log(group)
        if changed or copy.proposed.version[0] != role.ballot:
            self._seat_members(group, role, now)
        for name in new:
            self._send_whole(group, role, name, now)

    def _seat_members(self, group: int, role: RootRole, now: float) -> None:
        """The members have changed: a majority of the former ones must know."""
        copy = self.log(group)
        before, number = copy.proposed.version
        version = (role.ballot, number + 1 if before == role.ballot else 0)
        copy.proposed = Members(version, (self._pastry.own, *role.replicas.values()))
        if self._waits:
            role.seated, role.settled = {self._pastry.own.name}, False
            role.changed_at = now
            self._send_seats(group, role, now)
        else:
            copy.members, role.settled = copy.proposed, True
        copy.note()

    def _send_seats(self, group: int, role: RootRole, now: float) -> None:
        """Name the members to the former ones and to each other, again once they are settled."""
        message = Seat(group, role.ballot, self.log(group).proposed, role.settled)
        former = (peer for peers in role.former for peer in peers)
        for peer in dict.fromkeys((*former, *role.replicas.values())):
            told = role.settled or peer.name not in role.seated
            if told and peer != self._pastry.own:
                self._effects.send(peer.name, message)
        if not role.settled:
            self._effects.deadlines.set(("seat", group), now + self._parameters.patience)

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
            self.give_up(message.group, now)

    def on_seated(self, message: Seated, now: float) -> None:
        """A member knows the members."""
        role = self._roles.get(message.group)
        if role is None or self.log(message.group).proposed.version != message.version:
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
        copy = self.log(group)
        copy.members, role.settled = copy.proposed, True
        copy.note()
        self._send_seats(group, role, now)
        role.former = (copy.members.peers,)
        return True

    def _send_whole(self, group: int, role: RootRole, name: str, now: float) -> None:
        copy = self.log(group)
        role.sent[name] = copy.end
        message = Replicate(group, role.ballot, copy.end, (), copy.copy(), self._known(copy))
        self._effects.send(name, message)
        self._expect(group, name, now)

    def _known(self, copy: GroupLog) -> Members | None:
        """The members, if they are not named apart."""
        return None if self._waits else copy.members

    def _send_rest(self, group: int, role: RootRole, now: float) -> None:
        copy = self.log(group)
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
        copy, have = self.log(group), role.have.get(name)
        entries = None if have is None else copy.part(have)
        if have is not None and entries is not None:
            role.sent[name] = copy.end
            message = Replicate(group, role.ballot, have, entries, None, None)
            self._effects.send(name, message)

    def _expect(self, group: int, name: str, now: float) -> None:
        self._roles[group].since_sent[name] = now
        self._effects.deadlines.set(("replicate", group, name), now + self._parameters.patience)

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
        copy = self.log(group)
        end = min((role.have[name] for name in role.replicas), default=copy.end)
        first, role.accepted = role.accepted, max(role.accepted, end)
        self._application.accept(group, first, role.accepted, now)
        if role.state is RootState.WRITING and role.accepted >= role.until:
            role.state = RootState.SERVING
            self._application.open(group, now)

    # Copies that nobody needs.

    def _is_member(self, copy: GroupLog) -> bool:
        """Whether this peer is a replica, and the root is one of its leaves."""
        peers = copy.members.peers
        return self._pastry.own in peers and peers[0].name in self._pastry.leaves.members

    def abandon(self, group: int, now: float) -> None:
        """There is no such group: forget it, and let the replicas forget it."""
        role = self._roles[group]
        for name in role.replicas:
            self._effects.send(name, Release(group, role.ballot))
        self._drop(group, now)
        self._forget(group)

    def _forget(self, group: int) -> None:
        del self._copies[group]
        self._touched.pop(group, None)
        self._application.drop_log(group)

    def create(self, message: CreateGroup, now: float) -> None:
        """The group exists; a holder of a copy is asked for it, or told that nobody needs it."""
        group, holder = message.group, message.holder
        self.claim(group, now)
        role = self._roles.get(group)
        if role is None or holder is None or holder == self._pastry.own:
            return
        if role.is_recovering:
            role.holders[holder.name] = holder
            if role.fetching is None:
                self._ask_leaves(group, now)
        elif not self.log(group).end and holder.name not in role.promised:
            self._drop(group, now)
            self.claim(group, now, {holder.name: holder})
        elif role.state is RootState.SERVING and role.settled and holder.name not in role.replicas:
            self._effects.send(holder.name, Release(group, role.ballot))

    def on_release(self, message: Release, now: float) -> None:
        """The copy is not needed any more."""
        copy = self._copies.get(message.group)
        if copy is None or message.group in self._roles or message.ballot < copy.promised:
            return
        self._forget(message.group)

    def on_tick(self, now: float) -> None:
        """Ask whether copies are needed that no root has written for long."""
        oldest = now - _STALE_PERIODS * self._parameters.tree_period
        for group, copy in list(self._copies.items()):
            if group in self._roles or self._touched.setdefault(group, now) > oldest:
                continue
            self._touched[group] = now
            if copy.written == NOBODY:
                self._forget(group)  # only a promise to a root that was lost
            elif self._pastry.active and not self._is_member(copy):
                self._pastry.route(group, CreateGroup(group, self._pastry.own), now)
