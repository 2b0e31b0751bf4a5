"""Improve a previous plan by moving few flows.

Sessions keep their numbers and stay in their groups; only flows move, and at most `max_moves` of
them. New flows are placed first and do not count as moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import IndexArray, IntArray, Interest, Plan, Previous
from distributary.planning.hierarchy import Maps
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["Move", "moves_between", "replan", "settle", "start_maps"]

_TOLLS, _CHEAPER = 40, 0.7  # from the mean cost of a flow down to a millionth of it


@dataclass(frozen=True, slots=True)
class Move:
    """A flow that changed its session; `before` is None if the flow is new."""

    flow: str
    before: tuple[int, int] | None  # (session, group)
    after: tuple[int, int]


def start_maps(
    previous: Previous, interest: Interest, n_sessions: int, n_groups: int
) -> tuple[Maps, IndexArray]:
    """The previous plan's maps for the flows there are now, and each flow's home session.

    A new flow has the home -1. Additional sessions start empty, spread over the groups.
    """
    known = len(previous.session_group)
    if known > n_sessions or int(previous.session_group.max()) >= n_groups:
        raise ValueError(
            f"the plan to start from has {known} sessions in "
            f"{int(previous.session_group.max()) + 1} groups, more than the {n_sessions} and "
            f"{n_groups} asked for"
        )
    more = (np.arange(n_sessions - known) % n_groups).astype(np.int32)
    group = np.concatenate([previous.session_group, more]).astype(np.int32)
    home = np.array([previous.session_of.get(flow, -1) for flow in interest.flows], np.int32)
    return Maps(np.maximum(home, 0), group), home


def settle(
    things: Things,
    start: Maps,
    home: IndexArray,
    prices: FilteringPrices,
    passes: int | None = None,
) -> Maps:
    """Put every new flow in its cheapest session.

    Repeats until no new flow gains from a move, or for `passes` passes.
    """
    state = TwoLevel(things, start, prices)
    newcomers = np.flatnonzero(home < 0)
    for _ in count() if passes is None else range(passes):
        if not state.descend_once(newcomers):
            break
    return state.maps


def replan(
    things: Things,
    start: Maps,
    home: IndexArray,
    prices: FilteringPrices,
    max_moves: int,
    progress: Progress = silent,
) -> Maps:
    """Find the best plan in which at most `max_moves` flows leave their home session.

    A flow away from home pays a toll. It starts so high that no flow leaves, and falls step by
    step; flows leave and return as it pays. The step that would let more than `max_moves` flows
    leave ends the loop, and the remaining moves go to the flows that gain most.
    """
    state = TwoLevel(things, settle(things, start, home, prices), prices)
    best, toll = state.maps, state.work / len(things)
    least = state.work
    for step in range(_TOLLS):
        progress(Step("re-planning", step, _TOLLS, least))
        state.descend(toll, home)
        if _away(state.maps, home) > max_moves:
            break
        if state.work < least:
            best, least = state.maps, state.work
        toll *= _CHEAPER
    state = TwoLevel(things, best, prices)
    _spend(state, home, max_moves - _away(best, home))
    progress(Step("re-planning", _TOLLS, _TOLLS, state.work))
    return _refill_empty_sessions(state.maps, home, things)


def _spend(state: TwoLevel, home: IndexArray, moves_left: int) -> None:
    """Let the flows that gain most move, one by one, while moves are left."""
    while moves_left > 0:
        gain, _ = state.gains()
        at_home = state.maps.session == home
        # A flow that is already away may move again for free, but gains nothing new.
        gain[~at_home] = 0
        candidates = np.argsort(-gain, kind="stable")[:moves_left]
        moved = [k for k in candidates if gain[k] > 0 and state.descend_once(np.array([k]))]
        if not moved:
            return
        moves_left -= len(moved)


def _away(maps: Maps, home: IndexArray) -> int:
    return int(((maps.session != home) & (home >= 0)).sum())


def _refill_empty_sessions(maps: Maps, home: IndexArray, things: Things) -> Maps:
    """Move the lightest flow back to each session that all of its flows left.

    An empty session would be removed, and another session would take its number.
    """
    session = maps.session.copy()
    left = np.setdiff1d(home[home >= 0], session)
    for empty in left:
        own = np.flatnonzero(home == empty)
        session[own[np.argmin(things.weight[own])]] = empty
    return Maps(session, maps.group)


def moves_between(
    previous: Previous, plan: Plan, session_origin: IntArray | None = None
) -> list[Move]:
    """The flows that are new or have another session or group than before, in order of name.

    `session_origin` maps each session to its number in the previous plan. A session that took over
    the number of one that became empty is thus not counted as a move of its flows.
    """
    moves = []
    for flow, session in zip(plan.placement_flow, plan.placement_session, strict=True):
        name = plan.flows[flow]
        old = previous.session_of.get(name)
        before = None if old is None else (old, int(previous.session_group[old]))
        after = (int(session), int(plan.session_group[session]))
        stayed = before == after if session_origin is None else old == session_origin[session]
        if not stayed:
            moves.append(Move(name, before, after))
    return moves
