"""A lower bound of the cost of any plan: how far a plan may be from the best one.

The filtering cost of a plan is alpha x (rate x receivers, added up over groups) + beta x (the same
over sessions). Both groups and sessions are clusters of flows, at most so many. So a bound for one
level of clusters, taken at each level, gives one for the plan. There are four for a level:

- *wanted*: each flow is received at least by those who want it;
- *one cluster*: if there is just one, everybody receives everything;
- *pigeonhole*: of K different sets of receivers (kinds) in n clusters, at most n have just the
  receivers of their cluster. Each of the other K - n is received by somebody who does not want it,
  and pays at least its rate x the lightest receiver;
- *anchors*: see `planning.anchors`.

Small demands are searched on both levels at once (*branch and bound*), which may prove the optimum.

Limits, pins and a bound on moves only exclude plans, so that all bounds stay valid. Where a flow
may travel several times, or by unicast, only the wanted work is a bound. At prices by packet,
packets are full at best and heartbeats are not free: the linear prices of full packets bound the
cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distributary.cost import FilteringPrices, PacketPrices
from distributary.cost.loads import sum_by
from distributary.cost.packets import Prices
from distributary.model import Demand, FloatArray
from distributary.planning._bound_kernels import Kinds
from distributary.planning._nested_kernels import make_nested, search_nested
from distributary.planning.anchors import bound_by_anchors
from distributary.planning.request import Size
from distributary.planning.things import Things

__all__ = ["WORK_PER_S", "Bound", "lower_bound"]

WORK_PER_S = 1_000_000_000  # elementary operations; counted instead of time, so that bounds repeat
_ROUNDING = 1e-9  # more than sums in any order differ by
_MOST_STEPS = 16_384  # weights of sets are counted in so many steps, if receivers differ
_MOST_KINDS_EXACT = 24  # with more, the search does not end in its time
_SEARCH_SHARE = 0.1  # of the work


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan costs less than `value`; `how` names the argument."""

    value: float
    how: str

    def gap(self, cost: float) -> float:
        """By what share of the optimum a plan with this cost is above it, at most."""
        if cost <= self.value * (1 + 2 * _ROUNDING):
            return 0.0
        return cost / self.value - 1 if self.value > 0 else float("inf")


def lower_bound(
    demand: Demand,
    size: Size,
    prices: Prices,
    *,
    weights: FloatArray | None = None,
    shared: bool = False,
    work: int = WORK_PER_S,
) -> Bound:
    """Bound from below the filtering cost of any plan of this size.

    `weights[j]` is how much receiver j counts. With `shared`, flows may travel in several sessions
    or by unicast. `work` is about how many elementary operations to spend on it.
    """
    if isinstance(prices, PacketPrices):
        demand = demand.count_in("messages")  # packets are counted by messages
    wanted = Bound(_price_wanted(demand, prices, weights), "wanted")
    if shared:
        return wanted
    kinds, unit = _scale(demand, weights)
    linear = prices.linear if isinstance(prices, PacketPrices) else prices
    found = _bound_levels(kinds, _list_levels(size, linear), work)
    value = found.value * unit * (1 - _ROUNDING)
    return Bound(value, found.how) if value > wanted.value else wanted


def _price_wanted(demand: Demand, prices: Prices, weights: FloatArray | None) -> float:
    """What receivers pay for one stream each with just what they want, without heartbeats."""
    rate = demand.wanted_rate
    price = prices.session_filter(rate) + prices.flow_filter(rate)
    return float(price.sum() if weights is None else price @ weights)


def _scale(demand: Demand, weights: FloatArray | None) -> tuple[Kinds, float]:
    """Combine flows with the same receivers, and say what a cost of 1 is in the demand's numbers.

    The rates of all kinds add up to 1, and no receiver weighs more than 1.
    """
    things = Things.flows_of(demand)
    one_each, kind = things.kinds()
    total = float(demand.rate.sum())
    heaviest = 1.0 if weights is None else float(weights.max())
    weight = np.ones(things.n_receivers) if weights is None else weights / heaviest
    size = np.add.reduceat(weight[one_each.members], one_each.offsets[:-1])
    order = np.argsort(-size, kind="stable")
    chosen = one_each.subset(order)
    rate = sum_by(kind, demand.rate / total, len(order))[order]
    step = 1.0 if weight.min() == 1 else float(weight.sum()) / _MOST_STEPS
    return Kinds(chosen.offsets, chosen.members, rate, size[order], weight, step), total * heaviest


class _Level(NamedTuple):
    """At most so many clusters, and the price of rate x receivers."""

    clusters: int
    price: float


def _list_levels(size: Size, prices: FilteringPrices) -> list[_Level]:
    """The levels that cost anything; one if there are as many groups as sessions."""
    groups, sessions = size.groups, size.most_sessions
    if groups == sessions:
        return [_Level(groups, prices.alpha + prices.beta)]
    levels = [_Level(groups, prices.alpha), _Level(sessions, prices.beta)]
    return [level for level in levels if level.price > 0]


def _bound_levels(kinds: Kinds, levels: list[_Level], work: int) -> Bound:
    """The best bound of the cost at all levels."""
    searched = _search(kinds, levels, int(_SEARCH_SHARE * work))
    if searched.how == "optimum":
        return searched
    each = [_bound_level(kinds, level, work // len(levels)) for level in levels]
    value = sum(level.price * bound.value for level, bound in zip(levels, each, strict=True))
    added = Bound(value, " and ".join(dict.fromkeys(bound.how for bound in each)))
    return max(added, searched, key=lambda bound: bound.value)


def _search(kinds: Kinds, levels: list[_Level], work: int) -> Bound:
    """The optimum of all levels if it is found soon, else what the search has proven."""
    n_kinds = len(kinds.rate)
    if n_kinds > _MOST_KINDS_EXACT:
        return Bound(0.0, "branch and bound")
    sets = [min(level.clusters, n_kinds) for level in levels]
    price = [*(level.price for level in levels), 0.0]
    max_nodes = work // (sum(sets) * len(kinds.members))
    search = make_nested(kinds, sets[0], sets[-1], price[0], price[1])
    best, proven = search_nested(search, max_nodes)
    return Bound(proven, "optimum" if proven >= best else "branch and bound")


def _bound_level(kinds: Kinds, level: _Level, work: int) -> Bound:
    """The best bound of rate x receivers over at most so many clusters."""
    n = level.clusters
    wanted = float(kinds.rate @ kinds.size)
    if n >= len(kinds.rate):
        return Bound(wanted, "wanted")
    if n == 1:
        return Bound(float(kinds.rate.sum() * kinds.weight.sum()), "one cluster")
    pigeonhole = Bound(_bound_pigeonhole(kinds, n), "pigeonhole")
    anchors = Bound(bound_by_anchors(kinds, n, work), "anchors")
    return max(pigeonhole, anchors, key=lambda bound: bound.value)


def _bound_pigeonhole(kinds: Kinds, n_clusters: int) -> float:
    """What is wanted, and one receiver more for all but the fastest `n_clusters` kinds.

    Two kinds of one cluster have different receivers, so that at most one has all that the cluster
    has.
    """
    slow = np.sort(kinds.rate)[: max(len(kinds.rate) - n_clusters, 0)]
    return float(kinds.rate @ kinds.size + slow.sum() * kinds.weight.min())
