"""Which flows of a proposal move: all of them, or those that save most by themselves.

The stream bounds its moves against the plan that it had. Since then flows may have come and gone
here, so the bound is kept against the plan in force: moves are taken one by one, each the one that
saves most then, until none saves anything or there are as many as allowed. What one move saves
follows from two tallies, as in `planning.RunningPlan`: out of session s, with rate R_s and members
S_s, a flow of weight w takes w |S_s| + (R_s - w) |those who want nothing else of s|, and adds to
another what `find_place` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

import numpy as np

from distributary.control.alignment import find_moved
from distributary.control.interest import LiveInterest
from distributary.control.placement import Places
from distributary.model import IndexArray, IntArray

__all__ = ["pick_moves"]


def pick_moves(
    target: Places,
    before: Places,
    most: int,
    interest: LiveInterest,
    weights: Mapping[str, int],
) -> tuple[Places, list[str]]:
    """The places before with at most `most` of the moves to `target`, and the flows that move.

    The numbers of both are aligned. Flows that `target` does not have stay where they are.
    """
    whole = _keep_others(target, before)
    homeless = before.session_of.keys() - whole.session_of.keys()  # their session is gone
    moved = sorted({*find_moved(whole, before), *homeless})
    if len(moved) <= most:
        return whole, moved
    group = _join_groups(target, before)
    wanted = {
        flow: whole.session_of[flow]
        for flow in moved
        if interest.receivers_of(flow)
        and whole.session_of.get(flow, before.session_of[flow]) != before.session_of[flow]
    }
    start = {flow: at for flow, at in before.session_of.items() if interest.receivers_of(flow)}
    tallies = _Tallies(start, group, interest, weights)
    picked = _pick_greedily(tallies, wanted, most)
    places = {**before.session_of, **{flow: wanted[flow] for flow in picked}}
    return Places(places, group), sorted(picked)


def _keep_others(target: Places, before: Places) -> Places:
    """The target, with the flows that it lacks where they were, if their session is still there."""
    used = set(target.session_of.values())
    group = _join_groups(before, target)
    others = {
        flow: session
        for flow, session in before.session_of.items()
        if flow not in target.session_of
        and (session not in used or group[session] == before.session_group[session])
    }
    for session in set(others.values()) - used:
        group[session] = before.session_group[session]
    return Places({**others, **target.session_of}, group)


def _join_groups(places: Places, over: Places) -> IndexArray:
    """The groups of the sessions of both; those of `over` count where it has the session."""
    group = np.zeros(max(len(places.session_group), len(over.session_group)), np.int32)
    group[: len(places.session_group)] = places.session_group
    used = sorted(set(over.session_of.values()))
    group[used] = over.session_group[used]
    return group


def _pick_greedily(tallies: _Tallies, wanted: Mapping[str, int], most: int) -> set[str]:
    """Move one flow after the other, each the one that saves most."""
    waiting = [(-tallies.saves(flow, to), flow) for flow, to in wanted.items()]
    heapify(waiting)
    picked: set[str] = set()
    while waiting and len(picked) < most:
        _, flow = heappop(waiting)
        now = -tallies.saves(flow, wanted[flow])
        if waiting and now > waiting[0][0]:
            heappush(waiting, (now, flow))
            continue
        if now >= 0:
            break
        tallies.move(flow, wanted[flow])
        picked.add(flow)
    return picked


class _Tallies:
    """How many flows each receiver wants of each session and group, and what these carry."""

    def __init__(
        self,
        session_of: Mapping[str, int],
        session_group: IndexArray,
        interest: LiveInterest,
        weights: Mapping[str, int],
    ) -> None:
        number = {name: at for at, name in enumerate(sorted(interest.receivers))}
        self._group = session_group
        self._session = dict(session_of)
        self._weight = {flow: max(1, weights.get(flow, 0)) for flow in session_of}
        self._audience = {
            flow: np.array([number[name] for name in interest.receivers_of(flow)], np.int32)
            for flow in session_of
        }
        n_groups = int(session_group.max(initial=0)) + 1
        self._sessions = _Level(len(number), len(session_group))
        self._groups = _Level(len(number), n_groups)
        for flow, session in session_of.items():
            self._count(flow, session, 1)

    def saves(self, flow: str, to: int) -> int:
        """What the move of a flow saves, per unit of weight at both filters."""
        here = self._session[flow]
        audience, weight = self._audience[flow], self._weight[flow]
        saved = self._sessions.saves(audience, weight, here, to)
        if self._group[here] == self._group[to]:
            return saved
        return saved + self._groups.saves(
            audience, weight, int(self._group[here]), int(self._group[to])
        )

    def move(self, flow: str, to: int) -> None:
        """Move a flow to another session."""
        self._count(flow, self._session[flow], -1)
        self._count(flow, to, 1)
        self._session[flow] = to

    def _count(self, flow: str, session: int, by: int) -> None:
        audience, weight = self._audience[flow], self._weight[flow]
        self._sessions.count(audience, weight, session, by)
        self._groups.count(audience, weight, int(self._group[session]), by)


class _Level:
    """The tallies of sessions, or of groups."""

    def __init__(self, receivers: int, places: int) -> None:
        self._wants: IndexArray = np.zeros((places, receivers), np.int32)
        self._members: IntArray = np.zeros(places, np.int64)
        self._rate: IntArray = np.zeros(places, np.int64)

    def saves(self, audience: IndexArray, weight: int, here: int, to: int) -> int:
        leavers = int((self._wants[here, audience] == 1).sum())
        comers = int((self._wants[to, audience] == 0).sum())
        less = weight * int(self._members[here]) + (int(self._rate[here]) - weight) * leavers
        return less - weight * (int(self._members[to]) + comers) - int(self._rate[to]) * comers

    def count(self, audience: IndexArray, weight: int, place: int, by: int) -> None:
        self._wants[place, audience] += by
        changed = self._wants[place, audience] == (1 if by > 0 else 0)
        self._members[place] += by * int(changed.sum())
        self._rate[place] += by * weight
