"""From demand to plan: every algorithm by its name or by the paper's acronym."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Unpack, overload

import numpy as np

from distributary.cost import channel_cost, count_for
from distributary.model import (
    Constraints,
    Demand,
    FloatArray,
    IndexArray,
    IntArray,
    Interest,
    Pairs,
    Plan,
    Previous,
    Rates,
    RatesByFlow,
    distinct,
)
from distributary.planning.balancing import balance, scatter
from distributary.planning.best import Allowance, best
from distributary.planning.habits import by_column, by_hash, by_name
from distributary.planning.hierarchy import (
    Maps,
    TwoLevelProblem,
    groups_first,
    iterative,
    scatter_and_regroup,
    sessions_first,
)
from distributary.planning.interruptible import call_interruptibly
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.merging import flow_merge, user_merge
from distributary.planning.optimal import MOST_GROUPS_TO_SHARE, optimal, optimal_shared
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.request import Request, RequestSettings
from distributary.planning.subscription import place_shared, place_single
from distributary.planning.things import Things, in_messages
from distributary.planning.two_level import BITS, settle
from distributary.planning.weighted import WholeWeights, gather_receivers, repeat_receivers
from distributary.planning.with_terms import check_size, has_terms, plan_with_terms

__all__ = ["Solution", "plan"]

_CLOCKED = ("best", "optimal", "optimal-shared")  # those that the clock may stop
_WEIGHING = ("user-merge", "optimal-shared")  # those that take weights of receivers
_COPIES = 16  # of each receiver, on average and at most, for the others


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A plan, and additional results of some algorithms.

    `channel_lower_bound` is a lower bound of the channel cost of any plan of the same kind;
    `proven` says that the plan reaches it. `cut_short` says that the clock ended the search, so
    another run with the same seed may give another plan. `session_origin` is the number of each
    session in the plan that was improved.
    """

    plan: Plan
    channel_lower_bound: float | None = None
    proven: bool = False
    cut_short: bool = False
    session_origin: IntArray | None = None


@overload
def plan(demand: Demand, request: Request, progress: Progress = silent) -> Solution: ...


@overload
def plan(
    interest: Interest | Pairs,
    rates: Rates | RatesByFlow,
    progress: Progress = silent,
    /,
    *,
    groups: int,
    sessions: int | None = None,
    **settings: Unpack[RequestSettings],
) -> Solution: ...


def plan(
    demand: Any,
    request: Any,
    progress: Progress = silent,
    **settings: Any,
) -> Solution:
    """Decide which session carries each flow and who subscribes to what.

    Instead of a demand and a request it also accepts their parts, `plan(pairs, rates, groups=2)`:
    see `Demand.of` and `Request`. `progress` is not called on the main thread, so that
    `KeyboardInterrupt` is raised at once.
    """
    if isinstance(demand, Demand) != isinstance(request, Request):
        raise TypeError("give a demand and a request, or interest, rates and settings")
    if not isinstance(demand, Demand):
        if "groups" not in settings:
            raise TypeError("say how many groups there may be, such as groups=2")
        demand, request = Demand.of(demand, request), Request(**settings)
    elif settings:
        raise TypeError(f"the request has {min(settings)!r} already: change it there")
    return call_interruptibly(partial(_search, demand, request), progress)


def _search(demand: Demand, request: Request, progress: Progress) -> Solution:
    if request.solver.name in _CLOCKED:
        progress(Step("compiling", 0, None))
        _compile_for(request)
    if request.solver.name == "best":
        return _best(demand, request, progress)
    weights = request.weigh(demand.interest)
    if request.search.objective == "filtering":
        demand = count_for(demand, request.prices)
    if weights is not None and request.solver.name not in _WEIGHING:
        return _plan_weighted(demand, request, weights, progress)
    return _solve(demand, request, progress)


def _plan_weighted(
    demand: Demand, request: Request, weights: FloatArray, progress: Progress
) -> Solution:
    """Plan for as many receivers as each one's weight says; rounded weights prove nothing."""
    whole = WholeWeights.of(weights, most=_COPIES * len(weights))
    repeated = repeat_receivers(demand, whole.receivers)
    solution = _solve(repeated, request.replace(receiver_weights={}), progress)
    bound = solution.channel_lower_bound
    if bound is not None:
        sent = request.channel.sent * float(demand.rate.sum())
        bound = whole.unit * (bound - sent) + sent if whole.exact else None
    return replace(
        solution,
        plan=gather_receivers(solution.plan, demand, whole.receivers),
        channel_lower_bound=bound,
        proven=solution.proven and whole.exact,
    )


