"""Flows in several groups, for w1 x received + w2 x sent: `best` against OCA and UBM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.instances import floor_demand, two_class_demand
from benchmarks.measure import Section, shown_seconds
from distributary import ChannelPrices, Demand, Request
from distributary.cost import channel_cost
from distributary.planning import make_plan

PRICES = (ChannelPrices(1, 0.25), ChannelPrices(1, 1), ChannelPrices(1, 8))
ALGORITHMS = ("OCC", "UBM", "best, one copy", "best")


def tiny(instances: int = 60) -> Section:
    """How close each comes to the cost that OCA proves."""
    size, groups = 7, 3
    rows = []
    for prices in PRICES:
        ratios: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
        for seed in range(instances):
            demand = two_class_demand(seed, size)
            proven = _solve(demand, groups, prices, "OCA", seed, 60.0)
            assert proven.proven
            for name, costs in ratios.items():
                found = _solve(demand, groups, prices, name, seed, 1.0)
                # With one copy of each flow OCA's plan may be out of reach, but never beaten.
                assert found.cost >= proven.cost * (1 - 1e-9), (seed, name)
                costs.append(found.cost / proven.cost)
        rows += [
            [
                f"{prices.received:g} : {prices.sent:g}" if name == ALGORITHMS[0] else "",
                name,
                f"{np.mean([ratio < 1 + 1e-9 for ratio in costs]):.0%}",
                f"{np.mean(costs):.4f}",
                f"{max(costs):.4f}",
            ]
            for name, costs in ratios.items()
        ]
    return Section(
        "Flows in several groups: against the proven optimum",
        f"{instances} instances of Adler's generator with {size} flows and receivers and {groups} "
        "groups: w1 x received + w2 x sent over that of OCA, which is proven to be the least. "
        "`best` has 1 s and may send each flow to every group.",
        ["w1 : w2", "algorithm", "optimal", "mean", "worst"],
        rows,
    )


def large(seconds: float = 20.0) -> Section:
    """`best` with and without copies against UBM, where OCA cannot be proven."""
    rows = []
    instances: tuple[tuple[str, Callable[[], Demand], int], ...] = (
        ("two-class, 100 x 100", lambda: two_class_demand(0, 100), 10),
        ("trading floor, 500 receivers", lambda: floor_demand(0), 50),
    )
    for title, make, groups in instances:
        demand = make()
        for prices in PRICES:
            names = ("UBM", "best, one copy", "best")
            found = {name: _solve(demand, groups, prices, name, 0, seconds) for name in names}
            theirs = found["UBM"].cost
            rows += [
                [
                    f"{title}, {groups} groups" if name == "UBM" else "",
                    f"{prices.received:g} : {prices.sent:g}" if name == "UBM" else "",
                    name,
                    f"{one.copies:.2f}",
                    f"{one.cost / theirs:.4f}",
                    f"{one.cost / one.least:.3f}",
                    shown_seconds(one.seconds),
                ]
                for name, one in found.items()
            ]
    return Section(
        "Flows in several groups: beyond proofs",
        "w1 x received + w2 x sent with one session for each group, over UBM's and over C_inf, "
        f"which no plan can reach in general. `best` has {seconds:g} s and may send each flow to "
        "every group, or only once; UBM runs to its end.",
        ["demand", "w1 : w2", "algorithm", "copies of a message", "of UBM's", "of C_inf", "took"],
        rows,
    )


class _Found:
    """A plan's cost, and how it came about."""

    def __init__(self, demand: Demand, request: Request) -> None:
        made = make_plan(demand, request)
        cost = channel_cost(made.solution.plan, demand, request.channel)
        self.cost, self.least = cost.cost, cost.lower_bound
        self.proven, self.seconds = made.solution.proven, made.seconds
        placed = made.solution.plan.placement_flow
        self.copies = float(demand.rate[placed].sum() / demand.rate.sum())


def _solve(
    demand: Demand, groups: int, prices: ChannelPrices, name: str, seed: int, seconds: float
) -> _Found:
    request = Request(
        groups,
        algorithm="best" if name.startswith("best") else name,
        objective="channel",
        channel=prices,
        seed=seed,
        budget_s=seconds,
        max_sent=float(groups) if name == "best" else None,
    )
    return _Found(demand, request)


SECTIONS = {"sharing": tiny, "sharing_large": large}
