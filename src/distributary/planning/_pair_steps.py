"""The steps that change a plan at the level of pairs.

`put_in` and `take_out` change the place of pairs, `attach` and `detach` the group of a session.
They keep the cost, every load and every violation up to date, so that a search only has to make a
move to know what it brings, and to take it back if it is not allowed.
"""

from __future__ import annotations

import numpy as np

from distributary.compiled import inner_kernel, kernel
from distributary.model import IntArray
from distributary.planning._pair_counts import (
    add_intake,
    add_receiver,
    begin_change,
    count_moved_flows,
    end_change,
    fill_session,
    find_part,
    group_cost,
    note_change,
    note_group,
    note_sets,
    note_sums,
    price_beats,
    price_stream,
    session_cost,
)
from distributary.planning._pair_state import (
    ALONE,
    BEAT,
    COST,
    FREE,
    GROUPS,
    HEADS,
    INTAKE,
    JOINED,
    LOAD,
    MESSAGES,
    MOVED,
    NOWHERE,
    PACKETS,
    PARTS,
    PAUSES,
    RATE,
    RATE_SENT,
    SESSIONS,
    STAGE1,
    SUBSCRIBED,
    SWITCH_ENTRIES,
    UNICAST_LINKS,
    UNICAST_RECEIVERS,
    WEIGHT,
    Bounds,
    PairArrays,
    PairState,
    Pricing,
    Table,
    Wants,
    open_state,
    widen,
)

__all__ = ["attach", "clear", "detach", "fill", "put_in", "recount", "take_out"]


@inner_kernel
def _link(slot: int, c: int, table: Table) -> None:
    head = table.first[c]
    table.after[slot] = head
    table.before[slot] = -1
    if head >= 0:
        table.before[head] = slot
    table.first[c] = slot


@inner_kernel
def _unlink(slot: int, c: int, table: Table) -> None:
    before, after = table.before[slot], table.after[slot]
    if before >= 0:
        table.after[before] = after
    else:
        table.first[c] = after
    if after >= 0:
        table.before[after] = before


@inner_kernel
def _open_part(k: int, place: int, wants: Wants, table: Table) -> int:
    """Add an empty part; return its slot."""
    slot = wants.offsets[k] + table.n_parts[k]
    table.n_parts[k] += 1
    table.part_place[slot] = place
    table.part_size[slot] = 0
    table.owner[slot] = k
    if place >= 0:
        _link(slot, place, table)
    return widen(slot)


@inner_kernel
def _close_part(k: int, slot: int, wants: Wants, table: Table) -> None:
    """Remove an empty part; the last one takes its slot."""
    if table.part_place[slot] >= 0:
        _unlink(slot, table.part_place[slot], table)
    last = wants.offsets[k] + table.n_parts[k] - 1
    if last != slot:
        place = table.part_place[last]
        if place >= 0:
            _unlink(last, place, table)
            _link(slot, place, table)
        table.part_place[slot] = place
        table.part_size[slot] = table.part_size[last]
    table.n_parts[k] -= 1