def _solve(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _SOLVERS[request.solver.name](demand, request, progress)


def _compile_for(request: Request) -> None:
    """Compile, or load, what a request needs."""
    with_terms = request.solver.name == "best" and has_terms(request)
    _compile(request.solver.name, with_terms, with_terms and request.terms.max_sent is not None)


@cache
def _compile(algorithm: str, with_terms: bool, with_copies: bool) -> None:
    """Solve a tiny demand, so that all kernels are compiled, or loaded, before the clock starts.

    Otherwise the first run on a machine would spend its budget on compiling and find another plan.
    """
    wanted = {"ann": "ab", "bob": "bc", "cyd": "cd"}
    pairs = [(receiver, flow) for receiver, flows in wanted.items() for flow in flows]
    rates = Rates.from_mapping({"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0})
    demand = Demand.of(Interest.from_pairs(pairs), rates)
    budget_s = 0.001 if algorithm == "best" else math.inf
    request = Request(2, 3, algorithm=algorithm, budget_s=budget_s, patience=math.inf)
    _solve(demand, request, silent)
    if with_terms:
        apart = Constraints(apart=(frozenset("ad"),))
        max_sent = 2.0 if with_copies else None
        _solve(demand, request.replace(constraints=apart, max_sent=max_sent), silent)


def _place_flat(demand: Demand, group: IndexArray) -> Solution:
    """One session per group."""
    return _place_maps(demand, Maps(group, np.arange(int(group.max()) + 1, dtype=np.int32)))


def _place_maps(demand: Demand, maps: Maps) -> Solution:
    """The plan of two maps, without empty sessions and groups."""
    maps = maps.compact()
    return Solution(place_single(demand, maps.session, maps.group))


def _random(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _place_flat(demand, scatter(len(demand.rate), request.size.groups, _rng(request)))


def _balanced_size(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _place_flat(
        demand, balance(np.ones(len(demand.rate)), request.size.groups, _rng(request))
    )


def _balanced_rate(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _place_flat(demand, balance(demand.rate, request.size.groups, _rng(request)))


def _flow_merge(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _place_flat(demand, flow_merge(demand, request.size.groups, progress))


def _user_merge(demand: Demand, request: Request, progress: Progress) -> Solution:
    """Each receiver joins only the group that was merged for it, which carries all it wants."""
    interest = demand.interest
    group = user_merge(demand, request.size.groups, progress, _weigh_all(demand, request))
    n_groups = int(group.max()) + 1
    flow = interest.pair_flows().astype(np.int64)
    keys = distinct(flow * n_groups + group[interest.flow_receivers])
    return Solution(
        Plan(
            receivers=interest.receivers,
            flows=interest.flows,
            placement_flow=(keys // n_groups).astype(np.int32),
            placement_session=(keys % n_groups).astype(np.int32),
            session_group=np.arange(n_groups, dtype=np.int32),
            subscription_receiver=np.arange(len(interest.receivers), dtype=np.int32),
            subscription_session=group,
        )
    )


def _optimal(demand: Demand, request: Request, progress: Progress) -> Solution:
    optimum = optimal(demand, _groups_at_most(demand, request), request.search.budget_s, progress)
    group = np.argmax(optimum.in_group, axis=1).astype(np.int32)
    prices, sent = request.channel, float(demand.rate.sum())
    bound = prices.received * (optimum.lower_bound - sent) + prices.sent * sent
    placed = _place_flat(demand, group).plan
    return Solution(placed, bound, optimum.proven, cut_short=not optimum.proven)


def _optimal_shared(demand: Demand, request: Request, progress: Progress) -> Solution:
    if _groups_at_most(demand, request) > MOST_GROUPS_TO_SHARE:
        return _better_of_single_and_merged(demand, request, progress)
    weights = _weigh_all(demand, request)
    optimum = optimal_shared(
        demand, _groups_at_most(demand, request), request.search.budget_s, progress, weights
    )
    return Solution(
        place_shared(demand, optimum.in_group),
        optimum.lower_bound if weights.exact else None,
        proven=optimum.proven and weights.exact,
        cut_short=not optimum.proven,
    )


def _weigh_all(demand: Demand, request: Request) -> WholeWeights:
    """What each receiver receives, and what is sent, in whole numbers of one unit."""
    weights, prices = request.weigh(demand.interest), request.channel
    ones = np.ones(len(demand.interest.receivers))
    return WholeWeights.of(prices.received * (ones if weights is None else weights), prices.sent)


def _better_of_single_and_merged(demand: Demand, request: Request, progress: Progress) -> Solution:
    """The cheaper of two plans, with C_inf as the bound, if OCA has too many groups to search."""
    solutions = [solve(demand, request, progress) for solve in (_optimal, _user_merge)]
    plans = [solution.plan for solution in solutions]
    weights = request.weigh(demand.interest)
    costs = [channel_cost(plan, demand, request.channel, weights=weights) for plan in plans]
    cheaper = min(range(2), key=lambda i: costs[i].cost)
    bound = costs[cheaper].lower_bound
    return replace(
        solutions[cheaper],
        channel_lower_bound=bound,
        proven=math.isclose(costs[cheaper].cost, bound),
        cut_short=solutions[0].cut_short,
    )


def _kmeans(demand: Demand, request: Request, progress: Progress) -> Solution:
    things = Things.flows_of(demand)
    start = random_start(len(things), request.size.groups, _rng(request))
    return _place_flat(demand, kmeans(things, start, request.size.groups))


def _by_hash(demand: Demand, request: Request, progress: Progress) -> Solution:
    sessions, groups = _sizes(demand, request)
    return _place_maps(demand, by_hash(demand.interest.flows, sessions, groups))


def _by_name(demand: Demand, request: Request, progress: Progress) -> Solution:
    sessions, groups = _sizes(demand, request)
    return _place_maps(demand, by_name(len(demand.rate), sessions, groups))


def _by_column(demand: Demand, request: Request, progress: Progress) -> Solution:
    if request.search.labels is None or len(request.search.labels) != len(demand.rate):
        raise ValueError("by-column needs a label for each wanted flow: name a column")
    sessions, groups = _sizes(demand, request)
    return _place_maps(demand, by_column(request.search.labels, demand.rate, sessions, groups))


def _best(demand: Demand, request: Request, progress: Progress) -> Solution:
    if has_terms(request):
        found = plan_with_terms(demand, request, _rng(request), progress)
        return Solution(found.plan, cut_short=found.cut_short, session_origin=found.session_origin)
    tell = _in_rates(progress, demand, BITS)
    if request.change.previous is not None:
        return _improve(request.change.previous, demand, request, tell)
    allowance = Allowance(request.search.budget_s, request.search.patience)
    annealed = best(_state_problem(demand, request, BITS), _rng(request), allowance, tell)
    return replace(_place_maps(demand, annealed.maps), cut_short=annealed.cut_short)


def _improve(previous: Previous, demand: Demand, request: Request, progress: Progress) -> Solution:
    """Improve an existing plan, which may have more sessions than there are flows now."""
    things = Things.flows_of(demand, BITS)
    known = len(previous.session_group)
    sessions = min(request.size.most_sessions, max(len(things), known))
    groups = min(request.size.groups, sessions)
    check_size(previous, sessions, groups)
    more = (np.arange(sessions - known) % groups).astype(np.int32)
    home = np.array([previous.session_of.get(flow, -1) for flow in demand.interest.flows], np.int32)
    start = Maps(np.maximum(home, 0), np.concatenate([previous.session_group, more]))
    start = settle(things, start, home, request.linear_prices)
    problem = TwoLevelProblem(things, sessions, groups, request.linear_prices)
    allowance = Allowance(request.search.budget_s, request.search.patience)
    found = best(problem, _rng(request), allowance, progress, start)
    maps, origin = found.maps.close_gaps()
    placed = place_single(demand, maps.session, maps.group)
    return Solution(placed, cut_short=found.cut_short, session_origin=origin)


def _two_level(solver: Callable[..., Maps]) -> Callable[[Demand, Request, Progress], Solution]:
    """Run a published two-level solver on whole-number rates."""

    def solve(demand: Demand, request: Request, progress: Progress) -> Solution:
        problem, tell = _state_problem(demand, request), _in_rates(progress, demand)
        return _place_maps(demand, solver(problem, _rng(request), tell))

    return solve


def _state_problem(demand: Demand, request: Request, bits: int = 60) -> TwoLevelProblem:
    """The flows, and the numbers of sessions and groups, limited to the number of flows."""
    sessions, groups = _sizes(demand, request)
    return TwoLevelProblem(Things.flows_of(demand, bits), sessions, groups, request.linear_prices)


def _sizes(demand: Demand, request: Request) -> tuple[int, int]:
    sessions = min(request.size.most_sessions, len(demand.rate))
    return sessions, min(request.size.groups, sessions)


def _in_rates(progress: Progress, demand: Demand, bits: int = 60) -> Progress:
    """Report costs in messages per second, for a solver that uses whole numbers."""
    n_receivers = len(demand.interest.receivers)

    def tell(step: Step) -> None:
        if step.best is not None:
            step = replace(step, best=in_messages(step.best, demand.rate, n_receivers, bits))
        progress(step)

    return tell


def _groups_at_most(demand: Demand, request: Request) -> int:
    return min(request.size.groups, len(demand.rate))


def _rng(request: Request) -> np.random.Generator:
    return np.random.default_rng(request.search.seed)


_SOLVERS: Mapping[str, Callable[[Demand, Request, Progress], Solution]] = {
    "best": _best,
    "hash": _by_hash,
    "by-name": _by_name,
    "by-column": _by_column,
    "random": _random,
    "balanced-size": _balanced_size,
    "balanced-rate": _balanced_rate,
    "flow-merge": _flow_merge,
    "user-merge": _user_merge,
    "optimal": _optimal,
    "optimal-shared": _optimal_shared,
    "kmeans": _kmeans,
    "sessions-first": _two_level(sessions_first),
    "groups-first": _two_level(groups_first),
    "iterative": _two_level(iterative),
    "annealed": _two_level(scatter_and_regroup),
}
