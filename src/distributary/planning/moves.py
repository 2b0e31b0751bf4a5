"""What moved between two plans: the flows that have a place they did not have before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model import IntArray, Plan, Previous

__all__ = ["BY_UNICAST", "Move", "count_moved", "moves_between"]

BY_UNICAST = (-1, -1)


@dataclass(frozen=True, slots=True)
class Move:
    """A flow in a place that it did not have before; `before` is None if the flow is new.

    A place is a session and its group; unicast is (-1, -1). A flow that had several places before
    moves from the first of them, and one with several new places moves to each.
    """

    flow: str
    before: tuple[int, int] | None
    after: tuple[int, int]


def moves_between(
    previous: Previous, plan: Plan, session_origin: IntArray | None = None
) -> list[Move]:
    """The flows that are new or have another session or group than before, in order of name.

    `session_origin` maps each session to its number in the previous plan. A session that took over
    the number of one that became empty is thus not counted as a move of its flows, nor is a group
    that took over the number of an empty one.
    """
    origin = np.arange(plan.n_sessions) if session_origin is None else session_origin
    group = _match_groups(previous, plan, session_origin)
    by_unicast = np.unique(plan.unicast_flow)
    moves = []
    places = [
        *zip(plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True),
        *((flow, -1) for flow in by_unicast.tolist()),
    ]
    for flow, session in sorted(places, key=lambda place: (place[0], place[1] < 0, place[1])):
        name = plan.flows[flow]
        old = previous.places_of(name)
        if session < 0:
            stayed, after = -1 in old, BY_UNICAST
        else:
            was = int(origin[session])
            at_home = was in old and previous.session_group[was] == group[session]
            stayed, after = at_home, (session, int(plan.session_group[session]))
        if not stayed:
            moves.append(Move(name, _first_place(previous, old), after))
    return moves


def count_moved(moves: list[Move]) -> int:
    """How many flows move that are not new."""
    return len({move.flow for move in moves if move.before is not None})


def _first_place(previous: Previous, places: frozenset[int]) -> tuple[int, int] | None:
    sessions = sorted(place for place in places if place >= 0)
    if sessions:
        return sessions[0], int(previous.session_group[sessions[0]])
    return BY_UNICAST if places else None


def _match_groups(previous: Previous, plan: Plan, session_origin: IntArray | None) -> IntArray:
    """The group of each session by its previous number.

    Groups are renumbered only to close gaps: a group whose number is not among the old groups of
    its sessions has taken over a free number.
    """
    group = plan.session_group.astype(np.int64)
    if session_origin is None:
        return group
    known = session_origin < len(previous.session_group)
    old = np.full(len(group), -1, np.int64)
    old[known] = previous.session_group[session_origin[known]]
    matched = group.copy()
    for g in range(plan.n_groups):
        inside = old[(group == g) & (old >= 0)]
        if len(inside) and g not in inside:
            numbers = np.bincount(inside)
            if numbers.argmax() >= plan.n_groups:
                matched[group == g] = numbers.argmax()
    return matched
