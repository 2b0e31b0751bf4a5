"""The compiled inner loops of the search that knows every term.

A part of a thing, or one of its pairs, is taken out of its place; every place is priced at the
exact change of cost; one is drawn by its price. A place that would break a limit is not taken:
limits of groups and counts of receivers are part of the price, and the move itself shows the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import copy_into, kernel
from distributary.model import FloatArray, IndexArray, IntArray
from distributary.planning._choice_kernels import pick
from distributary.planning._term_state import (
    ALONE,
    BEAT,
    COST,
    FILLED,
    FREE,
    GROUP_LOAD,
    GROUP_MEMBERS,
    GROUP_PACKETS,
    GROUPS,
    HEADS,
    INTAKE,
    JOINED,
    KINDS,
    LOAD,
    MESSAGES,
    MOVED,
    NUMBERS,
    PACKETS,
    PARTS,
    PAUSES,
    RATE,
    RATE_SENT,
    RECEIVER_GROUPS,
    RECEIVER_LOAD,
    RECEIVER_SESSIONS,
    SESSIONS,
    STAGE1,
    STAGE2,
    SUBSCRIBED,
    SWITCH_ENTRIES,
    UNICAST,
    UNICAST_EXTRA,
    UNICAST_LINKS,
    WEIGHT,
    PairArrays,
    PairState,
    attach,
    count_broken,
    count_pauses,
    detach,
    find_part,
    open_state,
    packet_cap,
    price_beats,
    price_stream,
    put_in,
    recount,
    sum_over,
    take_out,
    widen,
)

__all__ = [
    "Best",
    "Heat",
    "Room",
    "cool",
    "keep_best",
    "make_room",
    "regroup_sessions",
    "sweep_pairs",
]

FORBIDDEN = 1e300
MANY_PAIRS = 2000
_SHARE_OF_COMFORTABLE = 0.2  # of pairs whose receiver would stay in the session anyway
_TRIES = 6  # places drawn for a part before it stays where it is
_VICTIMS = 3  # parts that are asked to make room for another
_STEPS = 8  # along the parts of a session, to find one of them
_FEE_STEP = 1.1  # by which fees grow or shrink after each sweep
_SWEEPS_TO_RECOUNT = 64
_HEAVIER = 1.5  # what a limit that is still broken weighs more after each sweep


class Heat(NamedTuple):
    """How moves are drawn: by price over `temperature`, with fees on what is bounded in total.

    `weight` is what a violation of each kind costs while some limit is broken. `exchange` is the
    share of things that may push another out of a full group.
    """

    temperature: float
    sent: float
    links: float
    extra: float
    toll: float
    exchange: float
    weight: FloatArray


class Room(NamedTuple):
    """Scratch arrays: numbers per session or group, and pairs that move together."""

    in_session: FloatArray
    in_group: FloatArray
    hits_session: Any
    hits_group: Any
    full_session: Any
    full_group: Any
    by_rate: FloatArray
    by_group: FloatArray
    block: FloatArray
    price: FloatArray
    odds: FloatArray
    part: IntArray
    other: IntArray
    places: IntArray
    seed: Any


@kernel
def make_room(n_sessions: int, n_groups: int, largest: int, seed: int) -> Room:
    """Allocate scratch arrays; `largest` is the number of pairs of the largest thing."""
    return Room(
        np.zeros(n_sessions),
        np.zeros(n_groups),
        np.zeros(n_sessions, np.int32),
        np.zeros(n_groups, np.int32),
        np.zeros(n_sessions, np.int32),
        np.zeros(n_groups, np.int32),
        np.zeros(n_groups),
        np.zeros(n_groups),
        np.zeros(n_groups),
        np.zeros(n_sessions + 1),
        np.zeros(n_sessions + 1),
        np.zeros(largest, np.int64),
        np.zeros(largest, np.int64),
        np.zeros(largest + 1, np.int64),
        np.full(1, seed, np.uint64),
    )


@kernel
def _draw(seed: Any) -> float:
    """The next of a sequence of numbers in [0, 1): splitmix64."""
    seed[0] += np.uint64(0x9E3779B97F4A7C15)
    z = seed[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 2.0**53


@kernel
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


@kernel
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
        if heat.exchange > 0 and _draw(room.seed) < heat.exchange:
            size = _gather(k, table.part_place[start], room.part, state)
            moved += _exchange(k, room.part[:size], heat, state, room)
        if not (by_pair or n_places > 1) or end - start == 1:
            continue
        for p in range(start, end):
            place = table.place[p]
            stays = skips and place >= 0 and table.held[wants.members[p], place] > 1
            if stays and _draw(room.seed) > _SHARE_OF_COMFORTABLE:
                continue
            slot = find_part(k, place, wants, table)
            if table.part_size[slot] > 1:
                room.part[0] = p
                moved += _redraw(k, room.part[:1], heat, state, room)
    return moved


@kernel
def _gather(k: int, place: int, part: IntArray, state: PairState) -> int:
    """Collect the pairs of a thing in a place; return their number."""
    wants, place_of = state.wants, state.table.place
    size = 0
    for p in range(wants.offsets[k], wants.offsets[k + 1]):
        if place_of[p] == place:
            part[size] = p
            size += 1
    return size


@kernel
def _redraw(k: int, part: IntArray, heat: Heat, state: PairState, room: Room) -> int:
    """Draw a place for pairs of a thing; return 1 if they moved."""
    table = state.table
    old = table.place[part[0]]
    is_strict = count_broken(table) == 0
    before = 0.0 if is_strict and heat.temperature > 0 else _energy(heat, state)
    take_out(k, part, state)
    _price_places(k, part, is_strict, True, heat, state, room)
    last = len(room.price) - 1
    stay = last if old == UNICAST else widen(old)
    for _ in range(_TRIES):
        drawn = pick(room.price, stay, heat.temperature, _draw(room.seed), room.odds)
        if drawn == stay or room.price[drawn] >= FORBIDDEN:
            break
        put_in(k, part, UNICAST if drawn == last else widen(drawn), state)
        if _is_allowed(is_strict, before, heat, state, room):
            return 1
        take_out(k, part, state)
        room.price[drawn] = FORBIDDEN
    put_in(k, part, widen(old), state)
    return 0


@kernel
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


@kernel
def _accept(before: float, heat: Heat, state: PairState, room: Room) -> bool:
    """Whether chance allows what has been done since the energy was `before`."""
    more = _energy(heat, state) - before
    if more <= 0:
        return more < 0 or heat.temperature > 0
    return heat.temperature > 0 and _draw(room.seed) < np.exp(-more / heat.temperature)


@kernel
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
    _price_places(k, part, True, False, heat, state, room)
    last = len(room.price) - 1
    new = pick(room.price, old, heat.temperature, _draw(room.seed), room.odds)
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
        _price_places(other, out, True, True, heat, state, room)
        room.price[place] = FORBIDDEN
        drawn = pick(room.price, place, heat.temperature, _draw(room.seed), room.odds)
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


@kernel
def _find_victim(k: int, m: int, state: PairState, room: Room) -> int:
    """The slot of some other thing's part in a group, or -1."""
    table = state.table
    n_sessions = len(table.group)
    begin = int(_draw(room.seed) * n_sessions)
    for i in range(n_sessions):
        c = begin + i if begin + i < n_sessions else begin + i - n_sessions
        if table.group[c] != m or table.first[c] < 0:
            continue
        slot = table.first[c]
        for _ in range(int(_draw(room.seed) * _STEPS)):
            slot = table.after[slot] if table.after[slot] >= 0 else table.first[c]
        if table.owner[slot] == k:
            slot = table.after[slot] if table.after[slot] >= 0 else table.first[c]
        if table.owner[slot] != k:
            return widen(slot)
    return -1


