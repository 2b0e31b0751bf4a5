"""From demand to plan: every algorithm by its name, the papers' acronyms accepted too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal, get_args

import numpy as np

from distributary.cost import ChannelPrices, FilteringPrices, channel_cost, filtering_cost
from distributary.model import (
    Constraints,
    Demand,
    IndexArray,
    IntArray,
    Interest,
    Plan,
    Previous,
    Rates,
    distinct,
)
from distributary.planning.balancing import balanced, scattered
from distributary.planning.best import PATIENCE, best
from distributary.planning.constrained import best_within
from distributary.planning.duplication import MOST_SENT, duplicate, place_parts
from distributary.planning.habits import by_column, by_hash, by_name
from distributary.planning.hierarchy import (
    Maps,
    annealed,
    groups_first,
    iterative,
    sessions_first,
)
from distributary.planning.hybrid import UnicastLimits, hybrid
from distributary.planning.interruptible import call_interruptibly
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.merging import flow_merge, user_merge
from distributary.planning.optimal import MOST_GROUPS_TO_SHARE, Optimum, optimal, optimal_shared
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.replan import replan, settled, start_maps
from distributary.planning.subscription import channel_bill, place, place_single
from distributary.planning.things import Things, in_messages
from distributary.planning.two_level import BITS

__all__ = ["ALGORITHMS", "DEFAULT_ALGORITHM", "Algorithm", "Request", "Solution", "plan"]

DEFAULT_ALGORITHM = "best"

Objective = Literal["filtering", "channel"]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a solver.

    `sessions` is the most sessions there may be, `groups` the most groups; without `sessions`
    every group is one session. `objective` says which cost the algorithms that choose between
    plans go by. `budget_s` is how long to search: `best` turns it into work (see `planning.best`),
    the exact algorithms, which prove their plan if they end in time, go by the clock, and the
    others run to their own end. `labels` is what `by-column`
    goes by: one for each wanted flow. With `previous`, `best` improves that plan, and with
    `max_moves` it moves no more than so many flows; it also keeps to `constraints`. With `unicast`,
    flows with few receivers may go by unicast: the algorithm then runs twice. With `max_sent` flows
    may travel in several sessions, as long as no more than so many times the rate is sent.
    """

    groups: int
    sessions: int | None = None
    algorithm: str = DEFAULT_ALGORITHM
    objective: Objective = "filtering"
    prices: FilteringPrices = field(default_factory=FilteringPrices)
    seed: int = 0
    budget_s: float = 30.0
    patience: float = PATIENCE  # budgets after which the clock ends `best`
    labels: Sequence[str] | None = None
    previous: Previous | None = None
    max_moves: int | None = None
    max_sent: float | None = None
    constraints: Constraints = field(default_factory=Constraints)
    unicast: UnicastLimits | None = None

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1, not {self.groups}")
        if self.sessions is not None and self.sessions < self.groups:
            raise ValueError(
                f"sessions ({self.sessions}) must be at least groups ({self.groups}): "
                "every group holds a session"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")
        if not self.budget_s > 0:
            raise ValueError(f"budget must be more than 0 seconds, not {self.budget_s}")
        if self.max_moves is not None and (self.max_moves < 0 or self.previous is None):
            raise ValueError("max_moves is a number from 0 on, with a plan to start from")
        if self.previous is not None and self.algorithm.lower() != "best":
            raise ValueError(f"only best improves a plan, not {self.algorithm}")
        if self.constraints and (self.algorithm.lower() != "best" or self.previous is not None):
            raise ValueError("only best keeps to constraints, and only in a plan made anew")
        if self.max_sent is not None:
            if not 1 <= self.max_sent <= MOST_SENT:
                raise ValueError(
                    f"max_sent must be a number from 1 to {MOST_SENT:g}, not {self.max_sent:g}"
                )
            alone = self.previous is None and not self.constraints and self.unicast is None
            if self.algorithm.lower() != "best" or not alone:
                raise ValueError(
                    "only best sends flows more than once, and only in a plan made anew without "
                    "constraints or unicast"
                )
        if self.objective not in get_args(Objective):
            raise ValueError(f"objective must be filtering or channel, not {self.objective!r}")
        if self.algorithm.lower() not in _BY_ANY_NAME:
            raise ValueError(
                f"no algorithm is called {self.algorithm!r}; there are {', '.join(ALGORITHMS)}"
            )
        if self.unicast is not None:
            if self.constraints or self.previous is not None:
                raise ValueError("unicast goes neither with constraints nor with a plan to improve")
            if self.solver.name in _DUPLICATING:
                raise ValueError(
                    f"unicast needs each flow in one session: not so with {self.solver.name}"
                )

    @property
    def weights(self) -> FilteringPrices:
        """The prices to search by. The channel cost knows only what is received from groups."""
        return self.prices if self.objective == "filtering" else FilteringPrices(1.0, 0.0)

    @property
    def solver(self) -> Algorithm:
        """The algorithm asked for, by its name or acronym in any case."""
        return _BY_ANY_NAME[self.algorithm.lower()]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A plan, and what some algorithms know besides.

    `channel_lower_bound` is a bound on the channel cost of any plan of the same kind; `proven`
    says that the plan reaches it. `cut_short` says that the clock ended the search: another run
    with the same seed may give another plan. `session_origin` is the number that each session
    had in the plan that was improved.
    """

    plan: Plan
    channel_lower_bound: float | None = None
    proven: bool = False
    cut_short: bool = False
    session_origin: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to plan: its name and the paper's acronym for it."""

    name: str
    acronym: str
    solve: Callable[[Demand, Request, Progress], Solution]

    @property
    def label(self) -> str:
        """Name and acronym, for tables."""
        return f"{self.name} ({self.acronym})" if self.acronym else self.name


def plan(demand: Demand, request: Request, progress: Progress = silent) -> Solution:
    """Decide which flow travels where and who subscribes to what.

    `progress` is called on another thread than the main one; `KeyboardInterrupt` comes at once.
    """
    return call_interruptibly(partial(_search, demand, request), progress)


def _search(demand: Demand, request: Request, progress: Progress) -> Solution:
    if request.solver.name in _CLOCKED:
        progress(Step("compiling", 0, None))
        _compile(request.solver.name, bool(request.constraints))
    if request.unicast is not None:
        return _hybrid(demand, request, request.unicast, progress)
    return request.solver.solve(demand, request, progress)


@cache
def _compile(algorithm: str, constrained: bool) -> None:
    """Solve a tiny demand, so that all kernels are compiled, or loaded, before a clock starts.

    Otherwise the first run on a machine would spend its time on compiling and find another plan.
    """
    wanted = {"ann": "ab", "bob": "bc", "cyd": "cd"}
    pairs = [(receiver, flow) for receiver, flows in wanted.items() for flow in flows]
    rates = Rates.from_mapping({"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0})
    demand = Demand.of(Interest.from_pairs(pairs), rates)
    budget_s = 0.001 if algorithm == "best" else math.inf
    request = Request(2, 3, algorithm=algorithm, budget_s=budget_s, patience=math.inf)
    request.solver.solve(demand, request, silent)
    if constrained:  # a and d are together at first, so that there is something to repair
        apart = Constraints(apart=(frozenset("ad"),))
        request.solver.solve(demand, replace(request, constraints=apart), silent)


def _hybrid(
    demand: Demand, request: Request, limits: UnicastLimits, progress: Progress
) -> Solution:
    """Some flows by unicast; the proofs of exact algorithms do not cover that and are dropped."""
    solutions: list[Solution] = []

    def solve(rest: Demand) -> Plan:
        asked = replace(request, labels=_labels_of(rest, demand, request.labels))
        solutions.append(request.solver.solve(rest, asked, progress))
        return solutions[-1].plan

    def price(plan: Plan) -> float:
        if request.objective == "filtering":
            return filtering_cost(plan, demand, request.prices).work
        return channel_cost(plan, demand, ChannelPrices()).cost

    sent_price = 0.0 if request.objective == "filtering" else ChannelPrices().sent
    found = hybrid(demand, limits, solve, price, request.weights, sent_price)
    return Solution(found, cut_short=any(solution.cut_short for solution in solutions))


def _labels_of(rest: Demand, demand: Demand, labels: Sequence[str] | None) -> Sequence[str] | None:
    """The labels of the flows that are left."""
    if labels is None or len(labels) != len(demand.rate):
        return labels
    label = dict(zip(demand.interest.flows, labels, strict=True))
    return [label[flow] for flow in rest.interest.flows]


def _flat(demand: Demand, group: IndexArray) -> Solution:
    """One session per group."""
    return _placed(demand, Maps(group, np.arange(int(group.max()) + 1, dtype=np.int32)))


def _placed(demand: Demand, maps: Maps) -> Solution:
    """The plan of two maps, without their empty sessions and groups."""
    maps = maps.compact()
    return Solution(place_single(demand, maps.session, maps.group))


def _random(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _flat(demand, scattered(len(demand.rate), request.groups, _rng(request)))


def _balanced_size(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _flat(demand, balanced(np.ones(len(demand.rate)), request.groups, _rng(request)))


def _balanced_rate(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _flat(demand, balanced(demand.rate, request.groups, _rng(request)))


def _flow_merge(demand: Demand, request: Request, progress: Progress) -> Solution:
    return _flat(demand, flow_merge(demand, request.groups, progress))


def _user_merge(demand: Demand, request: Request, progress: Progress) -> Solution:
    """Each receiver on the one group that was merged for it: it carries all that it wants."""
    interest = demand.interest
    group = user_merge(demand, request.groups, progress)
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
    optimum = optimal(demand, _groups_at_most(demand, request), request.budget_s, progress)
    group = np.argmax(optimum.in_group, axis=1).astype(np.int32)
    return _proven(_flat(demand, group).plan, optimum)


def _optimal_shared(demand: Demand, request: Request, progress: Progress) -> Solution:
    if _groups_at_most(demand, request) > MOST_GROUPS_TO_SHARE:
        return _better_of_single_and_merged(demand, request, progress)
    optimum = optimal_shared(demand, _groups_at_most(demand, request), request.budget_s, progress)
    flow, session = (index.astype(np.int32) for index in np.nonzero(optimum.in_group))
    group = np.arange(optimum.in_group.shape[1], dtype=np.int32)
    rate = demand.rate @ optimum.in_group
    return _proven(place(demand, flow, session, group, channel_bill(rate, group)), optimum)


def _better_of_single_and_merged(demand: Demand, request: Request, progress: Progress) -> Solution:
    """What is left of OCA with too many groups to search: two plans, and C_inf as the bound."""
    solutions = [solve(demand, request, progress) for solve in (_optimal, _user_merge)]
    plans = [solution.plan for solution in solutions]
    costs = [channel_cost(plan, demand, ChannelPrices()) for plan in plans]
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
    start = random_start(len(things), request.groups, _rng(request))
    return _flat(demand, kmeans(things, start, request.groups))


def _by_hash(demand: Demand, request: Request, progress: Progress) -> Solution:
    _, sessions, groups = _sizes(demand, request)
    return _placed(demand, by_hash(demand.interest.flows, sessions, groups))


def _by_name(demand: Demand, request: Request, progress: Progress) -> Solution:
    _, sessions, groups = _sizes(demand, request)
    return _placed(demand, by_name(len(demand.rate), sessions, groups))


def _by_column(demand: Demand, request: Request, progress: Progress) -> Solution:
    if request.labels is None or len(request.labels) != len(demand.rate):
        raise ValueError("by-column needs a label for each wanted flow: name a column")
    _, sessions, groups = _sizes(demand, request)
    return _placed(demand, by_column(request.labels, demand.rate, sessions, groups))


def _best(demand: Demand, request: Request, progress: Progress) -> Solution:
    things, sessions, groups = _sizes(demand, request, bits=BITS)
    rng, prices, budget_s = _rng(request), request.weights, request.budget_s
    told = _in_rates(progress, demand, BITS)
    if request.constraints:
        found = best_within(
            demand, request.constraints, sessions, groups, rng, prices, budget_s, told
        )
        placed = place_single(demand, found.maps.session, found.maps.group)
        return Solution(placed, cut_short=found.cut_short)
    if request.max_sent is not None:
        found = best(
            things, sessions, groups, rng, prices, budget_s / 2, told, patience=request.patience
        )
        homes = user_merge(demand, groups)
        parts = duplicate(
            things, found.maps, prices, request.max_sent, rng, told, homes, budget_s / 2
        )
        return Solution(place_parts(demand, parts), cut_short=found.cut_short)
    if request.previous is None:
        found = best(
            things, sessions, groups, rng, prices, budget_s, told, patience=request.patience
        )
        return replace(_placed(demand, found.maps), cut_short=found.cut_short)
    known = len(request.previous.session_group), int(request.previous.session_group.max()) + 1
    sessions = min(request.sessions or request.groups, max(len(things), known[0]))
    groups = min(request.groups, sessions)
    start, home = start_maps(request.previous, demand.interest, sessions, groups)
    if request.max_moves is None:
        start = settled(things, start, home, prices)
        found = best(
            things, sessions, groups, rng, prices, budget_s, told, start, patience=request.patience
        )
        maps, cut_short = found.maps, found.cut_short
    else:
        cut_short = False
        maps = replan(things, start, home, prices, request.max_moves, told)
    maps, origin = maps.closed_up()
    placed = place_single(demand, maps.session, maps.group)
    return Solution(placed, cut_short=cut_short, session_origin=origin)


def _two_level(solver: Callable[..., Maps]) -> Callable[[Demand, Request, Progress], Solution]:
    """Run a published solver of two levels on whole-number rates."""

    def solve(demand: Demand, request: Request, progress: Progress) -> Solution:
        things, sessions, groups = _sizes(demand, request)
        told = _in_rates(progress, demand)
        rng, prices = _rng(request), request.weights
        return _placed(demand, solver(things, sessions, groups, rng, prices, told))

    return solve


def _sizes(demand: Demand, request: Request, bits: int = 60) -> tuple[Things, int, int]:
    """The flows, and how many sessions and groups there can be: no more than flows."""
    sessions = min(request.sessions or request.groups, len(demand.rate))
    return Things.flows_of(demand, bits), sessions, min(request.groups, sessions)


def _in_rates(progress: Progress, demand: Demand, bits: int = 60) -> Progress:
    """Costs told in messages per second, where a solver knows whole numbers only."""
    n_receivers = len(demand.interest.receivers)

    def tell(step: Step) -> None:
        if step.best is not None:
            step = replace(step, best=in_messages(step.best, demand.rate, n_receivers, bits))
        progress(step)

    return tell


def _groups_at_most(demand: Demand, request: Request) -> int:
    return min(request.groups, len(demand.rate))


def _proven(plan: Plan, optimum: Optimum) -> Solution:
    return Solution(plan, optimum.lower_bound, optimum.proven, cut_short=not optimum.proven)


def _rng(request: Request) -> np.random.Generator:
    return np.random.default_rng(request.seed)


_ALL = (
    Algorithm("best", "", _best),
    # What people do today.
    Algorithm("hash", "", _by_hash),
    Algorithm("by-name", "", _by_name),
    Algorithm("by-column", "", _by_column),
    # Adler et al., section 4 and 5.2.1: one level, so one session per group.
    Algorithm("random", "RAN", _random),
    Algorithm("balanced-size", "RSE", _balanced_size),
    Algorithm("balanced-rate", "RRE", _balanced_rate),
    Algorithm("flow-merge", "FBM", _flow_merge),
    Algorithm("user-merge", "UBM", _user_merge),
    Algorithm("optimal", "OCC", _optimal),
    Algorithm("optimal-shared", "OCA", _optimal_shared),
    # Tock et al., section 4: k-means by itself, and in two levels.
    Algorithm("kmeans", "", _kmeans),
    Algorithm("sessions-first", "SF", _two_level(sessions_first)),
    Algorithm("groups-first", "GF", _two_level(groups_first)),
    Algorithm("iterative", "IT", _two_level(iterative)),
    Algorithm("annealed", "RRA", _two_level(annealed)),
)

_CLOCKED = ("best", "optimal", "optimal-shared")  # they stop when their time is over
_DUPLICATING = ("user-merge", "optimal-shared")  # they may put a flow in several sessions

ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ALL}
_BY_ANY_NAME = {**ALGORITHMS, **{a.acronym.lower(): a for a in _ALL if a.acronym}}
