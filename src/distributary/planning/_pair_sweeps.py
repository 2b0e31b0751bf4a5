"""The compiled inner loops of the search that knows every term.

A part of a thing, or one of its pairs, is taken out of its place; every place is priced at the
exact change of cost; one is drawn by its price. A place that would break a limit is not taken:
limits of groups and counts of receivers are part of the price, and the move itself shows the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distributary.compiled import copy_into, inner_kernel, kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._choice_kernels import pick
from distributary.planning._pair_counts import (
    count_broken,
    find_part,
    price_beats,
    sum_over,
)
from distributary.planning._pair_prices import (
    FORBIDDEN,
    Heat,
    Room,
    draw_number,
    price_places,
)
from distributary.planning._pair_state import (
    BEAT,
    COST,
    KINDS,
    LOAD,
    MOVED,
    PARTS,
    PAUSES,
    RATE_SENT,
    STAGE1,
    UNICAST,
    UNICAST_EXTRA,
    UNICAST_LINKS,
    WEIGHT,
    PairArrays,
    PairState,
    open_state,
    widen,
)
from distributary.planning._pair_steps import (
    attach,
    detach,
    put_in,
    recount,
    take_out,
)

__all__ = ["MANY_PAIRS", "Best", "cool", "keep_best", "regroup_sessions", "sweep_pairs"]

MANY_PAIRS = 2000
_SHARE_OF_COMFORTABLE = 0.2  # of pairs whose receiver would stay in the session anyway
_TRIES = 6  # places drawn for a part before it stays where it is
_VICTIMS = 3  # parts that are asked to make room for another
_STEPS = 8  # along the parts of a session, to find one of them
_FEE_STEP = 1.1  # by which fees grow or shrink after each sweep
_SWEEPS_TO_RECOUNT = 64
_HEAVIER = 1.5  # what a limit that is still broken weighs more after each sweep


@inner_kernel
def _energy(heat: Heat, state: PairState) -> float:
    """The cost with all fees and with what is over a limit."""
    sums = state.table.sums
    return float(
        sums[COST]
        + heat.sent * sums[RATE_SENT]
        + heat.links * sums[UNICAST_LINKS]
        + heat.extra * sums[UNICAST_EXTRA]
        + heat.toll * sums[MOVED]
        + sum_over(state.table, heat.weight)
    )


@inner_kernel
def sweep_pairs(
    order: IntArray,  # IN   the things to redraw, one after the other
    heat: Heat,
    state: PairState,  # IN and OUT
    room: Room,
) -> int:
    """Redraw the place of each part of a thing, then of each of its pairs; return how many moved.

    Single pairs are drawn where a thing may have several places. A receiver that has more reasons
    to be in a session saves nothing by taking one flow from elsewhere, so that only a share of such
    pairs is drawn in large problems.
    """
    wants, bounds, table = state.wants, state.bounds, state.table
    by_pair = bounds.copies or bounds.unicast_receivers > 0
    skips = len(wants.members) > MANY_PAIRS
    moved = 0
    for i in range(len(order)):
        k = order[i]
        start, end = wants.offsets[k], wants.offsets[k + 1]
        n_places = table.n_parts[k]
        for j in range(n_places):
            room.places[j] = table.part_place[start + j]
        for j in range(n_places):
            size = _gather(k, room.places[j], room.part, state)
            if size:
                moved += _redraw(k, room.part[:size], heat, state, room)
        if heat.exchange > 0 and draw_number(room.seed) < heat.exchange:
            size = _gather(k, table.part_place[start], room.part, state)
            moved += _exchange(k, room.part[:size], heat, state, room)
        if not (by_pair or n_places > 1) or end - start == 1:
            continue
        for p in range(start, end):
            place = table.place[p]
            stays = skips and place >= 0 and table.held[wants.members[p], place] > 1
            if stays and draw_number(room.seed) > _SHARE_OF_COMFORTABLE:
                continue
            slot = find_part(k, place, wants, table)
            if table.part_size[slot] > 1:
                room.part[0] = p
                moved += _redraw(k, room.part[:1], heat, state, room)
    return moved


@inner_kernel
def _gather(k: int, place: int, part: IntArray, state: PairState) -> int:
    """Collect the pairs of a thing in a place; return their number."""
    wants, place_of = state.wants, state.table.place
    size = 0
    for p in range(wants.offsets[k], wants.offsets[k + 1]):
        if place_of[p] == place:
            part[size] = p
            size += 1
    return size


@inner_kernel
def _redraw(k: int, part: IntArray, heat: Heat, state: PairState, room: Room) -> int:
    """Draw a place for pairs of a thing; return 1 if they moved."""
    table = state.table
    old = table.place[part[0]]
    is_strict = count_broken(table) == 0
    before = 0.0 if is_strict and heat.temperature > 0 else _energy(heat, state)
    take_out(k, part, state)
    price_places(k, part, is_strict, True, heat, state, room)
    last = len(room.price) - 1
    stay = last if old == UNICAST else widen(old)
    for _ in range(_TRIES):
        drawn = pick(room.price, stay, heat.temperature, draw_number(room.seed), room.odds)
        if drawn == stay or room.price[drawn] >= FORBIDDEN:
            break
        put_in(k, part, UNICAST if drawn == last else widen(drawn), state)
        if _is_allowed(is_strict, before, heat, state, room):
            return 1
        take_out(k, part, state)
        room.price[drawn] = FORBIDDEN
    put_in(k, part, widen(old), state)
    return 0


@inner_kernel
def _is_allowed(is_strict: bool, before: float, heat: Heat, state: PairState, room: Room) -> bool:
    """Whether a move that was drawn by its price may stay.

    While no limit is broken, none may be; at temperature 0 the move must save something, exactly.
    While some are, a move may cost no more than chance allows, with what is over the limits.
    """
    if not is_strict:
        return _accept(before, heat, state, room)
    if count_broken(state.table):
        return False
    return heat.temperature > 0 or _energy(heat, state) < before


@inner_kernel
def _accept(before: float, heat: Heat, state: PairState, room: Room) -> bool:
    """Whether chance allows what has been done since the energy was `before`."""
    more = _energy(heat, state) - before
    if more <= 0:
        return more < 0 or heat.temperature > 0
    return heat.temperature > 0 and draw_number(room.seed) < np.exp(-more / heat.temperature)


@inner_kernel
def _exchange(k: int, part: IntArray, heat: Heat, state: PairState, room: Room) -> int:
    """Draw a place without regard to the limits of groups, and push another part out of it.

    Return 1 if both together are allowed, and by chance.
    """
    table = state.table
    old = widen(table.place[part[0]])
    if count_broken(table) or old == UNICAST:
        return 0
    before = _energy(heat, state)
    take_out(k, part, state)
    price_places(k, part, True, False, heat, state, room)
    last = len(room.price) - 1
    new = pick(room.price, old, heat.temperature, draw_number(room.seed), room.odds)
    if new in (old, last) or room.price[new] >= FORBIDDEN:
        put_in(k, part, old, state)
        return 0
    put_in(k, part, widen(new), state)
    if count_broken(table) == 0:
        return 1
    for _ in range(_VICTIMS):
        slot = _find_victim(k, table.group[new], state, room)
        if slot < 0:
            break
        other, place = table.owner[slot], widen(table.part_place[slot])
        size = _gather(other, place, room.other, state)
        out = room.other[:size]
        take_out(other, out, state)
        price_places(other, out, True, True, heat, state, room)
        room.price[place] = FORBIDDEN
        drawn = pick(room.price, place, heat.temperature, draw_number(room.seed), room.odds)
        to = place
        if room.price[drawn] < FORBIDDEN:
            to = UNICAST if drawn == last else widen(drawn)
        put_in(other, out, to, state)
        if count_broken(table) == 0 and _accept(before, heat, state, room):
            return 1
        if to != place:
            take_out(other, out, state)
            put_in(other, out, place, state)
    take_out(k, part, state)
    put_in(k, part, old, state)
    return 0


@inner_kernel
def _find_victim(k: int, m: int, state: PairState, room: Room) -> int:
    """The slot of some other thing's part in a group, or -1."""
    table = state.table
    n_sessions = len(table.group)
    begin = int(draw_number(room.seed) * n_sessions)
    for i in range(n_sessions):
        c = begin + i if begin + i < n_sessions else begin + i - n_sessions
        if table.group[c] != m or table.first[c] < 0:
            continue
        slot = table.first[c]
        for _ in range(int(draw_number(room.seed) * _STEPS)):
            slot = table.after[slot] if table.after[slot] >= 0 else table.first[c]
        if table.owner[slot] == k:
            slot = table.after[slot] if table.after[slot] >= 0 else table.first[c]
        if table.owner[slot] != k:
            return widen(slot)
    return -1