@kernel
def _price_places(
    k: int,
    part: IntArray,
    is_strict: bool,
    within: bool,  # whether the limits of groups count
    heat: Heat,
    state: PairState,
    room: Room,
) -> None:
    """Price every place for pairs of a thing that have none; the last price is that of unicast."""
    wants, bounds, table = state.wants, state.bounds, state.table
    price = room.price
    start, n_parts = wants.offsets[k], table.n_parts[k]
    copies = n_parts - (find_part(k, UNICAST, wants, table) >= 0)
    may_open = copies == 0 or bounds.copies
    if is_strict and copies and table.sums[RATE_SENT] + wants.rate[k] > bounds.sent:
        may_open = False
    if may_open:
        _count_hits(part, state, room)
        _price_sessions(k, part, heat, state, room)
        _block_places(k, part, is_strict, within, heat, state, room)
    else:
        price[:] = FORBIDDEN
    for slot in range(start, start + n_parts):
        c = table.part_place[slot]
        if c >= 0:
            price[c] = _price_part(c, part, state)
    price[len(price) - 1] = _price_unicast(k, part, copies, heat, state)
    _price_moves(k, heat, state, room)


@kernel
def _count_hits(part: IntArray, state: PairState, room: Room) -> None:
    """Count, for each session and group, the receivers of a part that are there anyway."""
    wants, bounds, table = state.wants, state.bounds, state.table
    room.hits_session[:] = 0
    room.hits_group[:] = 0
    hears_limited = bounds.receiver_sessions < np.inf
    joins_limited = bounds.receiver_groups < np.inf
    if hears_limited:
        room.full_session[:] = 0
    if joins_limited:
        room.full_group[:] = 0
    for i in range(len(part)):
        n = wants.members[part[i]]
        hears, joins = table.hears[n], table.joins[n]
        for c in range(len(hears)):
            room.hits_session[c] += hears[c]
        for m in range(len(joins)):
            room.hits_group[m] += joins[m]
        if hears_limited and table.receiver[SUBSCRIBED, n] >= bounds.receiver_sessions:
            for c in range(len(hears)):
                room.full_session[c] += 1 - hears[c]
        if joins_limited and table.receiver[JOINED, n] >= bounds.receiver_groups:
            for m in range(len(joins)):
                room.full_group[m] += 1 - joins[m]
    if len(bounds.by_weight):
        _weigh_hits(part, state, room)
    else:
        for c in range(len(room.in_session)):
            room.in_session[c] = room.hits_session[c]
        for m in range(len(room.in_group)):
            room.in_group[m] = room.hits_group[m]


