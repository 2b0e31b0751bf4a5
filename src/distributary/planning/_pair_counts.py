"""What a change of a plan with terms does to prices and to what is over limits."""

from __future__ import annotations

import numpy as np

from distributary.compiled import inner_kernel
from distributary.cost.packets import FIRST_HEARTBEAT_S, HEARTBEAT_POWER, HEARTBEAT_SCALE
from distributary.model import FloatArray
from distributary.planning._pair_state import (
    APART,
    BEAT,
    EXTRA,
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
    LINKS,
    LOAD,
    MESSAGES,
    MOVED,
    MOVES,
    NUMBERS,
    PACKETS,
    PARTS,
    PAUSES,
    PINNED,
    RATE,
    RATE_SENT,
    RECEIVER_GROUPS,
    RECEIVER_LOAD,
    RECEIVER_SESSIONS,
    SENT,
    SESSIONS,
    STAGE1,
    STAGE2,
    SUBSCRIBED,
    UNICAST,
    UNICAST_EXTRA,
    UNICAST_LINKS,
    WEIGHT,
    Bounds,
    Pricing,
    Table,
    Wants,
)

__all__ = [
    "add_intake",
    "add_receiver",
    "begin_change",
    "count_broken",
    "count_moved_flows",
    "count_pauses",
    "end_change",
    "fill_session",
    "find_part",
    "group_cost",
    "note_change",
    "note_group",
    "note_sets",
    "note_sums",
    "packet_cap",
    "price_beats",
    "price_stream",
    "session_cost",
    "sum_over",
]


@inner_kernel
def sum_over(table: Table, weight: FloatArray) -> float:
    """The violation of all limits together, each kind at its weight."""
    total = 0.0
    for kind in range(KINDS):
        if table.broken[kind]:
            total += weight[kind] * table.over[kind]
    return total


@inner_kernel
def count_broken(table: Table) -> int:
    """How many limits are broken, counting each group, receiver, switch or thing."""
    total = 0
    for kind in range(KINDS):
        total += table.broken[kind]
    return total


@inner_kernel
def _note(kind: int, cap: float, load: float, sign: int, table: Table) -> None:
    """Count (1) or uncount (-1) what is over a cap, relative to it."""
    if load > cap:
        table.broken[kind] += sign
        table.over[kind] += sign * (load - cap) / max(cap, 1.0)


@inner_kernel
def note_change(kind: int, cap: float, old: float, new: float, table: Table) -> None:
    """Note that a load has changed."""
    if old > cap or new > cap:
        _note(kind, cap, old, -1, table)
        _note(kind, cap, new, 1, table)


@inner_kernel
def packet_cap(members: float, bounds: Bounds) -> float:
    """The most packets of a group; one beyond the last step breaks the limit of its members."""
    for i in range(len(bounds.step_members)):
        if members <= bounds.step_members[i]:
            return float(bounds.step_packets[i])
    return np.inf


@inner_kernel
def note_group(m: int, sign: int, bounds: Bounds, table: Table) -> None:
    """Count or uncount the violations of one group, and its cost."""
    groups = table.groups
    _note(GROUP_MEMBERS, bounds.group_members, groups[HEADS, m], sign, table)
    _note(GROUP_LOAD, bounds.group_load, groups[LOAD, m], sign, table)
    if len(bounds.step_members):
        cap = packet_cap(groups[HEADS, m], bounds)
        _note(GROUP_PACKETS, cap, groups[PACKETS, m], sign, table)
    if m < bounds.filled and groups[PARTS, m] == 0:
        table.broken[FILLED] += sign
        table.over[FILLED] += sign


@inner_kernel
def note_sums(sign: int, bounds: Bounds, table: Table) -> None:
    """Count or uncount the violations of what is bounded in total."""
    sums = table.sums
    _note(SENT, bounds.sent, sums[RATE_SENT], sign, table)
    _note(LINKS, bounds.links, sums[UNICAST_LINKS], sign, table)
    _note(EXTRA, bounds.extra, sums[UNICAST_EXTRA], sign, table)
    _note(MOVES, bounds.moves, sums[MOVED], sign, table)
    _note(NUMBERS, bounds.sessions, sums[SESSIONS], sign, table)
    _note(NUMBERS, bounds.groups, sums[GROUPS], sign, table)
    if sums[SESSIONS] == 0:
        table.broken[FILLED] += sign
        table.over[FILLED] += sign


