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

Holders of copies answer roots in `copies`; `claiming` gets the promises and the newest copy, and
`replication` writes from there. What a log holds is the application's business: see `GroupLog` and
`GroupApplication`.

Reference: M. Castro, P. Druschel, A.-M. Kermarrec, A. Rowstron, "Scribe: A large-scale and
decentralized application-level multicast infrastructure" (2002), section 3.3 for the change of
roots; there events may be lost and are not numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from distributary.topics.overlay.claiming import Claiming
from distributary.topics.overlay.copies import Copies
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication, GroupLog
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import Ballot, BallotRefused, CreateGroup, Release
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.pastry import Pastry
from distributary.topics.overlay.replication import Replication
from distributary.topics.overlay.root_role import RootRoles, RootState

__all__ = ["Roots"]


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
        self._roles = RootRoles(effects, application, review)
        self.copies = Copies(pastry, parameters, effects, application, self._roles)
        self.replication = Replication(
            pastry, parameters, effects, application, self._roles, self.copies, review
        )
        self.claiming = Claiming(
            pastry, parameters, effects, self._roles, self.copies, self.replication
        )

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

    # The copies.

    def log(self, group: int) -> Any:
        """This peer's copy of a group's log; an empty one if it has none."""
        return self.copies.log(group)

    def groups(self) -> Iterator[int]:
        """The groups of which this peer has a copy, as root or replica."""
        return self.copies.groups()

    def adopt(self, logs: Mapping[int, GroupLog]) -> None:
        """Start with these copies, from an earlier run of this peer."""
        self.copies.adopt(logs)

    # Becoming the root.

    def claim(self, group: int, now: float) -> None:
        """Claim to be the root, unless this peer already does."""
        self.claiming.claim(group, now)

    def create(self, message: CreateGroup, now: float) -> None:
        """The group exists; a holder of a copy is asked for it, or told that nobody needs it."""
        group, holder = message.group, message.holder
        self.claim(group, now)
        role = self._roles.get(group)
        if role is None or holder is None or holder == self._pastry.own:
            return
        if role.is_recovering:
            self.claiming.ask_holder(group, holder, now)
        elif not self.log(group).end and holder.name not in role.promised:
            self._roles.drop(group, now)
            self.claiming.claim(group, now, {holder.name: holder})
        elif role.state is RootState.SERVING and role.settled and holder.name not in role.replicas:
            self._effects.send(holder.name, Release(group, role.ballot))

    # Writing the log.

    def append(self, group: int, entries: tuple[Any, ...]) -> None:
        """Write entries to the own copy; `flush` sends them to the replicas."""
        self.replication.append(group, entries)

    def flush(self, now: float) -> None:
        """Send what was written to the replicas."""
        self.replication.flush(now)

    def rewrite(self, group: int, now: float) -> None:
        """The content was replaced: send it to all replicas."""
        self.replication.rewrite(group, now)

    def review(self, group: int, now: float) -> None:
        """The leaves have changed, so the replicas may have changed."""
        self.replication.review(group, now)

    # Stepping down.

    def give_up(self, group: int, now: float) -> None:
        """Stop being the root; the tree finds another, which may be this peer again."""
        self._roles.give_up(group, now)

    def step_down(self, group: int, hop: Peer, now: float) -> None:
        """Another peer is nearer to the key: tell it that the group exists."""
        if group in self._roles:
            self._roles.drop(group, now)
            holder = self._pastry.own if self.log(group).end else None
            self._pastry.pass_to(hop, group, CreateGroup(group, holder), now)

    def on_refused(self, message: BallotRefused, now: float) -> None:
        """There is or was a root with a higher ballot: look again later."""
        role = self._roles.get(message.group)
        copy = self.log(message.group)
        if message.ballot > copy.promised:
            copy.promised = message.ballot
            copy.note()
        if role is not None and message.ballot > role.ballot:
            self._roles.drop(message.group, now)
            self._effects.deadlines.set(("review", message.group), now + self._parameters.patience)

    def reclaim_all(self, now: float) -> None:
        """Step down and claim again: this peer was away, and others may be roots by now."""
        for group in self._roles.groups():
            self.give_up(group, now)

    def abandon(self, group: int, now: float) -> None:
        """There is no such group: forget it, and let the replicas forget it."""
        role = self._roles[group]
        for name in role.replicas:
            self._effects.send(name, Release(group, role.ballot))
        self._roles.drop(group, now)
        self.copies.forget(group)

    def depart(self, now: float) -> None:
        """Leave copies with enough peers that one survives, and tell the next roots."""
        self.copies.bequeath(now)
        for group in self._roles.groups():
            self._roles.drop(group, now)
            for peer in self._pastry.leaves.nearest_members(group, 1):
                self._pastry.pass_to(peer, group, CreateGroup(group), now)