@kernel
def _weigh_hits(part: IntArray, state: PairState, room: Room) -> None:
    wants, table = state.wants, state.table
    room.in_session[:] = 0.0
    room.in_group[:] = 0.0
    for i in range(len(part)):
        n = wants.members[part[i]]
        hears, joins, weight = table.hears[n], table.joins[n], wants.weight[n]
        for c in range(len(hears)):
            room.in_session[c] += weight * hears[c]
        for m in range(len(joins)):
            room.in_group[m] += weight * joins[m]


@kernel
def _weigh(part: IntArray, state: PairState) -> float:
    total = 0.0
    for i in range(len(part)):
        total += state.wants.weight[state.wants.members[part[i]]]
    return total


@kernel
def _price_sessions(k: int, part: IntArray, heat: Heat, state: PairState, room: Room) -> None:
    """Price a new copy of a thing in every session, for receivers that take it from there.

    The heartbeats of a group are priced as they are now, since one thing hardly changes them.
    """
    wants, pricing, _, table = state
    session, groups, group, price = table.session, table.groups, table.group, room.price
    rate, weight = wants.rate[k], _weigh(part, state)
    sending = (pricing.sent + heat.sent) * rate
    own = rate / min(pricing.fill, 1.0 + rate * pricing.delay)
    alone = price_beats(count_pauses(own, pricing), pricing)
    for m in range(len(room.by_rate)):
        joiners = weight - room.in_group[m]
        room.by_rate[m] = groups[WEIGHT, m] + joiners
        beat = groups[BEAT, m] if groups[PARTS, m] else alone
        room.by_group[m] = sending + (groups[STAGE1, m] + beat) * joiners
    if pricing.alpha1 == 0 and pricing.beta1 == 0:
        per_listener, per_member = pricing.beta0 * rate, pricing.alpha0 * rate
        for m in range(len(room.by_rate)):
            room.by_group[m] += per_member * room.by_rate[m]
        for c in range(len(group)):
            listeners = weight - room.in_session[c]
            price[c] = (
                per_listener * (session[WEIGHT, c] + listeners) + session[STAGE2, c] * listeners
            )
        for c in range(len(group)):
            price[c] += room.by_group[group[c]]
        return
    for c in range(len(group)):
        total = session[RATE, c] + rate
        packets = total / min(pricing.fill, 1.0 + total * pricing.delay)
        stage1 = pricing.alpha0 * total + pricing.alpha1 * packets
        stage2 = pricing.beta0 * total + pricing.beta1 * packets
        listeners = session[WEIGHT, c] + weight - room.in_session[c]
        price[c] = (
            room.by_group[group[c]]
            + (stage1 - session[STAGE1, c]) * room.by_rate[group[c]]
            + stage2 * listeners
            - session[STAGE2, c] * session[WEIGHT, c]
        )