@inner_kernel
def group_cost(m: int, pricing: Pricing, table: Table) -> float:
    groups = table.groups
    return float(groups[WEIGHT, m] * (groups[STAGE1, m] + groups[BEAT, m]))


@inner_kernel
def session_cost(c: int, table: Table) -> float:
    return float(table.session[WEIGHT, c] * table.session[STAGE2, c])


@inner_kernel
def fill_session(c: int, pricing: Pricing, bounds: Bounds, table: Table) -> None:
    """Price what a session carries."""
    session = table.session
    rate, messages = session[RATE, c], session[MESSAGES, c]
    packets = rate / min(pricing.fill, 1.0 + rate * pricing.delay)
    session[STAGE1, c] = pricing.alpha0 * rate + pricing.alpha1 * packets
    session[STAGE2, c] = pricing.beta0 * rate + pricing.beta1 * packets
    session[PACKETS, c] = messages / min(bounds.fill, 1.0 + messages * bounds.delay)
    session[PAUSES, c] = count_pauses(packets, pricing)


@inner_kernel
def count_pauses(packets: float, pricing: Pricing) -> float:
    """How many packets per second a pause follows."""
    if pricing.heartbeats == 0:
        return 0.0
    real = packets * pricing.unit
    return float(real * np.exp(-FIRST_HEARTBEAT_S * real))


@inner_kernel
def price_beats(pauses: float, pricing: Pricing) -> float:
    """What each member of a group pays for its heartbeats."""
    if pricing.heartbeats == 0:
        return 0.0
    filled = HEARTBEAT_SCALE * (FIRST_HEARTBEAT_S * max(pauses, 0.0)) ** HEARTBEAT_POWER
    beats = pricing.heartbeats + filled / (1.0 + filled / 2.0) / FIRST_HEARTBEAT_S
    return float(pricing.alpha1 * beats / pricing.unit)


@inner_kernel
def price_stream(rate: float, pricing: Pricing) -> float:
    """What a receiver pays for all that it gets by unicast, a stream of its own."""
    if rate <= 0:
        return 0.0
    packets = rate / min(pricing.fill, 1.0 + rate * pricing.delay)
    price = (pricing.alpha0 + pricing.beta0) * rate + (pricing.alpha1 + pricing.beta1) * packets
    return price + price_beats(count_pauses(packets, pricing), pricing)


@inner_kernel
def count_moved_flows(k: int, wants: Wants, bounds: Bounds, table: Table) -> int:
    """How many flows of a thing have a place that they did not have before."""
    moved = 0
    slot = wants.offsets[k]
    for i in range(wants.flow_offsets[k], wants.flow_offsets[k + 1]):
        f = wants.flows[i]
        if bounds.home_offsets[f] == bounds.home_offsets[f + 1]:
            continue
        for j in range(table.n_parts[k]):
            place = table.part_place[slot + j]
            if place == UNICAST and not table.flow_links[f]:
                continue  # another flow of the bundle goes by unicast
            if not _is_home(f, place, bounds, table):
                moved += 1
                break
    return moved


@inner_kernel
def _is_home(f: int, place: int, bounds: Bounds, table: Table) -> bool:
    """Whether a flow had a place before, in the group that this has now."""
    if place >= 0 and table.group[place] != bounds.home_group[place]:
        return False
    for h in range(bounds.home_offsets[f], bounds.home_offsets[f + 1]):
        if bounds.home[h] == place:
            return True
    return False


@inner_kernel
def _extra_of(k: int, wants: Wants, table: Table) -> float:
    """The rate that a thing sends by unicast beyond one copy of each of its flows."""
    rate = table.by_unicast[k]
    if rate and table.n_parts[k] == 1:
        rate -= wants.rate[k]
    return float(rate)


