"""A plan: which session carries each flow, which group each session, and who subscribes to what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distributary.model.interest import IndexArray, IntArray, Interest, distinct

__all__ = ["Plan", "Previous", "plan_problems"]


def _nothing() -> IndexArray:
    return np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A mapping of flows to sessions, sessions to groups and receivers to sessions.

    Flows and receivers are indices into `flows` and `receivers`. Placements and subscriptions are
    pairs in ascending order. A flow may be in several sessions; a receiver joins the groups of the
    sessions it subscribes to. The pairs of `unicast_receiver` and `unicast_flow`, also ascending,
    are flows sent to each receiver by unicast; a flow may travel in a session too, for its other
    receivers. A plan need not be valid: one read from a file may be wrong and still has a cost.
    `plan_problems` checks it.
    """

    receivers: tuple[str, ...]
    flows: tuple[str, ...]
    placement_flow: IndexArray
    placement_session: IndexArray
    session_group: IndexArray
    subscription_receiver: IndexArray
    subscription_session: IndexArray
    unicast_receiver: IndexArray = field(default_factory=_nothing)
    unicast_flow: IndexArray = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        n_sessions = len(self.session_group)
        _check_pairs(
            "placement", self.placement_flow, self.placement_session, len(self.flows), n_sessions
        )
        _check_pairs(
            "subscription",
            self.subscription_receiver,
            self.subscription_session,
            len(self.receivers),
            n_sessions,
        )
        _check_pairs(
            "unicast pair",
            self.unicast_receiver,
            self.unicast_flow,
            len(self.receivers),
            len(self.flows),
        )
        if n_sessions == 0:
            raise ValueError("a plan needs at least one session")
        if self.session_group.min() < 0:
            raise ValueError("groups are numbered from 0")

    @property
    def n_sessions(self) -> int:
        """How many sessions the plan has."""
        return len(self.session_group)

    @property
    def n_groups(self) -> int:
        """How many groups the plan has."""
        return int(self.session_group.max()) + 1

    @property
    def duplicated_flows(self) -> int:
        """How many flows travel in more than one session."""
        return int((np.bincount(self.placement_flow, minlength=len(self.flows)) > 1).sum())

    @property
    def unicast_flows(self) -> int:
        """How many flows are sent by unicast, to some of their receivers or to all."""
        return int((np.bincount(self.unicast_flow, minlength=len(self.flows)) > 0).sum())

    def group_joins(self) -> tuple[IndexArray, IndexArray]:
        """(receiver, group) pairs, ascending: who joins which group."""
        keys = distinct(
            self.subscription_receiver.astype(np.int64) * self.n_groups
            + self.session_group[self.subscription_session]
        )
        return (keys // self.n_groups).astype(np.int32), (keys % self.n_groups).astype(np.int32)

    def groups_of(self, flow: str) -> tuple[int, ...]:
        """The groups that carry a flow, ascending; none if it only goes by unicast."""
        at = _position("flow", self.flows, flow)
        first, end = np.searchsorted(self.placement_flow, [at, at + 1])
        groups = distinct(self.session_group[self.placement_session[first:end]].astype(np.int64))
        return tuple(groups.tolist())

    def group_of(self, flow: str) -> int | None:
        """The group that carries a flow; None if it only goes by unicast.

        A flow may travel in several groups if the plan sends some more than once: `groups_of`.
        """
        groups = self.groups_of(flow)
        if len(groups) > 1:
            raise ValueError(f"flow {flow!r} travels in groups {groups}: ask for groups_of")
        return groups[0] if groups else None

    def groups_for(self, receiver: str) -> tuple[int, ...]:
        """The groups that a receiver joins, ascending; none if it gets all by unicast."""
        at = _position("receiver", self.receivers, receiver)
        first, end = np.searchsorted(self.subscription_receiver, [at, at + 1])
        sessions = self.subscription_session[first:end]
        return tuple(distinct(self.session_group[sessions].astype(np.int64)).tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (self.receivers, self.flows) == (other.receivers, other.flows) and all(
            np.array_equal(getattr(self, field), getattr(other, field))
            for field in (
                "placement_flow",
                "placement_session",
                "session_group",
                "subscription_receiver",
                "subscription_session",
                "unicast_receiver",
                "unicast_flow",
            )
        )

    def __repr__(self) -> str:
        return (
            f"Plan({len(self.flows):,} flows, {self.n_sessions:,} sessions, "
            f"{self.n_groups:,} groups)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Previous:
    """The flows' places in an earlier plan, by name, since flows come and go between plans.

    `session_of` is each flow's session, `session_group` each session's group. `several` has the
    places of the flows that were in several sessions or went by unicast (-1). Who got such a flow
    where follows from `subscribed`, each receiver's sessions, and `unicast`, the pairs of receiver
    and flow; both are empty if that is unknown or if there is no such flow.
    """

    session_of: dict[str, int]
    session_group: IndexArray
    several: Mapping[str, frozenset[int]] = field(default_factory=dict)
    subscribed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unicast: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        others = [place for places in self.several.values() for place in places if place != -1]
        known = range(len(self.session_group))
        if not all(place in known for place in (*self.session_of.values(), *others)):
            raise ValueError("a flow is in a session that has no group")

    @classmethod
    def of(cls, plan: Plan) -> Previous:
        """The places in a plan."""
        places: dict[str, set[int]] = {}
        for flow, at in _list_pairs(plan.placement_flow, plan.placement_session):
            places.setdefault(plan.flows[flow], set()).add(at)
        alone = _list_pairs(plan.unicast_receiver, plan.unicast_flow)
        for _, flow in alone:
            places.setdefault(plan.flows[flow], set()).add(-1)
        one = {name: min(at) for name, at in places.items() if len(at) == 1 and -1 not in at}
        several = {name: frozenset(at) for name, at in places.items() if name not in one}
        subscribed: dict[str, set[int]] = {}
        if several:
            for receiver, at in _list_pairs(plan.subscription_receiver, plan.subscription_session):
                subscribed.setdefault(plan.receivers[receiver], set()).add(at)
        return cls(
            one,
            plan.session_group,
            several,
            {name: frozenset(at) for name, at in subscribed.items()},
            frozenset((plan.receivers[receiver], plan.flows[flow]) for receiver, flow in alone),
        )

    def place_of(self, flow: str, receiver: str) -> int | None:
        """Where a receiver got a flow of `several`; None if it did not, or if that is unknown."""
        heard = self.places_of(flow) & self.subscribed.get(receiver, frozenset())
        return min(heard, default=-1 if (receiver, flow) in self.unicast else None)

    def places_of(self, flow: str) -> frozenset[int]:
        """The sessions that a flow was in, and -1 if it also went by unicast; none if it is new."""
        if flow in self.session_of:
            return frozenset({self.session_of[flow]})
        return self.several.get(flow, frozenset())


def _list_pairs(left: IndexArray, right: IndexArray) -> list[tuple[int, int]]:
    return list(zip(left.tolist(), right.tolist(), strict=True))


def _position(kind: str, names: tuple[str, ...], name: str) -> int:
    """Where a name is in the names of a plan, which are those of an interest: sorted."""
    at = bisect_left(names, name)
    if at == len(names) or names[at] != name:
        raise ValueError(f"the plan has no {kind} {name!r}")
    return at


def plan_problems(plan: Plan, interest: Interest) -> tuple[str, ...]:
    """The problems of the plan, one sentence each; empty if the plan is valid.

    A valid plan serves every wanted pair (no false exclusion), by a session or by unicast, sends
    nothing by unicast that nobody wants, and has no session without a flow, none without a
    subscriber, and no group without a session.
    """
    if plan.receivers != interest.receivers or plan.flows != interest.flows:
        raise ValueError("the plan and the interest must name the same receivers and flows")
    missed = _find_missed_pairs(plan, interest)
    carried = np.bincount(plan.placement_session, minlength=plan.n_sessions)
    heard = np.bincount(plan.subscription_session, minlength=plan.n_sessions)
    used = np.bincount(plan.session_group, minlength=plan.n_groups)
    problems = []
    if len(missed):
        receiver, flow = divmod(int(missed[0]), len(interest.flows))
        problems.append(
            f"{len(missed):,} wanted pairs are not served, the first: receiver "
            f"{interest.receivers[receiver]!r} misses flow {interest.flows[flow]!r}"
        )
    for count, kind, lack in (
        (carried, "session", "carries no flow"),
        (heard, "session", "has no subscriber"),
        (used, "group", "holds no session"),
    ):
        empty = np.flatnonzero(count == 0)
        if len(empty):
            more = f" (and {len(empty) - 1:,} more)" if len(empty) > 1 else ""
            problems.append(f"{kind} {empty[0]} {lack}{more}")
    return (*problems, *_unicast_problems(plan, interest))


def _unicast_problems(plan: Plan, interest: Interest) -> list[str]:
    """Unicast pairs that nobody wants."""
    if not len(plan.unicast_flow):
        return []
    unwanted = np.setdiff1d(
        _encode_unicast_pairs(plan), _encode_wanted_pairs(interest), assume_unique=True
    )
    if len(unwanted):
        receiver, flow = divmod(int(unwanted[0]), len(interest.flows))
        return [
            f"{len(unwanted):,} pairs sent by unicast are not wanted, the first: flow "
            f"{interest.flows[flow]!r} to receiver {interest.receivers[receiver]!r}"
        ]
    return []


def _find_missed_pairs(plan: Plan, interest: Interest) -> IntArray:
    """receiver * flows + flow of each wanted pair that is not served, ascending."""
    flow = interest.receiver_flows.astype(np.int64)
    receiver = np.repeat(np.arange(len(interest.receivers)), np.diff(interest.receiver_offsets))
    copies = np.bincount(plan.placement_flow, minlength=len(interest.flows))
    first = np.cumsum(copies) - copies
    # One entry for each session that could serve a wanted pair.
    pair = np.repeat(np.arange(interest.pairs), copies[flow])
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(copies[flow]) - copies[flow], copies[flow])
    session = plan.placement_session[first[flow[pair]] + nth]
    subscribed = (
        plan.subscription_receiver.astype(np.int64) * plan.n_sessions + plan.subscription_session
    )
    heard = np.isin(receiver[pair] * plan.n_sessions + session, subscribed)
    served = np.bincount(pair[heard], minlength=interest.pairs) > 0
    wanted = _encode_wanted_pairs(interest)
    return wanted[~served & ~np.isin(wanted, _encode_unicast_pairs(plan))]


def _encode_wanted_pairs(interest: Interest) -> IntArray:
    """receiver * flows + flow of each wanted pair, ascending."""
    receiver = np.repeat(np.arange(len(interest.receivers)), np.diff(interest.receiver_offsets))
    return receiver * len(interest.flows) + interest.receiver_flows


def _encode_unicast_pairs(plan: Plan) -> IntArray:
    """receiver * flows + flow of each pair sent by unicast, ascending."""
    return plan.unicast_receiver.astype(np.int64) * len(plan.flows) + plan.unicast_flow


def _check_pairs(kind: str, left: IndexArray, right: IndexArray, n_left: int, n_right: int) -> None:
    if len(left) != len(right):
        raise ValueError(f"{kind}s: {len(left)} against {len(right)} indices")
    if len(left) == 0:
        return
    if left.min() < 0 or left.max() >= n_left or right.min() < 0 or right.max() >= n_right:
        raise ValueError(f"a {kind} index is out of range")
    keys = left.astype(np.int64) * n_right + right
    if (np.diff(keys) <= 0).any():
        raise ValueError(f"{kind}s must be in ascending order without repeats")