@kernel
def _price_part(c: int, part: IntArray, state: PairState) -> float:
    """Price receivers that take a thing from a session which carries it already."""
    wants, table = state.wants, state.table
    m = table.group[c]
    joiners = listeners = 0.0
    for i in range(len(part)):
        n = wants.members[part[i]]
        if not table.hears[n, c]:
            listeners += wants.weight[n]
        if not table.joins[n, m]:
            joiners += wants.weight[n]
    joining = table.groups[STAGE1, m] + table.groups[BEAT, m]
    return float(joining * joiners + table.session[STAGE2, c] * listeners)


@kernel
def _price_unicast(k: int, part: IntArray, copies: int, heat: Heat, state: PairState) -> float:
    """Price the pairs by unicast."""
    wants, pricing, bounds, table = state
    if bounds.unicast_receivers <= 0:
        return FORBIDDEN
    is_flow = wants.flow_offsets[k + 1] - wants.flow_offsets[k] == 1
    if is_flow and len(part) > bounds.unicast_receivers:
        return FORBIDDEN
    total = 0.0
    for i in range(len(part)):
        p = part[i]
        n_links = wants.link_offsets[p + 1] - wants.link_offsets[p]
        n = wants.members[p]
        alone = table.receiver[ALONE, n]
        total += wants.weight[n] * (
            price_stream(alone + wants.wanted[p], pricing) - price_stream(alone, pricing)
        )
        total += heat.links * n_links
        total += (pricing.sent + heat.sent + heat.extra) * wants.wanted[p]
    return total if copies else total - heat.extra * wants.rate[k]


@kernel
def _price_moves(k: int, heat: Heat, state: PairState, room: Room) -> None:
    """Take the toll off the places that the flows of a thing had before, if all its parts stay."""
    wants, bounds, table = state.wants, state.bounds, state.table
    if heat.toll == 0:
        return
    last = len(room.price) - 1
    for i in range(wants.flow_offsets[k], wants.flow_offsets[k + 1]):
        f = wants.flows[i]
        first, end = bounds.home_offsets[f], bounds.home_offsets[f + 1]
        found = 0
        for h in range(first, end):
            found += find_part(k, bounds.home[h], wants, table) >= 0
        if found < table.n_parts[k]:
            continue  # some part is away, wherever these pairs go
        for h in range(first, end):
            c = bounds.home[h]
            if c == UNICAST:
                room.price[last] -= heat.toll
            elif table.group[c] == bounds.home_group[c]:
                room.price[c] -= heat.toll


@kernel
def _block_places(
    k: int,
    part: IntArray,
    is_strict: bool,
    within: bool,
    heat: Heat,
    state: PairState,
    room: Room,
) -> None:
    """Add to the price of a session what a new copy there would bring over the limits."""
    bounds, table = state.bounds, state.table
    if not bounds.any_limit:
        return
    block, price, group = room.block, room.price, table.group
    block[:] = 0.0
    _block_groups(k, part, is_strict, within, heat, state, room)
    hears_limited = bounds.receiver_sessions < np.inf
    is_full = table.sums[SESSIONS] >= bounds.sessions
    steps = len(bounds.step_members) > 0 and within
    for c in range(len(group)):
        m = group[c]
        added = block[m]
        if hears_limited:
            added += heat.weight[RECEIVER_SESSIONS] * room.full_session[c]
        if is_full and table.session[PARTS, c] == 0:
            added += heat.weight[NUMBERS]
        if steps and added < FORBIDDEN:
            added += heat.weight[GROUP_PACKETS] * _packets_over(k, c, len(part), state, room)
        if added != 0:
            price[c] = FORBIDDEN if is_strict else price[c] + added


@kernel
def _packets_over(k: int, c: int, size: int, state: PairState, room: Room) -> float:
    """How far a new copy in a session would bring its group over its packets."""
    wants, bounds, table = state.wants, state.bounds, state.table
    m = table.group[c]
    heads = table.groups[HEADS, m] + size - room.hits_group[m]
    more = table.session[MESSAGES, c] + wants.messages[k]
    packets = more / min(bounds.fill, 1.0 + more * bounds.delay) - table.session[PACKETS, c]
    cap = packet_cap(heads, bounds)
    if cap == np.inf:
        return 0.0
    over = (table.groups[PACKETS, m] + packets - cap) / max(cap, 1.0)
    return float(max(over, 0.0))


