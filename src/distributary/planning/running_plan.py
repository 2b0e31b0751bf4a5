"""A plan in use, changed pair by pair and flow by flow, whose cost is exactly known at all times.

Each flow is in one session. What a plan costs follows from two tallies: how many flows each
receiver wants of each session, and of each group. A receiver subscribes to a session while its
tally is above 0. A pair that comes or goes changes two tallies; a flow that comes is placed by
those of its receivers. With a flow of weight w and the set A of its receivers, session s, which
carries R_s to the receivers S_s, takes in w |S_s + A| + R_s |A - S_s| more than before, and its
group likewise. So a change costs what it changes, whatever the size of the plan.

Weights are whole numbers, such as messages in a window of time, and sums of them are exact. Where
a flow is placed depends on names, weights and the numbers of sessions alone, never on the numbers
of receivers and flows: a plan written to disk and adopted again decides as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from distributary.cost import FilteringPrices
from distributary.model import IndexArray, IntArray
from distributary.planning._running_kernels import Seats, count_pairs, find_place, place_flows
from distributary.planning.request import Size

__all__ = ["Place", "PlanStep", "RunningCost", "RunningPlan"]

Whole = TypeVar("Whole", np.int32, np.int64)

_PASSES = 8  # over the new flows of a step; they nearly always settle in two or three


@dataclass(frozen=True, slots=True)
class Place:
    """Where a flow would add least, and the filtering work that it adds, per unit of weight."""

    session: int
    group: int
    added_work: float


@dataclass(frozen=True, slots=True, eq=False)
class PlanStep:
    """What a step changed: flows that were placed and that left, in order of their names.

    `is_same` says that no subscription changed either. It may be False where a subscription came
    and went again.
    """

    placed: IndexArray
    left: IndexArray
    is_same: bool


@dataclass(frozen=True, slots=True)
class RunningCost:
    """The filtering work of all receivers per second, as in `FilteringCost`.

    `excess` and `flooding_excess` come from exact differences: a plan that wastes nothing has
    exactly 0.
    """

    work: float
    excess: float
    flooding_excess: float

    @property
    def relative_excess(self) -> float:
        """Cx / Cf: 0 is perfect, 1 is flooding. 0 if even flooding wastes nothing."""
        return self.excess / self.flooding_excess if self.flooding_excess > 0 else 0.0


class RunningPlan:
    """A plan with at most `size` sessions and groups, for receivers and flows by number.

    Numbers are from 0 on; `flow_names` has the names of the flows by number and may grow. A flow
    weighs 1 until `change` says otherwise. The tallies take 4 bytes for each receiver and each
    session and group.
    """

    def __init__(
        self, size: Size, flow_names: Sequence[str], prices: FilteringPrices | None = None
    ) -> None:
        self._size, self._names = size, flow_names
        self._prices = prices or FilteringPrices()
        self._clear()

    def _clear(self) -> None:
        self._session_of: IndexArray = np.empty(0, np.int32)
        self._weight: IntArray = np.empty(0, np.int64)
        self._audience: IntArray = np.zeros(0, np.int64)
        self._degree: IntArray = np.zeros(0, np.int64)
        self._seats = _make_seats(self._size)
        self._wanted = 0

    @property
    def n_flows(self) -> int:
        """How many flows have a session."""
        return int(self._seats.session_flows.sum())

    @property
    def session_group(self) -> IndexArray:
        """The group of each session in use; they are numbered from 0 without gaps."""
        return self._seats.session_group[: int((self._seats.session_flows > 0).sum())].copy()

    def sessions_of(self, flows: IndexArray) -> IndexArray:
        """The session of each flow; -1 for one that nobody wants."""
        self._reach(flows, np.empty(0, np.int32))
        return self._session_of[flows]

    def adopt(
        self,
        session_of: IndexArray,
        session_group: IndexArray,
        weights: IntArray,
        receiver: IndexArray,
        flow: IndexArray,
    ) -> PlanStep:
        """Take over a plan and all wanted pairs, instead of what was there.

        `session_of` and `weights` are by number of flow, -1 for those without a session. Wanted
        flows without one are placed; sessions without a wanted flow end.
        """
        self._clear()
        everything = np.arange(len(session_of), dtype=np.int32)
        self._reach(everything, receiver)
        self._weight[: len(weights)] = weights
        wanted = np.bincount(flow, minlength=len(session_of)) > 0
        self._session_of[: len(session_of)] = np.where(wanted, session_of, -1)
        self._seats.session_group[: len(session_group)] = session_group
        placed = everything[self._session_of[: len(session_of)] >= 0]
        self._carry(placed, 1)
        nothing = np.empty(0, np.int32)
        return self.change(receiver, flow, nothing, nothing)

    def change(
        self,
        wanted_receiver: IndexArray,
        wanted_flow: IndexArray,
        unwanted_receiver: IndexArray,
        unwanted_flow: IndexArray,
        weighed: IndexArray | None = None,
        weights: IntArray | None = None,
    ) -> PlanStep:
        """Take pairs that are wanted now and pairs that no longer are, and new weights of flows.

        No pair is in both. Flows that nobody wants any more leave. New ones are placed where they
        add least, the heaviest first, then by name; then each may go elsewhere once the others are
        there. Sessions and groups keep their numbers; where one ends, the last takes its number.
        """
        flows = np.concatenate([wanted_flow, unwanted_flow])
        self._reach(flows, np.concatenate([wanted_receiver, unwanted_receiver]))
        if weighed is not None and weights is not None:
            self._weigh(weighed, weights)
        changed = self._count(wanted_receiver, wanted_flow, 1)
        changed += self._count(unwanted_receiver, unwanted_flow, -1)
        left = self._end_flows(unwanted_flow)
        placed = self._place(wanted_receiver, wanted_flow)
        self._close_gaps()
        return PlanStep(placed, left, not (changed or len(left) or len(placed)))

    def find_place(self, weight: int, receivers: IndexArray) -> Place:
        """Where a new flow for these receivers would add least. Nothing changes."""
        self._reach(np.empty(0, np.int32), receivers)
        prices = self._prices
        found = find_place(
            np.unique(receivers).astype(np.int32), weight, prices.alpha, prices.beta, self._seats
        )
        return Place(*found)

    def cost(self, seconds: float, prices: FilteringPrices | None = None) -> RunningCost:
        """What the plan costs now, where weights are messages in so many seconds."""
        prices, seats, wanted = prices or self._prices, self._seats, self._wanted
        received = _multiply(seats.group_rate, seats.group_members)
        accepted = _multiply(seats.session_rate, seats.session_members)
        sent = sum(seats.session_rate.tolist())
        flooded = sent * int((self._degree > 0).sum())
        excess = prices.work((received - wanted) / seconds, (accepted - wanted) / seconds)
        return RunningCost(
            work=prices.work(received / seconds, accepted / seconds),
            excess=excess,
            flooding_excess=(prices.alpha + prices.beta) * ((flooded - wanted) / seconds),
        )

    def _weigh(self, flows: IndexArray, weights: IntArray) -> None:
        self._reach(flows, np.empty(0, np.int32))
        more = weights - self._weight[flows]
        self._weight[flows] = weights
        self._wanted += _multiply(more, self._audience[flows])
        session = self._session_of[flows]
        carried = session >= 0
        session, more = session[carried], more[carried]
        np.add.at(self._seats.session_rate, session, more)
        np.add.at(self._seats.group_rate, self._seats.session_group[session], more)

    def _count(self, receiver: IndexArray, flow: IndexArray, by: int) -> int:
        """Count pairs; return how many subscriptions changed."""
        np.add.at(self._audience, flow, by)
        np.add.at(self._degree, receiver, by)
        self._wanted += by * sum(self._weight[flow].tolist())
        return int(count_pairs(receiver, flow, by, self._session_of, self._seats))

    def _end_flows(self, flows: IndexArray) -> IndexArray:
        """Take out those of the flows that nobody wants any more."""
        flows = np.unique(flows)
        ended = (self._audience[flows] == 0) & (self._session_of[flows] >= 0)
        left = self._in_order_of_names(flows[ended])
        self._carry(left, -1)
        self._session_of[left] = -1
        return left

    def _carry(self, flows: IndexArray, by: int) -> None:
        """Count flows, without their receivers, into their sessions or out of them."""
        session, weight, seats = self._session_of[flows], self._weight[flows], self._seats
        group = seats.session_group[session]
        np.add.at(seats.session_rate, session, by * weight)
        np.add.at(seats.group_rate, group, by * weight)
        np.add.at(seats.session_flows, session, by)
        np.add.at(seats.group_flows, group, by)

    def _place(self, receiver: IndexArray, flow: IndexArray) -> IndexArray:
        """Place the flows of these pairs that have no session."""
        is_new = self._session_of[flow] < 0
        receiver, flow = receiver[is_new], flow[is_new]
        if not len(flow):
            return flow
        new = sorted(set(flow.tolist()), key=lambda at: (-int(self._weight[at]), self._names[at]))
        flows = np.array(new, np.int32)
        turn = np.zeros(len(self._session_of), np.int64)
        turn[flows] = np.arange(len(flows))
        order = np.argsort(turn[flow], kind="stable")
        offsets = np.searchsorted(turn[flow][order], np.arange(len(flows) + 1))
        place_flows(
            flows,
            offsets,
            receiver[order],
            self._weight[flows],
            self._prices.alpha,
            self._prices.beta,
            _PASSES,
            self._session_of,
            self._seats,
        )
        return self._in_order_of_names(flows)

    def _close_gaps(self) -> None:
        """Number the sessions and groups in use from 0: the last ones take over free numbers."""
        seats = self._seats
        for gap, last in _list_gaps(seats.session_flows):
            for per_session in seats.session_flows, seats.session_rate, seats.session_members:
                per_session[gap], per_session[last] = per_session[last], 0
            seats.session_group[gap] = seats.session_group[last]
            seats.in_session[:, gap] = seats.in_session[:, last]
            seats.in_session[:, last] = 0
            self._session_of[self._session_of == last] = gap
        for gap, last in _list_gaps(seats.group_flows):
            for per_group in seats.group_flows, seats.group_rate, seats.group_members:
                per_group[gap], per_group[last] = per_group[last], 0
            seats.in_group[:, gap] = seats.in_group[:, last]
            seats.in_group[:, last] = 0
            seats.session_group[seats.session_group == last] = gap

    def _in_order_of_names(self, flows: IndexArray) -> IndexArray:
        return np.array(sorted(flows.tolist(), key=lambda at: self._names[at]), np.int32)

    def _reach(self, flows: IndexArray, receivers: IndexArray) -> None:
        """Make room for the highest of these numbers."""
        needed = int(flows.max()) + 1 if len(flows) else 0
        if needed > len(self._session_of):
            self._session_of = _grow(self._session_of, needed, -1)
            self._weight = _grow(self._weight, needed, 1)
            self._audience = _grow(self._audience, needed, 0)
        needed = int(receivers.max()) + 1 if len(receivers) else 0
        if needed > len(self._degree):
            self._degree = _grow(self._degree, needed, 0)
            rows, seats = len(self._degree), self._seats
            self._seats = seats._replace(
                in_session=_add_rows(seats.in_session, rows),
                in_group=_add_rows(seats.in_group, rows),
            )


def _make_seats(size: Size) -> Seats:
    n_sessions, n_groups = size.most_sessions, size.groups
    per_session, per_group = (np.zeros((3, n), np.int64) for n in (n_sessions, n_groups))
    return Seats(
        session_group=np.zeros(n_sessions, np.int32),
        in_session=np.zeros((0, n_sessions), np.int32),
        in_group=np.zeros((0, n_groups), np.int32),
        session_members=per_session[0],
        group_members=per_group[0],
        session_rate=per_session[1],
        group_rate=per_group[1],
        session_flows=per_session[2],
        group_flows=per_group[2],
    )


def _list_gaps(flows: IntArray) -> list[tuple[int, int]]:
    """The free numbers below the number of those in use, and who takes each over."""
    used = int((flows > 0).sum())
    gaps = np.flatnonzero(flows[:used] == 0).tolist()
    last = (used + np.flatnonzero(flows[used:] > 0)[::-1]).tolist()
    return list(zip(gaps, last, strict=True))


def _multiply(one: IntArray, other: IntArray) -> int:
    """The exact sum of products, which may need more than 64 bits."""
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))


def _grow(values: npt.NDArray[Whole], needed: int, default: int) -> npt.NDArray[Whole]:
    grown = np.full(max(needed, 2 * len(values)), default, values.dtype)
    grown[: len(values)] = values
    return grown


def _add_rows(counts: IndexArray, rows: int) -> IndexArray:
    grown = np.zeros((rows, counts.shape[1]), np.int32)
    grown[: len(counts)] = counts
    return grown