@inner_kernel
def begin_change(k: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Uncount what depends on a thing as a whole, before its parts change."""
    note_sums(-1, bounds, table)
    _note_unpinned(k, -1, bounds, table)
    table.sums[UNICAST_EXTRA] -= _extra_of(k, wants, table)


@inner_kernel
def end_change(k: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Count what depends on a thing as a whole, after its parts have changed."""
    table.sums[UNICAST_EXTRA] += _extra_of(k, wants, table)
    moved = count_moved_flows(k, wants, bounds, table)
    table.sums[MOVED] += moved - table.moved[k]
    table.moved[k] = moved
    _note_unpinned(k, 1, bounds, table)
    note_sums(1, bounds, table)


@inner_kernel
def _note_unpinned(k: int, sign: int, bounds: Bounds, table: Table) -> None:
    """Count or uncount a pinned thing that is in no group at all."""
    if bounds.pinned[k] >= 0 and table.n_parts[k] == 1 and table.by_unicast[k] > 0:
        table.broken[FILLED] += sign
        table.over[FILLED] += sign


@inner_kernel
def find_part(k: int, place: int, wants: Wants, table: Table) -> int:
    """The slot of a thing's part in a place, or -1."""
    start = wants.offsets[k]
    for slot in range(start, start + table.n_parts[k]):
        if table.part_place[slot] == place:
            return slot
    return -1


@inner_kernel
def _is_in_group(k: int, m: int, but: int, wants: Wants, table: Table) -> bool:
    """Whether a thing is in a group in another session than one."""
    start = wants.offsets[k]
    for slot in range(start, start + table.n_parts[k]):
        c = table.part_place[slot]
        if c >= 0 and c != but and table.group[c] == m:
            return True
    return False


@inner_kernel
def note_sets(
    k: int, c: int, m: int, sign: int, whole: bool, wants: Wants, bounds: Bounds, table: Table
) -> None:
    """Count or uncount the broken pins and sets of a thing's part in session c of group m.

    Two things that must be apart count once for each group in which they meet. If a `whole` session
    moves, two things in it that meet are counted at the first of them.
    """
    if bounds.pinned[k] != FREE and bounds.pinned[k] != m:
        table.broken[PINNED] += sign
        table.over[PINNED] += sign
    if bounds.foe_offsets[k] == bounds.foe_offsets[k + 1]:
        return
    is_elsewhere = _is_in_group(k, m, c, wants, table)
    for i in range(bounds.foe_offsets[k], bounds.foe_offsets[k + 1]):
        foe = bounds.foes[i]
        foe_elsewhere = _is_in_group(foe, m, c, wants, table)
        foe_inside = find_part(foe, c, wants, table) >= 0
        met = is_elsewhere and (foe_elsewhere or (foe_inside and not whole))
        counts = not (whole and foe_inside) or k < foe
        if (foe_inside or foe_elsewhere) and not met and counts:
            table.broken[APART] += sign
            table.over[APART] += sign


@inner_kernel
def add_intake(m: int, load: float, bounds: Bounds, table: Table) -> None:
    """Count a load of a group at its members."""
    for i in range(len(bounds.capped)):
        n = bounds.capped[i]
        if table.joins[n, m]:
            old = table.receiver[INTAKE, n]
            table.receiver[INTAKE, n] = old + load
            note_change(RECEIVER_LOAD, bounds.receiver_load[n], old, old + load, table)


@inner_kernel
def add_receiver(row: int, n: int, more: float, bounds: Bounds, table: Table) -> None:
    """Count sessions, groups or load of one receiver."""
    old = table.receiver[row, n]
    table.receiver[row, n] = old + more
    if row == JOINED:
        note_change(RECEIVER_GROUPS, bounds.receiver_groups, old, old + more, table)
    elif row == SUBSCRIBED:
        note_change(RECEIVER_SESSIONS, bounds.receiver_sessions, old, old + more, table)
    else:
        note_change(RECEIVER_LOAD, bounds.receiver_load[n], old, old + more, table)