@inner_kernel
def regroup_sessions(
    order: IntArray,  # IN   the sessions to redraw, one after the other
    heat: Heat,
    state: PairState,  # IN and OUT
    room: Room,
) -> int:
    """Draw a group for each whole session, at the exact change of cost; return how many moved.

    Empty sessions get a group at random, so that parts find a new session anywhere; half of those
    that had flows in the previous plan get the group that they had.
    """
    bounds, table = state.bounds, state.table
    n_groups = table.groups.shape[1]
    listeners = np.zeros(table.hears.shape[0], np.int64)
    price, odds = np.zeros(n_groups), np.zeros(n_groups)
    moved = 0
    for i in range(len(order)):
        c = order[i]
        if table.session[PARTS, c] == 0:
            is_home = bounds.home_group[c] >= 0 and draw_number(room.seed) < 0.5
            any_group = int(draw_number(room.seed) * n_groups)
            table.group[c] = bounds.home_group[c] if is_home else any_group
            continue
        size = 0
        for n in range(table.hears.shape[0]):
            if table.hears[n, c]:
                listeners[size] = n
                size += 1
        moved += _redraw_group(c, listeners[:size], heat, state, price, odds, room)
    return moved


@inner_kernel
def _redraw_group(
    c: int,
    listeners: IntArray,
    heat: Heat,
    state: PairState,
    price: FloatArray,
    odds: FloatArray,
    room: Room,
) -> int:
    wants, pricing, bounds, table = state
    old = widen(table.group[c])
    is_strict = count_broken(table) == 0
    before = _energy(heat, state)
    detach(c, listeners, state)
    room.in_group[:] = 0.0
    for i in range(len(listeners)):
        joins, weight = table.joins[listeners[i]], wants.weight[listeners[i]]
        for m in range(len(price)):
            room.in_group[m] += weight * joins[m]
    weight, stage1 = table.session[WEIGHT, c], table.session[STAGE1, c]
    alone = price_beats(table.session[PAUSES, c], pricing)
    for m in range(len(price)):
        joiners = weight - room.in_group[m]
        beat = table.groups[BEAT, m] if table.groups[PARTS, m] else alone
        price[m] = (table.groups[STAGE1, m] + beat) * joiners
        price[m] += stage1 * (table.groups[WEIGHT, m] + joiners)
        if is_strict and table.groups[LOAD, m] + table.session[LOAD, c] > bounds.group_load:
            price[m] = FORBIDDEN
    if heat.toll and bounds.home_group[c] >= 0:
        price[bounds.home_group[c]] -= heat.toll * table.session[PARTS, c]
    for _ in range(_TRIES):
        new = pick(price, old, heat.temperature, draw_number(room.seed), odds)
        if new == old or price[new] >= FORBIDDEN:
            break
        attach(c, widen(new), listeners, state)
        if _is_allowed(is_strict, before, heat, state, room):
            return 1
        detach(c, listeners, state)
        price[new] = FORBIDDEN
    attach(c, old, listeners, state)
    return 0


