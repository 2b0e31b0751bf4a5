"""Exact channelization with a proof of optimality, by branch and bound.

Reference: Adler et al. (2001), section 5.2.1: OCC (each flow in one group) and OCA (flows may be in
several). OCC minimises the channel cost at prices of 1, and so the filtering cost and the channel
cost at any prices, since only the received rate can change. OCA takes weights.

The search is our own. A general solver (CP-SAT) took two to four orders of magnitude longer for the
same problems and often ended with no better bound than C_inf.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from distributary.model import Demand, IndexArray, IntArray
from distributary.planning._search_kernels import (
    Covers,
    Cursor,
    Partitions,
    search_covers,
    search_partitions,
)
from distributary.planning.merging import bits, flow_merge, user_merge
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import in_messages, whole_rates
from distributary.planning.weighted import WholeWeights

__all__ = ["MOST_GROUPS_TO_SHARE", "Optimum", "optimal", "optimal_shared"]

Matrix = npt.NDArray[np.bool_]

MOST_GROUPS_TO_SHARE = 6  # 2 ** 6 sets of groups are the bits of one 64-bit word
_WORK_PER_STEP = 100_000_000  # elementary operations between two checks of the clock


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The groups of each flow, the cost of that plan, and a lower bound of the cost of any plan.

    `in_group` is flows x groups. Cost and bound are the channel cost at prices of 1, or at the
    weights given.
    """

    in_group: Matrix
    cost: float
    lower_bound: float

    @property
    def proven(self) -> bool:
        """Whether it is proven that no plan is cheaper."""
        return self.lower_bound >= self.cost


def optimal(demand: Demand, n_groups: int, budget_s: float, progress: Progress = silent) -> Optimum:
    """OCC: the best plan with each flow in one group, or the best found within the budget."""
    interest = demand.interest
    n_receivers, n_flows = len(interest.receivers), len(interest.flows)
    weights = _count_all_once(demand)
    weight = whole_rates(demand.rate, _most_counted(weights))
    order = _fast_first(weight)
    words = bits(interest.pair_flows(), interest.flow_receivers, n_flows, n_receivers)
    levels = (n_flows, n_groups)
    flows = Partitions(
        weight[order],
        words[order],
        np.zeros((*levels, words.shape[1]), np.uint64),
        np.zeros(levels, np.int64),
        np.zeros(n_flows, np.int64),
    )
    start = _one_hot(flow_merge(demand, n_groups), n_groups)
    best_child = np.argmax(start[order], axis=1)
    sent = int(weight.sum())
    search = _Search(
        partial(search_partitions, flows),
        n_choices=n_groups,
        work_per_node=n_flows * n_groups**2 * words.shape[1],
        best=_price(_interest_matrix(demand), weight, start, weights) - sent,
        best_child=best_child,
    )
    search.run(budget_s, progress, lambda best: _in_messages(demand, best + sent, weights))
    in_group = np.empty_like(start)
    in_group[order] = _one_hot(search.best_child, n_groups)
    return _optimum(demand, weight, in_group, search.lower_bound + sent, weights)


def optimal_shared(
    demand: Demand,
    n_groups: int,
    budget_s: float,
    progress: Progress = silent,
    weights: WholeWeights | None = None,
) -> Optimum:
    """OCA: the best plan with flows in any number of groups, or the best found within the budget.

    The search starts from the better of the plans of OCC and user-merge. Without `weights`, a
    message received and one sent count the same.
    """
    if n_groups > MOST_GROUPS_TO_SHARE:
        raise ValueError(
            f"OCA is searched with at most {MOST_GROUPS_TO_SHARE} groups, not {n_groups}"
        )
    began = time.monotonic()
    weights = weights or _count_all_once(demand)
    weight = whole_rates(demand.rate, _most_counted(weights))
    wanted = _interest_matrix(demand)
    single = optimal(demand, n_groups, budget_s / 2, progress).in_group
    member = user_merge(demand, n_groups, weights=weights)
    merged = np.stack([wanted[member == g].any(axis=0) for g in range(n_groups)], axis=1)
    start = min(single, merged, key=lambda in_group: _price(wanted, weight, in_group, weights))

    order = _fast_first(weight)
    rate, wants = weight[order], np.ascontiguousarray(wanted.T[order])
    n_sets = 1 << n_groups
    least = rate * (wants @ weights.receivers + weights.sent)
    feasible = np.zeros(wants.shape, np.uint64)
    feasible[0] = np.uint64((1 << n_sets) - 1)
    covers = [sum(1 << t for t in range(n_sets) if t & chosen) for chosen in range(n_sets)]
    flows = Covers(
        rate,
        wants,
        np.array(covers, np.uint64),
        np.concatenate((np.cumsum(least[::-1])[::-1], [0])),
        feasible,
        np.zeros((len(rate), n_groups), np.int64),
        np.zeros(len(rate), np.int64),
        weights.receivers,
        weights.sent,
    )
    search = _Search(
        partial(search_covers, flows),
        n_choices=n_sets,
        work_per_node=n_sets**2 * wants.shape[1],
        best=_price(wanted, weight, start, weights),
        best_child=start[order] @ (1 << np.arange(n_groups)),
    )
    left_s = budget_s - (time.monotonic() - began)
    search.run(left_s, progress, lambda best: _in_messages(demand, best, weights))
    in_group = np.empty_like(start)
    in_group[order] = search.best_child[:, None] >> np.arange(n_groups) & 1
    return _optimum(demand, weight, in_group, search.lower_bound, weights)


