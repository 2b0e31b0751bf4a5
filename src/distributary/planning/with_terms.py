"""Plan with terms: a start, the search that knows them all, and what to say if nothing holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distributary.cost import PacketPrices, count_for
from distributary.errors import InfeasibleError
from distributary.model import (
    Demand,
    IntArray,
    Plan,
    Previous,
    broken_constraints,
)
from distributary.planning._pair_state import (
    EXTRA,
    FILLED,
    LINKS,
    MOVES,
    NUMBERS,
    SENT,
    UNICAST_RECEIVERS,
)
from distributary.planning.best import Allowance, best
from distributary.planning.contradictions import check_contradictions
from distributary.planning.decision import decide
from distributary.planning.hierarchy import TwoLevelProblem
from distributary.planning.homes import give_homes
from distributary.planning.merging import user_merge
from distributary.planning.progress import Progress, Step
from distributary.planning.request import Request
from distributary.planning.search import (
    LEAST_BUDGET_S,
    Found,
    search_with_terms,
    settle_places,
)
from distributary.planning.term_problem import Places, TermProblem, TermSettings
from distributary.planning.things import Things, in_messages
from distributary.planning.two_level import BITS

__all__ = ["PlannedWithTerms", "check_size", "has_terms", "plan_with_terms"]

_SHARE_OF_START = 0.3  # of the budget, for a plan without terms to start from


@dataclass(frozen=True, slots=True, eq=False)
class PlannedWithTerms:
    """A plan, whether the clock ended the search, and the previous number of each session."""

    plan: Plan
    cut_short: bool
    session_origin: IntArray | None


def has_terms(request: Request) -> bool:
    """Whether a request asks for more than the search without terms knows."""
    terms = request.terms
    return bool(
        terms.constraints
        or terms.unicast is not None
        or terms.max_sent is not None
        or terms.receiver_weights
        or request.change.max_moves is not None
        or isinstance(request.weights, PacketPrices)
    )


def plan_with_terms(
    demand: Demand, request: Request, rng: np.random.Generator, progress: Progress
) -> PlannedWithTerms:
    """Find the best plan within all terms, or raise `InfeasibleError` with the reason."""
    settings = _read_settings(demand, request)
    _check_terms(demand, settings)
    problem = TermProblem.of(demand, settings)
    allowance = Allowance(request.search.budget_s, request.search.patience)
    starts, cut_short = _make_starts(problem, settings, rng, allowance, progress)
    budget_s = allowance.budget_s * (1 - _SHARE_OF_START if settings.previous is None else 1)
    tell = _in_rates(progress, problem)
    allowance = replace(allowance, budget_s=budget_s)
    found = search_with_terms(problem, starts, rng, allowance, tell, insist=False)
    if not found.is_feasible:
        found = _decide(problem, settings, found, rng, allowance, tell)
    plan, origin = problem.write_plan(found.places)
    return PlannedWithTerms(
        plan, cut_short or found.cut_short, None if settings.previous is None else origin
    )


def _read_settings(demand: Demand, request: Request) -> TermSettings:
    terms, change, limits = request.terms, request.change, request.terms.constraints.limits
    prices = request.weights
    known = 0 if change.previous is None else len(change.previous.session_group)
    useful = demand.interest.pairs if terms.max_sent is not None else len(demand.rate)
    pins = max(terms.constraints.pinned.values(), default=-1) + 1
    sessions = min(request.size.most_sessions, max(useful, known, pins))
    groups = min(request.size.groups, sessions)
    if change.previous is not None:
        check_size(change.previous, sessions, groups)
    else:
        sessions = min(sessions, limits.sessions or sessions)
        groups = min(groups, limits.groups or groups, sessions)
    return TermSettings(
        n_sessions=sessions,
        n_groups=groups,
        most_sessions=limits.sessions if (limits.sessions or sessions) < sessions else None,
        most_groups=limits.groups if (limits.groups or groups) < groups else None,
        prices=prices,
        sent_price=request.sent_price,
        constraints=terms.constraints,
        packing=request.packing,
        unicast=terms.unicast,
        max_sent=terms.max_sent,
        weights=terms.receiver_weights,
        previous=change.previous,
        max_moves=change.max_moves,
    )


def check_size(previous: Previous, n_sessions: int, n_groups: int) -> None:
    """Refuse to start from a plan that is larger than what is asked for."""
    known, groups = len(previous.session_group), int(previous.session_group.max()) + 1
    if known > n_sessions or groups > n_groups:
        raise ValueError(
            f"the plan to start from has {known} sessions in {groups} groups, more than the "
            f"{n_sessions} and {n_groups} asked for"
        )


def _check_terms(demand: Demand, settings: TermSettings) -> None:
    check_contradictions(
        demand,
        settings.constraints,
        min(settings.n_groups, settings.most_groups or settings.n_groups),
        unicast_receivers=0 if settings.unicast is None else settings.unicast.max_receivers,
        max_sent=settings.max_sent or 1.0,
        packing=settings.packing,
    )


def _make_starts(
    problem: TermProblem,
    settings: TermSettings,
    rng: np.random.Generator,
    allowance: Allowance,
    progress: Progress,
) -> tuple[list[Places], bool]:
    """The previous plan, completed; or a plan without terms, and one with homes for receivers."""
    if settings.previous is not None:
        return _complete(problem, settings.previous), False
    demand, prices = count_for(problem.demand, settings.prices), settings.prices
    plain = prices.linear if isinstance(prices, PacketPrices) else prices
    things = Things.flows_of(demand, BITS)
    sessions = min(settings.n_sessions, len(things))
    two_level = TwoLevelProblem(things, sessions, min(settings.n_groups, sessions), plain)
    patience = allowance.patience * max(1.0, LEAST_BUDGET_S / allowance.budget_s)
    share = Allowance(_SHARE_OF_START * allowance.budget_s, patience, allowance.threads)
    found = best(two_level, rng, share, _in_whole_rates(progress, demand))
    maps, n_more = found.maps, settings.n_sessions - sessions
    more = (np.arange(n_more) % settings.n_groups).astype(np.int32)
    group = np.concatenate([maps.group, more]).astype(np.int32)
    starts = [_pin(problem, Places(problem.spread(maps.session), group))]
    is_plain = len(problem) == len(things)
    if settings.max_sent is not None and settings.max_sent > 1 and is_plain:
        clusters = user_merge(demand, int(maps.group.max()) + 1)
        source, home_group = give_homes(things, maps, plain, settings.max_sent, clusters, rng)
        home_group = np.concatenate([home_group, more]).astype(np.int32)
        starts.append(_pin(problem, Places(source, home_group)))
    return starts, found.cut_short


def _complete(problem: TermProblem, previous: Previous) -> list[Places]:
    """The previous plan with what is new; if it breaks limits, also with each flow in one place."""
    start = settle_places(problem, problem.recall(previous))
    if not previous.several or not problem.begin(start).table.broken.any():
        return [start]
    return [start, settle_places(problem, problem.recall(previous, whole=True))]


def _pin(problem: TermProblem, places: Places) -> Places:
    """Put each pinned thing into a session of its group, opening one where there is none."""
    pinned, group, place = problem.bounds.pinned, places.group.copy(), places.place.copy()
    used = np.bincount(place[place >= 0], minlength=len(group))
    for m in range(problem.bounds.filled):
        if not (group == m).any():
            crowd = np.bincount(group, minlength=problem.n_groups)
            spare = np.flatnonzero(crowd[group] > 1)
            group[spare[np.argmin(used[spare])]] = m
    for k in np.flatnonzero(pinned >= 0):
        pairs = slice(problem.wants.offsets[k], problem.wants.offsets[k + 1])
        inside = np.flatnonzero(group == pinned[k])
        if not np.isin(place[pairs], inside).all():
            place[pairs] = inside[0]
    return Places(place, group)


def _decide(
    problem: TermProblem,
    settings: TermSettings,
    found: Found,
    rng: np.random.Generator,
    allowance: Allowance,
    progress: Progress,
) -> Found:
    """Try everything if the problem is tiny; raise if there is no plan, or none is found."""
    decided = decide(problem)
    if decided.places is not None:
        return search_with_terms(problem, [decided.places], rng, allowance, progress)
    if decided.is_proven:
        raise InfeasibleError(
            f"no plan of {len(problem)} flows in {problem.n_groups} groups meets all terms "
            "(all were tried)",
            proven=True,
            remedy="loosen a limit, or allow more groups",
        )
    found = search_with_terms(problem, [found.places], rng, allowance, progress)
    if found.is_feasible:
        return found
    plan, _ = problem.write_plan(found.places)
    broken = broken_constraints(plan, problem.demand, settings.constraints, settings.packing)
    reasons = [*broken, *(said for kind, said in _TOTALS.items() if found.over[kind] > 0)]
    raise InfeasibleError(
        f"the best of many attempts breaks limits ({len(reasons)}), the first: {reasons[0]}",
        proven=False,
        remedy="loosen this limit, allow more groups or a longer budget",
    )


_TOTALS = {
    FILLED: "a group before a pinned one is empty",
    SENT: "more is sent than max_sent allows",
    LINKS: "there are more unicast links than allowed",
    EXTRA: "more is sent by unicast than allowed",
    UNICAST_RECEIVERS: "a flow has more receivers by unicast than allowed",
    NUMBERS: "there are more groups or sessions than allowed",
    MOVES: "more flows move than max_moves allows",
}


def _in_rates(progress: Progress, problem: TermProblem) -> Progress:
    """Report costs in messages per second."""

    def tell(step: Step) -> None:
        known = step.best is not None and np.isfinite(step.best)
        progress(replace(step, best=step.best * problem.unit if known and step.best else None))

    return tell


def _in_whole_rates(progress: Progress, demand: Demand) -> Progress:
    n_receivers = len(demand.interest.receivers)

    def tell(step: Step) -> None:
        if step.best is not None:
            step = replace(step, best=in_messages(step.best, demand.rate, n_receivers, BITS))
        progress(step)

    return tell