@kernel
def _block_groups(
    k: int,
    part: IntArray,
    is_strict: bool,
    within: bool,
    heat: Heat,
    state: PairState,
    room: Room,
) -> None:
    """Price what a new copy would bring over the limits of each group and of those who join it."""
    wants, bounds, table = state.wants, state.bounds, state.table
    groups, block, weight = table.groups, room.block, heat.weight
    load, size = wants.load[k], len(part)
    if within:
        for m in range(len(block)):
            heads = groups[HEADS, m] + size - room.hits_group[m]
            if heads > bounds.group_members:
                over = heads - max(bounds.group_members, groups[HEADS, m])
                block[m] += weight[GROUP_MEMBERS] * over / bounds.group_members
            if groups[LOAD, m] + load > bounds.group_load:
                over = groups[LOAD, m] + load - max(bounds.group_load, groups[LOAD, m])
                block[m] += weight[GROUP_LOAD] * over / bounds.group_load
        if bounds.receiver_groups < np.inf:
            for m in range(len(block)):
                block[m] += weight[RECEIVER_GROUPS] * room.full_group[m]
    if table.sums[GROUPS] >= bounds.groups:
        for m in range(len(block)):
            if groups[PARTS, m] == 0:
                block[m] += weight[NUMBERS]
    if not is_strict:
        for m in range(bounds.filled):
            if groups[PARTS, m] == 0:
                block[m] -= weight[FILLED]
    if bounds.pinned[k] != FREE:
        for m in range(len(block)):
            if m != bounds.pinned[k]:
                block[m] = FORBIDDEN
    for i in range(bounds.foe_offsets[k], bounds.foe_offsets[k + 1]):
        foe = bounds.foes[i]
        start = wants.offsets[foe]
        for slot in range(start, start + table.n_parts[foe]):
            if table.part_place[slot] >= 0:
                block[table.group[table.part_place[slot]]] = FORBIDDEN
    if len(bounds.capped) and within:
        _block_by_intake(load, part, heat, state, room)
    if len(bounds.switch_entries) and within:
        _block_by_switch(part, heat, state, room)


@kernel
def _block_by_intake(load: float, part: IntArray, heat: Heat, state: PairState, room: Room) -> None:
    """Price the load that receivers of the part would get beyond their caps."""
    wants, bounds, table = state.wants, state.bounds, state.table
    for i in range(len(part)):
        n = wants.members[part[i]]
        cap = bounds.receiver_load[n]
        if cap == np.inf:
            continue
        left = cap - table.receiver[INTAKE, n]
        weight = heat.weight[RECEIVER_LOAD] / cap
        for m in range(len(room.block)):
            more = load if table.joins[n, m] else table.groups[LOAD, m] + load
            if more > left:
                room.block[m] += weight * (more - max(left, 0.0))


@kernel
def _block_by_switch(part: IntArray, heat: Heat, state: PairState, room: Room) -> None:
    """Price the entries that switches of the part's receivers lack."""
    wants, bounds, table = state.wants, state.bounds, state.table
    for i in range(len(part)):
        w = bounds.switch[wants.members[part[i]]]
        if w < 0 or table.used_entries[w] < bounds.switch_entries[w]:
            continue
        for m in range(len(room.block)):
            if table.entries[w, m] == 0:
                room.block[m] += heat.weight[SWITCH_ENTRIES] / bounds.switch_entries[w]


@kernel
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
            is_home = bounds.home_group[c] >= 0 and _draw(room.seed) < 0.5
            any_group = int(_draw(room.seed) * n_groups)
            table.group[c] = bounds.home_group[c] if is_home else any_group
            continue
        size = 0
        for n in range(table.hears.shape[0]):
            if table.hears[n, c]:
                listeners[size] = n
                size += 1
        moved += _redraw_group(c, listeners[:size], heat, state, price, odds, room)
    return moved


@kernel
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
        new = pick(price, old, heat.temperature, _draw(room.seed), odds)
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


@kernel
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


@kernel
def _shuffle(order: IntArray, room: Room) -> None:
    for i in range(len(order) - 1, 0, -1):
        j = int(_draw(room.seed) * (i + 1))
        order[i], order[j] = order[j], order[i]