class _Search:
    """A branch and bound in progress: the kernel's cursor, and the best choices found."""

    def __init__(
        self,
        go_on: Callable[..., tuple[int, int]],
        n_choices: int,
        work_per_node: int,
        best: int,
        best_child: IntArray,
    ) -> None:
        n_levels = len(best_child)
        self._go_on = go_on
        self._nodes_per_step = 1 + _WORK_PER_STEP // work_per_node
        self._cursor = Cursor(
            child=np.zeros((n_levels, n_choices), np.int64),
            bound=np.zeros((n_levels, n_choices), np.int64),
            width=np.full(n_levels, -1, np.int64),
            at=np.zeros(n_levels, np.int64),
            best_child=best_child.astype(np.int64),
        )
        self._depth = 0
        self._best = best

    @property
    def best_child(self) -> IntArray:
        """The choice for each flow in the best plan met."""
        return self._cursor.best_child

    def run(self, budget_s: float, progress: Progress, in_rate: Callable[[int], float]) -> None:
        """Search until the optimum is proven or the budget ends.

        `in_rate` converts a cost to messages per second, for progress reports.
        """
        began = time.monotonic()
        total = max(1, round(budget_s)) if math.isfinite(budget_s) else None
        while self._depth >= 0 and (spent := time.monotonic() - began) < budget_s:
            progress(Step("proving", round(spent), total, in_rate(self._best)))
            self._depth, self._best = self._go_on(
                self._cursor, self._depth, self._best, self._nodes_per_step
            )

    @property
    def lower_bound(self) -> int:
        """The least cost that an untried choice may have, but at most the best cost found."""
        bound, width, at = self._cursor.bound, self._cursor.width, self._cursor.at
        untried = [
            int(bound[level, at[level]])
            for level in range(self._depth + 1)
            if at[level] < width[level]
        ]
        return min([self._best, *untried]) if width[0] >= 0 else 0


def _optimum(
    demand: Demand, weight: IntArray, in_group: Matrix, lower_bound: int, weights: WholeWeights
) -> Optimum:
    """Convert to messages per second; a plan proven optimal in whole numbers is its own bound."""
    wanted = _interest_matrix(demand)
    met = _price(wanted, weight, in_group, weights)
    trivial = int(weight @ (wanted.T @ weights.receivers + weights.sent))
    return Optimum(
        in_group,
        _in_messages(demand, met, weights),
        _in_messages(demand, max(lower_bound, trivial), weights),
    )


def _count_all_once(demand: Demand) -> WholeWeights:
    """Prices of 1 for what is received and sent."""
    return WholeWeights(np.ones(len(demand.interest.receivers), np.int64), 1, 1.0, exact=True)


def _most_counted(weights: WholeWeights) -> int:
    """How often a message counts that is sent once and received by everybody."""
    return int(weights.receivers.sum()) + weights.sent


def _price(wanted: Matrix, weight: IntArray, in_group: Matrix, weights: WholeWeights) -> int:
    """The channel cost in whole-number rates, if every receiver joins its cheapest cover."""
    if in_group.sum() == len(in_group):  # each flow is in one group: there is no choice
        joined = (wanted.astype(np.int64) @ in_group) > 0
        received = int(weights.receivers @ (joined @ (weight @ in_group)))
        return received + weights.sent * int(weight.sum())
    group_rate = weight @ in_group
    n_sets = 1 << in_group.shape[1]
    sets = np.arange(n_sets)[:, None] >> np.arange(in_group.shape[1]) & 1
    meets = (sets @ in_group.T) > 0  # sets x flows
    total = weights.sent * int(group_rate.sum())
    for wants, counts in zip(wanted, weights.receivers.tolist(), strict=True):
        total += counts * int((sets @ group_rate)[meets[:, wants].all(axis=1)].min())
    return total


def _fast_first(weight: IntArray) -> IntArray:
    return np.argsort(-weight, kind="stable")


def _in_messages(demand: Demand, cost: int, weights: WholeWeights) -> float:
    return weights.unit * in_messages(cost, demand.rate, _most_counted(weights))


def _interest_matrix(demand: Demand) -> Matrix:
    interest = demand.interest
    wanted = np.zeros((len(interest.receivers), len(interest.flows)), np.bool_)
    wanted[interest.flow_receivers, interest.pair_flows()] = True
    return wanted


def _one_hot(group: IndexArray | IntArray, n_groups: int) -> Matrix:
    hot: Matrix = group[:, None] == np.arange(n_groups)
    return hot
