"""The price of every place for pairs of a thing, with what a place would bring over the limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distributary.compiled import inner_kernel, kernel
from distributary.model import FloatArray, IntArray
from distributary.planning._pair_counts import (
    count_pauses,
    find_part,
    packet_cap,
    price_beats,
    price_stream,
)
from distributary.planning._pair_state import (
    ALONE,
    BEAT,
    FILLED,
    FREE,
    GROUP_LOAD,
    GROUP_MEMBERS,
    GROUP_PACKETS,
    GROUPS,
    HEADS,
    INTAKE,
    JOINED,
    LOAD,
    MESSAGES,
    NUMBERS,
    PACKETS,
    PARTS,
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
    WEIGHT,
    PairState,
)

__all__ = ["FORBIDDEN", "Heat", "Room", "draw_number", "make_room", "price_places"]

FORBIDDEN = 1e300


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


@inner_kernel
def draw_number(seed: Any) -> float:
    """The next of a sequence of numbers in [0, 1): splitmix64."""
    seed[0] += np.uint64(0x9E3779B97F4A7C15)
    z = seed[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 2.0**53


@inner_kernel
def price_places(
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
def _weigh(part: IntArray, state: PairState) -> float:
    total = 0.0
    for i in range(len(part)):
        total += state.wants.weight[state.wants.members[part[i]]]
    return total


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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