class Best(NamedTuple):
    """The best places found: `value` is what is over the limits, the cost, and the rate sent."""

    place: IndexArray
    group: IndexArray
    value: FloatArray


@kernel
def cool(
    temperatures: FloatArray,  # IN   one for each sweep
    fees: FloatArray,  # IN and OUT   on rate sent, links, extra rate and moves
    most: FloatArray,  # IN   the highest fee of each kind
    room_left: FloatArray,  # IN   what counts as nearly used up, of each kind
    weight: FloatArray,  # IN and OUT   of each kind of violation
    exchange: float,
    regroups: int,  # sweeps between draws of the sessions' groups; 0 for never
    arrays: PairArrays,  # IN and OUT
    room: Room,
    best: Best,  # IN and OUT
) -> int:
    """Sweep at each temperature and keep the best places; return how many moved in the last sweep.

    After each sweep, the fee on what is nearly used up grows, and that on what is not shrinks; a
    limit that is still broken weighs more.
    """
    state = open_state(arrays)
    bounds, table = state.bounds, state.table
    things, sessions = np.arange(len(state.wants.rate)), np.arange(len(table.group))
    used = (RATE_SENT, UNICAST_LINKS, UNICAST_EXTRA, MOVED)
    caps = (bounds.sent, bounds.links, bounds.extra, bounds.moves)
    moved = 0
    keep_best(state, best)
    for i in range(len(temperatures)):
        heat = Heat(temperatures[i], fees[0], fees[1], fees[2], fees[3], exchange, weight)
        _shuffle(things, room)
        moved = sweep_pairs(things, heat, state, room)
        if regroups and i % regroups == 0:
            _shuffle(sessions, room)
            moved += regroup_sessions(sessions, heat, state, room)
        for f in range(4):
            if caps[f] < np.inf:
                is_full = table.sums[used[f]] + room_left[f] > caps[f]
                fees[f] *= _FEE_STEP if is_full else 1.0 / _FEE_STEP
                fees[f] = min(fees[f], most[f])
        for kind in range(KINDS):
            if table.broken[kind]:
                weight[kind] *= _HEAVIER
        if i % _SWEEPS_TO_RECOUNT == _SWEEPS_TO_RECOUNT - 1:
            recount(state)
        keep_best(state, best)
    return moved


@inner_kernel
def keep_best(state: PairState, best: Best) -> None:
    """Copy the places if they are better than the best so far."""
    table = state.table
    over = 0.0
    for kind in range(KINDS):
        if table.broken[kind]:
            over += max(table.over[kind], 1e-12)
    cost, sent = table.sums[COST], table.sums[RATE_SENT]
    is_better = over < best.value[0]
    if over == best.value[0]:
        is_better = cost < best.value[1] or (cost == best.value[1] and sent < best.value[2])
    if is_better:
        best.value[0], best.value[1], best.value[2] = over, cost, sent
        copy_into(best.place, table.place)
        copy_into(best.group, table.group)


@inner_kernel
def _shuffle(order: IntArray, room: Room) -> None:
    for i in range(len(order) - 1, 0, -1):
        j = int(draw_number(room.seed) * (i + 1))
        order[i], order[j] = order[j], order[i]
