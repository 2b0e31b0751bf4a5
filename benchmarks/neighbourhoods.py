"""Other neighbourhoods for `best`, each at the CPU time of one plain chain of annealing.

None of these searches is part of the planner: the table says what each of them would bring. Each
spends about the sweeps that it is given. What it does beside sweeping takes time too, so it is
measured first and then given fewer sweeps, such that all searches take equally long, except those
that say otherwise.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.instances import floor_demand
from benchmarks.measure import Section
from benchmarks.planner import real_demand
from distributary import Demand
from distributary.compiled import kernel
from distributary.model import FloatArray, IntArray
from distributary.planning._anneal_kernels import draw_moves
from distributary.planning._state_kernels import State, apply_moves, move
from distributary.planning.best import COLDEST, HOTTEST, ROUNDS_PER_REGROUP, SWEEPS_PER_ROUND
from distributary.planning.classes import cut_parts, join_parts
from distributary.planning.hierarchy import Maps, TwoLevelProblem, groups_first
from distributary.planning.kmeans import kmeans
from distributary.planning.things import Things
from distributary.planning.two_level import BITS, TwoLevel

SEEDS = 3
SWEEPS_PER_REGROUP = SWEEPS_PER_ROUND * ROUNDS_PER_REGROUP
WARM = 0.1  # a temperature, in units of the mean cost of a flow, that keeps most of a plan
SECOND = 0.5  # the share of the sweeps that go into improving the plan of a first chain


@dataclass(frozen=True)
class Task:
    """A problem, the maps to start from, the sweeps to spend and the mean cost of a flow."""

    problem: TwoLevelProblem
    maps: Maps
    sweeps: int
    unit: float


class Chain:
    """One annealing: the state now, and the source of chance."""

    def __init__(self, problem: TwoLevelProblem, maps: Maps, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        self.state = _state_of(problem, maps)
        self.batches = 0  # of a sweep; in each, draws do not see each other. 0: all see all earlier

    def cool(
        self, sweeps: int, unit: float, hottest: float = HOTTEST, jump: Jump | None = None
    ) -> TwoLevel:
        """Sweep while the temperature falls, jump in between, and descend."""
        n, rng = len(self.problem.things), self.rng
        heat = unit * hottest * (COLDEST / hottest) ** np.linspace(0, 1, max(2, sweeps))
        for done, temperature in enumerate(heat):
            self._sweep(rng.permutation(n), rng.random(n), temperature)
            if done % SWEEPS_PER_REGROUP == 0:
                self.state.regroup(rng.random(self.state.n_sessions), temperature)
            if jump is not None and done % SWEEPS_PER_REGROUP == SWEEPS_PER_REGROUP // 2:
                jump(self, temperature)
        self.state.descend(passes=max(2, sweeps // 40))
        return self.state

    def _sweep(self, order: IntArray, chance: FloatArray, temperature: float) -> None:
        if not self.batches:
            self.state.sweep(order, chance, temperature)
            return
        prices, state = self.state.move_prices(), self.state.state
        parts = np.array_split(order, self.batches), np.array_split(chance, self.batches)
        for flows, chances in zip(*parts, strict=True):
            target = np.empty(len(flows), np.int32)
            draw_moves(flows, chances, prices, temperature, state, target)
            apply_moves(flows, target, state)

    def accepts(self, rise: float, temperature: float) -> bool:
        """Whether a step is taken that raises the cost by so much (Metropolis)."""
        return rise <= -temperature * np.log(1 - self.rng.random())

    def offer(self, other: TwoLevel, temperature: float) -> None:
        """Continue from another state if its cost is accepted."""
        if self.accepts(other.work - self.state.work, temperature):
            self.state = other


Jump = Callable[[Chain, float], None]
Search = Callable[[Task, np.random.Generator], float]


def anneal_once(task: Task, rng: np.random.Generator, jump: Jump | None = None) -> float:
    """One chain over all sweeps, as `best` runs it, and perhaps jumps of another kind."""
    return Chain(task.problem, task.maps, rng).cool(task.sweeps, task.unit, jump=jump).work


def anneal_twice(task: Task, rng: np.random.Generator) -> float:
    """The better of two chains of half the sweeps."""
    half = replace(task, sweeps=task.sweeps // 2)
    return min(anneal_once(half, rng) for _ in range(2))


def anneal_longer(task: Task, rng: np.random.Generator) -> float:
    """One chain over twice the sweeps: not at equal time, but what more time brings."""
    return anneal_once(replace(task, sweeps=2 * task.sweeps), rng)


def anneal_in_batches(task: Task, rng: np.random.Generator, batches: int = 16) -> float:
    """One chain over the same sweeps, in batches that threads could draw side by side."""
    chain = Chain(task.problem, task.maps, rng)
    chain.batches = batches
    return chain.cool(task.sweeps, task.unit).work


def reheat(task: Task, rng: np.random.Generator, times: int = 2) -> float:
    """Warm the best plan up and cool it again, as a whole."""
    best = _first_plan(task, rng)
    for _ in range(times):
        chain = Chain(task.problem, best.maps, rng)
        again = chain.cool(int(SECOND * task.sweeps / times), task.unit, WARM)
        best = min(best, again, key=lambda state: state.work)
    return best.work


def reheat_groups(task: Task, rng: np.random.Generator, n_groups: int = 4) -> float:
    """Anneal a group and those most like it apart from the rest, again and again."""
    problem, sweeps = task.problem, 40
    maps = _first_plan(task, rng).maps
    share = n_groups / problem.n_groups
    for _ in range(int(SECOND * task.sweeps / sweeps / share)):
        audiences = _state_of(problem, maps).state.groups.present
        of_group = np.zeros(problem.n_groups, np.int64)
        of_group[_most_alike(audiences, int(rng.integers(problem.n_groups)), n_groups)] = 1
        part = cut_parts(problem.things, maps, of_group)[-1]
        inner = TwoLevelProblem(part.things, len(part.sessions), len(part.groups), problem.prices)
        found = Chain(inner, part.maps, rng).cool(sweeps, task.unit, HOTTEST / 2)
        if found.work < inner.price(part.maps):
            maps = join_parts(maps, [part], [found.maps])
    return problem.price(maps)


def cross(task: Task, rng: np.random.Generator) -> float:
    """Anneal two plans, mix their groups into a third, and anneal that one from warm."""
    problem, sweeps = task.problem, int((1 - SECOND) / 2 * task.sweeps)
    starts = (task.maps, groups_first(problem, rng))
    parents = [Chain(problem, maps, rng).cool(sweeps, task.unit) for maps in starts]
    child = Chain(problem, _mix_groups(problem, parents, rng), rng)
    found = child.cool(int(SECOND * task.sweeps), task.unit, WARM)
    return min(state.work for state in (*parents, found))


def swap_flows(chain: Chain, temperature: float) -> None:
    """Exchange the sessions of two flows with a receiver in common, as often as there are flows."""
    things, rng = chain.problem.things, chain.rng
    flow = np.repeat(np.arange(len(things)), np.diff(things.offsets))
    order = np.argsort(things.members, kind="stable")
    first = np.searchsorted(things.members[order], np.arange(things.n_receivers + 1))
    at = rng.integers(len(flow), size=len(things))
    low, high = first[things.members[at]], first[things.members[at] + 1]
    other = order[rng.integers(low, high)]
    limits = -temperature * np.log(1 - rng.random(len(things)))
    prices = chain.problem.prices
    _swap(flow[at], flow[other], limits, prices.alpha, prices.beta, chain.state.state)


@kernel
def _swap(
    ones: IntArray,  # IN   for each swap, a flow
    others: IntArray,  # IN   and another
    limits: FloatArray,  # IN   by how much each swap may raise the cost
    alpha: float,
    beta: float,
    state: State,  # IN and OUT
) -> None:
    for i in range(len(ones)):
        a, b = state.session[ones[i]], state.session[others[i]]
        before = _cost_of_both(a, b, alpha, beta, state)
        move(ones[i], b, state)
        move(others[i], a, state)
        if _cost_of_both(a, b, alpha, beta, state) - before > limits[i]:
            move(ones[i], a, state)
            move(others[i], b, state)


@kernel
def _cost_of_both(a: int, b: int, alpha: float, beta: float, state: State) -> float:
    """What two sessions and their groups cost."""
    sessions, groups = state.sessions, state.groups
    m, n = state.group[a], state.group[b]
    accepted = sessions.audience[a] * sessions.total[a] + sessions.audience[b] * sessions.total[b]
    received = groups.audience[m] * groups.total[m] + groups.audience[n] * groups.total[n]
    return alpha * received + beta * accepted


def merge_and_split(chain: Chain, temperature: float, tries: int = 4) -> None:
    """Merge a session with the one most like it in its group, and split another by 2-means."""
    rng = chain.rng
    for _ in range(tries):
        maps, level = chain.state.maps, chain.state.state.sessions
        cost = level.audience * level.total
        freed = int(rng.integers(len(cost)))
        large = int(rng.choice(len(cost), p=cost / cost.sum()))
        in_group = np.flatnonzero(maps.group == maps.group[freed])
        at = int(np.searchsorted(in_group, freed))
        alike = in_group[_most_alike(level.present[:, in_group], at, 2)]
        into = int(alike[-1])
        if len({freed, into, large}) < 3:
            continue
        flows = np.flatnonzero(maps.session == large)
        half = rng.integers(2, size=len(flows)).astype(np.int32)
        half = kmeans(chain.problem.things.subset(flows), half, 2)
        maps.session[maps.session == freed] = into
        maps.session[flows[half == 1]] = freed
        maps.group[freed] = maps.group[large]
        chain.offer(_state_of(chain.problem, maps), temperature)


def move_session(chain: Chain, temperature: float, tries: int = 4) -> None:
    """Move a session to any group and redraw its flows and those of that group."""
    problem, rng = chain.problem, chain.rng
    for _ in range(tries):
        maps = chain.state.maps
        session, group = rng.integers(problem.n_sessions), rng.integers(problem.n_groups)
        flows = np.flatnonzero((maps.session == session) | (maps.flow_group == group))
        maps.group[session] = group
        other = _state_of(problem, maps)
        other.sweep(rng.permutation(flows), rng.random(len(flows)), temperature)
        chain.offer(other, temperature)


SEARCHES: dict[str, Search] = {
    "one chain, as `best` runs it": anneal_once,
    "one chain, twice the time": anneal_longer,
    "one chain, the same sweeps in 16 batches drawn at once": anneal_in_batches,
    "the better of two chains of half the length": anneal_twice,
    "half for a first plan, half for reheating it as a whole": reheat,
    "half for a first plan, half for reheating 4 similar groups at a time": reheat_groups,
    "half for two plans, half for a plan mixed of their groups": cross,
    "jumps: swap two flows that share a receiver": partial(anneal_once, jump=swap_flows),
    "jumps: merge two sessions, split a third": partial(anneal_once, jump=merge_and_split),
    "jumps: a session to any group, flows redrawn": partial(anneal_once, jump=move_session),
}


AT_OTHER_TIMES = (anneal_once, anneal_longer, anneal_in_batches)


def neighbourhoods() -> Section:
    """What each search brings over one plain chain at equal CPU time."""
    rows: list[list[str]] = [[name] for name in SEARCHES]
    titles = []
    for title, demand, groups, sessions, sweeps in _demands():
        titles.append(f"{title}, {groups} groups, {sessions:,} sessions")
        things, _ = Things.flows_of(demand, BITS).kinds()
        problem = TwoLevelProblem(things, sessions, groups)
        maps = groups_first(problem, np.random.default_rng(0))
        task = Task(problem, maps, sweeps, problem.price(maps) / len(things))
        plain, plain_s = _run(anneal_once, task)
        for row, (name, search) in zip(rows, SEARCHES.items(), strict=True):
            asked = task
            if search not in AT_OTHER_TIMES:
                _, seconds = _run(search, task, seeds=1)
                asked = replace(task, sweeps=round(sweeps * plain_s / seconds))
            found, seconds = (plain, plain_s) if search is anneal_once else _run(search, asked)
            change = found / plain.mean() - 1
            error = change.std(ddof=1) / len(change) ** 0.5
            row.append(f"{change.mean():+.2%} ± {error:.2%} ({seconds / plain_s:.2f})")
            print(f"{titles[-1]}: {name}: {row[-1]}", file=sys.stderr)
    return Section(
        "Other neighbourhoods at equal time",
        f"The change of Cw against one plain chain, mean and standard error of {SEEDS} seeds, all "
        "from the same groups-first plan; in brackets the CPU time against the plain chain's. "
        "alpha = beta = 1, one thread. Jumps are made between sweeps, at the temperature of the "
        "moment, and accepted by Metropolis' rule. Batches are drawn one after the other here, in "
        "double precision: their row says what the search loses if draws do not see each other.",
        ["search", *titles],
        rows,
    )


def _demands() -> list[tuple[str, Demand, int, int, int]]:
    """Demands by name, with groups, sessions and the sweeps of the plain chain."""
    folder = os.environ.get("DISTRIBUTARY_DATA")
    if not folder:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    cran = real_demand(Path(folder) / "cran-mirror-log", "interest")
    maintainers = real_demand(Path(folder) / "debian", "interest_maintainers")
    return [
        ("floor of 6,000 symbols x 200", floor_demand(0, 6_000, 200), 50, 300, 600),
        ("floor of 20,000 symbols x 500", floor_demand(0), 50, 200, 200),
        ("cran-mirror-log", cran, 50, 500, 100),
        ("debian maintainers", maintainers, 50, 500, 100),
    ]


def _run(search: Search, task: Task, seeds: int = SEEDS) -> tuple[FloatArray, float]:
    """The costs found with each of the seeds, and the mean CPU time of a run."""
    search(replace(task, sweeps=20), np.random.default_rng(0))  # compile first
    began = time.process_time()
    found = [search(task, np.random.default_rng(seed)) for seed in range(seeds)]
    return np.array(found), (time.process_time() - began) / seeds


def _state_of(problem: TwoLevelProblem, maps: Maps) -> TwoLevel:
    return TwoLevel(problem.things, maps, problem.prices, problem.n_groups)


def _first_plan(task: Task, rng: np.random.Generator) -> TwoLevel:
    chain = Chain(task.problem, task.maps, rng)
    return chain.cool(int((1 - SECOND) * task.sweeps), task.unit)


def _most_alike(present: np.ndarray, one: int, n: int) -> IntArray:
    """The channel itself and those that share most receivers with it (by the cosine)."""
    flags = present.astype(np.float32)
    sizes = np.maximum(1, flags.sum(axis=0))
    alike = flags.T @ flags[:, one] / np.sqrt(sizes * sizes[one])
    alike[one] = np.inf
    return np.argsort(-alike, kind="stable")[:n]


def _mix_groups(
    problem: TwoLevelProblem, parents: list[TwoLevel], rng: np.random.Generator
) -> Maps:
    """Take from each parent in turn the group that serves most of what is still left.

    A group brings its flows that are left, in their sessions. The flows that no group brought go
    where they cost least.
    """
    things, n = problem.things, len(problem.things)
    wanted = np.diff(things.offsets) * things.weight.astype(np.float64)
    session, group = np.full(n, -1, np.int32), np.zeros(problem.n_sessions, np.int32)
    group[:] = rng.integers(problem.n_groups, size=problem.n_sessions)
    used = 0
    for turn in range(problem.n_groups):
        parent = parents[turn % len(parents)]
        maps, level = parent.maps, parent.state.groups
        left = np.where(session < 0, wanted, 0)
        serves = np.bincount(maps.flow_group, weights=left, minlength=problem.n_groups)
        taken = int(np.argmax(serves**1.5 / (1 + level.audience * level.total)))
        flows = np.flatnonzero((maps.flow_group == taken) & (session < 0))
        streams, of_flow = np.unique(maps.session[flows], return_inverse=True)
        kept = of_flow < problem.n_sessions - used
        session[flows[kept]] = used + of_flow[kept]
        group[used : used + len(streams)] = turn
        used = min(problem.n_sessions, used + len(streams))
    rest = np.flatnonzero(session < 0)
    session[rest] = rng.integers(problem.n_sessions, size=len(rest))
    child = _state_of(problem, Maps(session, group))
    child.descend_once(rng.permutation(rest))
    return child.maps


SECTIONS = {"neighbourhoods": neighbourhoods}
