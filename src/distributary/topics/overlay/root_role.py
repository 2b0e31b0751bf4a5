"""The roles of a root, each from its claim to its end, and the majorities that they need."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.group_log import GroupApplication, GroupLog
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.overlay.messages import (
    NO_MEMBERS,
    NOBODY,
    Ballot,
    Bequest,
    Members,
    Recovered,
)

__all__ = ["RootRole", "RootRoles", "RootState", "find_former", "is_majority", "version_of"]


class RootState(Enum):
    """How far a root has come since its claim."""

    RECOVERING = "recovering"  # collects versions of the log, and fetches the newest copy
    WRITING = "writing"  # replicates the entries of former roots
    SERVING = "serving"  # accepts new entries


@dataclass(slots=True)
class RootRole:
    """The role of a root, from its claim on."""

    ballot: Ballot
    since: float
    best: Recovered | None = None
    members: Members = NO_MEMBERS  # the latest known ones
    proposed: Members = NO_MEMBERS
    has_entries: bool = False  # some copy that was found has
    holders: dict[str, Peer] = field(default_factory=dict)  # say that they have a copy
    asked: dict[str, float] = field(default_factory=dict)  # when, by name
    awaited: dict[str, Peer] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)  # no answer: asked again, but not awaited
    promised: set[str] = field(default_factory=set)
    fetching: Peer | None = None
    state: RootState = RootState.RECOVERING
    until: int = 0  # entries of former roots must be accepted before it serves
    accepted: int = 0
    replicas: dict[str, Peer] = field(default_factory=dict)
    have: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    since_sent: dict[str, float] = field(default_factory=dict)  # by replica that owes an answer
    former: tuple[tuple[Peer, ...], ...] = ()  # majorities of these must learn of the members
    seated: set[str] = field(default_factory=set)  # those who have
    settled: bool = False
    changed_at: float = 0.0

    @property
    def is_recovering(self) -> bool:
        """Whether the root still collects copies of the log."""
        return self.state is RootState.RECOVERING

    def learn_members(self, found: Recovered) -> None:
        """Note the members that another peer knows, if they are later ones.

        A copy without entries may come from a root that could reach no copy with entries, so its
        members count only if all copies are like that.
        """
        if found.end and not self.has_entries:
            self.has_entries = True
            self.members = self.proposed = NO_MEMBERS
        if bool(found.end) is self.has_entries:
            self.members = max(self.members, found.members)
            self.proposed = max(self.proposed, found.proposed)


class RootRoles:
    """This peer's roles as root, by group, and how each ends.

    `review` finds this peer's place in the tree of a group again.
    """

    def __init__(
        self,
        effects: Effects,
        application: GroupApplication,
        review: Callable[[int, float], None],
    ) -> None:
        self._effects = effects
        self._application = application
        self._review = review
        self._roles: dict[int, RootRole] = {}
        self.unsent: dict[int, None] = {}  # groups with entries for their replicas

    def __contains__(self, group: int) -> bool:
        return group in self._roles

    def __getitem__(self, group: int) -> RootRole:
        return self._roles[group]

    def get(self, group: int) -> RootRole | None:
        """The role in this group, if there is one."""
        return self._roles.get(group)

    def groups(self) -> list[int]:
        """The groups of which this peer is the root, or is about to be."""
        return list(self._roles)

    def begin(self, group: int, role: RootRole) -> None:
        """Begin a role, with a claim."""
        self._roles[group] = role

    def drop(self, group: int, now: float) -> None:
        """End the role; the application is told if it has begun."""
        role = self._roles.pop(group)
        self.unsent.pop(group, None)
        for name in role.replicas:
            self._effects.deadlines.drop(("replicate", group, name))
        self._effects.deadlines.drop(("recover", group))
        self._effects.deadlines.drop(("seat", group))
        if not role.is_recovering:
            self._application.close(group, now)

    def give_up(self, group: int, now: float) -> None:
        """End the role, if there is one; the tree finds a root, which may be this peer again."""
        if group in self._roles:
            self.drop(group, now)
            self._review(group, now)


def find_former(role: RootRole) -> tuple[tuple[Peer, ...], ...]:
    """The last members; those proposed after them may have become members, too.

    The word that they have is said once, so a copy may know only that they were proposed.
    """
    newer = role.proposed.version > role.members.version
    found = (role.members.peers, role.proposed.peers) if newer else (role.members.peers,)
    return tuple(peers for peers in found if peers)


def version_of(found: Recovered | Bequest | GroupLog) -> tuple[Ballot, int]:
    """Of two copies, the one with the higher version is newer.

    One that never had an entry is older than all others, whoever wrote it: a root that could reach
    no copy may have.
    """
    return (found.written, found.end) if found.end else (NOBODY, 0)


def is_majority(peers: tuple[Peer, ...], names: Collection[str]) -> bool:
    """More than half of the members, or half of them with the root, which is the first."""
    found = sum(peer.name in names for peer in peers)
    return 2 * found > len(peers) or (2 * found == len(peers) and peers[0].name in names)