@inner_kernel
def _join_group(n: int, m: int, pairs: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Count more (or fewer, below 0) of a receiver's pairs in a group."""
    old = table.here[n, m]
    table.here[n, m] = old + pairs
    if (old == 0) == (old + pairs == 0):
        return
    sign = 1 if old == 0 else -1
    table.joins[n, m] = old == 0
    table.groups[HEADS, m] += sign
    table.groups[WEIGHT, m] += sign * wants.weight[n]
    if table.groups[HEADS, m] == 0:
        table.groups[WEIGHT, m] = 0.0
    add_receiver(JOINED, n, sign, bounds, table)
    if len(bounds.capped):
        add_receiver(INTAKE, n, sign * table.groups[LOAD, m], bounds, table)
    w = bounds.switch[n]
    if w >= 0:
        table.entries[w, m] += sign
        if table.entries[w, m] == (sign > 0):  # the first has come, or the last has gone
            used = table.used_entries[w]
            table.used_entries[w] = used + sign
            note_change(SWITCH_ENTRIES, bounds.switch_entries[w], used, used + sign, table)


@inner_kernel
def _hear_session(n: int, c: int, sign: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Count one more or one fewer of a receiver's pairs in a session."""
    old = table.held[n, c]
    table.held[n, c] = old + sign
    if old and old + sign:
        return
    table.hears[n, c] = old == 0
    table.session[HEADS, c] += sign
    table.session[WEIGHT, c] += sign * wants.weight[n]
    if table.session[HEADS, c] == 0:
        table.session[WEIGHT, c] = 0.0
    add_receiver(SUBSCRIBED, n, sign, bounds, table)


@inner_kernel
def _add_parts(m: int, more: float, table: Table) -> None:
    """Count parts in a group, and whether it is used."""
    groups = table.groups
    was_used = groups[PARTS, m] > 0
    groups[PARTS, m] += more
    table.sums[GROUPS] += (groups[PARTS, m] > 0) - was_used


@inner_kernel
def _fill_group(m: int, pricing: Pricing, table: Table) -> None:
    """Price the heartbeats of a group; an empty one costs nothing."""
    groups = table.groups
    if groups[PARTS, m] == 0:
        for row in (STAGE1, PACKETS, PAUSES, LOAD, BEAT):
            groups[row, m] = 0.0
    else:
        groups[BEAT, m] = price_beats(groups[PAUSES, m], pricing)


@inner_kernel
def _carry(
    k: int, c: int, sign: int, wants: Wants, pricing: Pricing, bounds: Bounds, table: Table
) -> None:
    """Count a copy of a thing in a session and its group, or uncount it."""
    session, groups, m = table.session, table.groups, table.group[c]
    rows = (STAGE1, PACKETS, PAUSES)
    for row in rows:
        groups[row, m] -= session[row, c]
    session[RATE, c] += sign * wants.rate[k]
    session[MESSAGES, c] += sign * wants.messages[k]
    session[LOAD, c] += sign * wants.load[k]
    groups[LOAD, m] += sign * wants.load[k]
    session[PARTS, c] += sign
    _add_parts(m, sign, table)
    if session[PARTS, c] == 0:
        session[RATE, c] = session[MESSAGES, c] = session[LOAD, c] = 0.0
        table.sums[SESSIONS] -= 1
    elif sign > 0 and session[PARTS, c] == 1:
        table.sums[SESSIONS] += 1
    fill_session(c, pricing, bounds, table)
    for row in rows:
        groups[row, m] += session[row, c]
    _fill_group(m, pricing, table)
    table.sums[RATE_SENT] += sign * wants.rate[k]
    table.sums[COST] += sign * wants.rate[k] * pricing.sent
    if len(bounds.capped):
        add_intake(m, sign * wants.load[k], bounds, table)


@inner_kernel
def put_in(
    k: int,
    part: IntArray,  # IN   pairs of thing k that have no place
    place: int,
    state: PairState,  # IN and OUT
) -> None:
    """Give pairs of a thing a place."""
    wants, pricing, bounds, table = state
    begin_change(k, wants, bounds, table)
    slot = find_part(k, place, wants, table)
    is_new = slot < 0
    if place < 0:
        if is_new:
            slot = _open_part(k, place, wants, table)
        _send_by_unicast(k, part, 1, wants, pricing, bounds, table)
    else:
        m = table.group[place]
        note_group(m, -1, bounds, table)
        table.sums[COST] -= group_cost(m, pricing, table) + session_cost(place, table)
        if is_new:
            note_sets(k, place, m, 1, False, wants, bounds, table)
            slot = _open_part(k, place, wants, table)
            _carry(k, place, 1, wants, pricing, bounds, table)
        for i in range(len(part)):
            n = wants.members[part[i]]
            _hear_session(n, place, 1, wants, bounds, table)
            _join_group(n, m, 1, wants, bounds, table)
        table.sums[COST] += group_cost(m, pricing, table) + session_cost(place, table)
        note_group(m, 1, bounds, table)
    table.part_size[slot] += len(part)
    for i in range(len(part)):
        table.place[part[i]] = place
    end_change(k, wants, bounds, table)


@inner_kernel
def take_out(
    k: int,
    part: IntArray,  # IN   pairs of thing k that have one place
    state: PairState,  # IN and OUT
) -> None:
    """Take pairs of a thing out of their place."""
    wants, pricing, bounds, table = state
    begin_change(k, wants, bounds, table)
    place = table.place[part[0]]
    slot = find_part(k, place, wants, table)
    table.part_size[slot] -= len(part)
    is_last = table.part_size[slot] == 0
    if place < 0:
        _send_by_unicast(k, part, -1, wants, pricing, bounds, table)
        if is_last:
            table.by_unicast[k] = 0.0
            _close_part(k, slot, wants, table)
    else:
        m = table.group[place]
        note_group(m, -1, bounds, table)
        table.sums[COST] -= group_cost(m, pricing, table) + session_cost(place, table)
        for i in range(len(part)):
            n = wants.members[part[i]]
            _hear_session(n, place, -1, wants, bounds, table)
            _join_group(n, m, -1, wants, bounds, table)
        if is_last:
            _carry(k, place, -1, wants, pricing, bounds, table)
            _close_part(k, slot, wants, table)
            note_sets(k, place, m, -1, False, wants, bounds, table)
        table.sums[COST] += group_cost(m, pricing, table) + session_cost(place, table)
        note_group(m, 1, bounds, table)
    for i in range(len(part)):
        table.place[part[i]] = NOWHERE
    end_change(k, wants, bounds, table)


@inner_kernel
def _send_by_unicast(
    k: int,
    part: IntArray,
    sign: int,
    wants: Wants,
    pricing: Pricing,
    bounds: Bounds,
    table: Table,
) -> None:
    """Count pairs as sent by unicast, or uncount them."""
    for i in range(len(part)):
        p = part[i]
        n = wants.members[p]
        alone = table.receiver[ALONE, n]
        more = alone + sign * wants.wanted[p]
        table.receiver[ALONE, n] = more
        table.sums[COST] += wants.weight[n] * (
            price_stream(more, pricing) - price_stream(alone, pricing)
        )
        table.sums[COST] += sign * pricing.sent * wants.wanted[p]
        table.sums[RATE_SENT] += sign * wants.wanted[p]
        table.by_unicast[k] += sign * wants.wanted[p]
        start, end = wants.link_offsets[p], wants.link_offsets[p + 1]
        table.sums[UNICAST_LINKS] += sign * (end - start)
        for j in range(start, end):
            f = wants.links[j]
            old = float(table.flow_links[f])
            table.flow_links[f] += sign
            note_change(UNICAST_RECEIVERS, bounds.unicast_receivers, old, old + sign, table)
        if len(bounds.capped):
            add_receiver(INTAKE, n, sign * wants.wanted_load[p], bounds, table)


@inner_kernel
def detach(
    c: int,
    listeners: IntArray,  # IN   the receivers in session c
    state: PairState,  # IN and OUT
) -> None:
    """Take a session out of its group."""
    wants, pricing, bounds, table = state
    _shift_session(c, listeners, -1, wants, pricing, bounds, table)


@inner_kernel
def attach(
    c: int,
    m: int,
    listeners: IntArray,  # IN   the receivers in session c
    state: PairState,  # IN and OUT
) -> None:
    """Put a session into a group."""
    wants, pricing, bounds, table = state
    table.group[c] = m
    _shift_session(c, listeners, 1, wants, pricing, bounds, table)
    note_sums(-1, bounds, table)
    slot = table.first[c]
    while slot >= 0:
        k = table.owner[slot]
        moved = count_moved_flows(k, wants, bounds, table)
        table.sums[MOVED] += moved - table.moved[k]
        table.moved[k] = moved
        slot = table.after[slot]
    note_sums(1, bounds, table)


@inner_kernel
def _shift_session(
    c: int,
    listeners: IntArray,
    sign: int,
    wants: Wants,
    pricing: Pricing,
    bounds: Bounds,
    table: Table,
) -> None:
    """Count a whole session in its group, or uncount it."""
    session, groups, m = table.session, table.groups, table.group[c]
    note_group(m, -1, bounds, table)
    table.sums[COST] -= group_cost(m, pricing, table)
    for i in range(len(listeners)):
        if sign < 0:
            n = listeners[i]
            _join_group(n, m, -table.held[n, c], wants, bounds, table)
    for row in (STAGE1, PACKETS, PAUSES, LOAD):
        groups[row, m] += sign * session[row, c]
    note_sums(-1, bounds, table)
    _add_parts(m, sign * session[PARTS, c], table)
    note_sums(1, bounds, table)
    _fill_group(m, pricing, table)
    if len(bounds.capped):
        add_intake(m, sign * session[LOAD, c], bounds, table)
    for i in range(len(listeners)):
        if sign > 0:
            n = listeners[i]
            _join_group(n, m, table.held[n, c], wants, bounds, table)
    slot = table.first[c]
    while slot >= 0:
        k = table.owner[slot]
        if bounds.pinned[k] != FREE or bounds.foe_offsets[k] < bounds.foe_offsets[k + 1]:
            note_sets(k, c, m, sign, True, wants, bounds, table)
        slot = table.after[slot]
    table.sums[COST] += group_cost(m, pricing, table)
    note_group(m, 1, bounds, table)


@kernel
def fill(arrays: PairArrays) -> None:
    """Fill everything else from `place` and `group`."""
    recount(open_state(arrays))


@inner_kernel
def recount(state: PairState) -> None:
    """Fill everything anew from `place` and `group`, without the rounding of many small steps."""
    wants, _, bounds, table = state
    n_things = len(wants.rate)
    place = table.place.copy()
    part = np.zeros(len(place), np.int64)
    clear(bounds, table)
    for k in range(n_things):
        start, end = wants.offsets[k], wants.offsets[k + 1]
        for p in range(start, end):
            if table.place[p] != NOWHERE:
                continue
            size = 0
            for q in range(p, end):
                if place[q] == place[p]:
                    part[size] = q
                    size += 1
            put_in(k, part[:size], place[p], state)


@inner_kernel
def clear(bounds: Bounds, table: Table) -> None:
    """Take all pairs out of their places."""
    table.place[:] = NOWHERE
    table.n_parts[:] = 0
    table.first[:] = -1
    table.session[:] = 0.0
    table.groups[:] = 0.0
    table.held[:] = 0
    table.here[:] = 0
    table.hears[:] = 0
    table.joins[:] = 0
    table.receiver[:] = 0.0
    table.entries[:] = 0
    table.used_entries[:] = 0.0
    table.flow_links[:] = 0
    table.by_unicast[:] = 0.0
    table.moved[:] = 0
    table.sums[:] = 0.0
    table.over[:] = 0.0
    table.broken[:] = 0
    for m in range(table.groups.shape[1]):
        note_group(m, 1, bounds, table)
    note_sums(1, bounds, table)
