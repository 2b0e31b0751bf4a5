"""The state of a plan at the level of pairs, and the steps that change it.

A *thing* is a flow, or a bundle of flows that must stay together. A *pair* is a receiver and a
thing that it wants. Each pair has a place: a session, or unicast (-1). The pairs of a thing with
the same place are one *part* of it; a part in a session is one copy of the thing there.

`put_in` and `take_out` change the place of pairs, `attach` and `detach` the group of a session.
They keep the cost, every load and every violation up to date, so that a search only has to make a
move to know what it brings, and to take it back if it is not allowed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from distributary.compiled import kernel
from distributary.cost.packets import FIRST_HEARTBEAT_S, HEARTBEAT_POWER, HEARTBEAT_SCALE
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = [
    "APART",
    "BARRED",
    "COST",
    "EXTRA",
    "FILLED",
    "FREE",
    "GROUP_LOAD",
    "GROUP_MEMBERS",
    "GROUP_PACKETS",
    "KINDS",
    "LINKS",
    "MOVES",
    "NUMBERS",
    "PINNED",
    "RECEIVER_GROUPS",
    "RECEIVER_LOAD",
    "RECEIVER_SESSIONS",
    "SENT",
    "SWITCH_ENTRIES",
    "UNICAST",
    "UNICAST_EXTRA",
    "UNICAST_LINKS",
    "UNICAST_RECEIVERS",
    "Bounds",
    "PairArrays",
    "PairState",
    "Pricing",
    "Table",
    "Wants",
    "attach",
    "clear",
    "count_broken",
    "count_pauses",
    "detach",
    "fill",
    "find_part",
    "open_state",
    "packet_cap",
    "price_beats",
    "price_stream",
    "put_in",
    "recount",
    "sum_over",
    "take_out",
    "widen",
]

UNICAST = -1  # the place of a pair that is served by unicast
NOWHERE = -2  # the place of a pair while it moves
FREE, BARRED = -1, -2  # instead of a pinned group: any group, or none

# What can be broken: the rows of `Table.over` and `Table.broken`.
GROUP_MEMBERS, GROUP_LOAD, GROUP_PACKETS = 0, 1, 2
RECEIVER_GROUPS, RECEIVER_SESSIONS, RECEIVER_LOAD = 3, 4, 5
SWITCH_ENTRIES, PINNED, APART, FILLED = 6, 7, 8, 9
SENT, LINKS, EXTRA, UNICAST_RECEIVERS, MOVES, NUMBERS = 10, 11, 12, 13, 14, 15
KINDS = 16

# Rows of `Table.session` and of `Table.groups`. STAGE1 and STAGE2 are the prices of receiving and
# of accepting all that the session carries, BEAT that of a group's heartbeats; WEIGHT is that of
# its listeners, HEADS their number. PACKETS are those of MESSAGES, for limits.
RATE, MESSAGES, LOAD, STAGE1, STAGE2, PACKETS, WEIGHT, HEADS, PARTS = 0, 1, 2, 3, 4, 5, 6, 7, 8
PAUSES, BEAT = 9, 10
ROWS = 11
# Rows of `Table.receiver`.
JOINED, SUBSCRIBED, INTAKE, ALONE = 0, 1, 2, 3
# Entries of `Table.sums`.
COST, RATE_SENT, UNICAST_LINKS, UNICAST_EXTRA, MOVED, SESSIONS, GROUPS = 0, 1, 2, 3, 4, 5, 6
SUMS = 7

Flags = np.ndarray[Any, np.dtype[np.uint8]]


class Wants(NamedTuple):
    """Who wants what: the pairs of thing k are `offsets[k]` to `offsets[k + 1]`.

    `members` is the receiver of each pair, `wanted` and `wanted_load` the part of the thing's rate
    and load that it wants, and `links` the flows that it wants,
    `links[link_offsets[p]:link_offsets[p + 1]]`. The flows of thing k are
    `flows[flow_offsets[k]:flow_offsets[k + 1]]`. `weight` is that of each receiver. `messages` is
    the load in messages, where limits on packets need it.
    """

    offsets: IntArray
    members: IndexArray
    rate: FloatArray
    load: FloatArray
    messages: FloatArray
    wanted: FloatArray
    wanted_load: FloatArray
    link_offsets: IntArray
    links: IndexArray
    flow_offsets: IntArray
    flows: IndexArray
    weight: FloatArray


class Pricing(NamedTuple):
    """Prices per unit of rate (0) and per packet (1) of both stages, and per unit of rate sent.

    A session fills its packets to min(`fill`, 1 + rate x `delay`). Each member of a group pays
    alpha1 for its `heartbeats` when idle and for those after pauses: see `cost.packets`. `unit` is
    the number of messages per second in a unit of rate.
    """

    alpha0: float
    alpha1: float
    beta0: float
    beta1: float
    fill: float
    delay: float
    heartbeats: float
    sent: float
    unit: float


class Bounds(NamedTuple):
    """What a plan must keep to; a missing limit is infinite.

    Limits on packets assume packets filled to min(`fill`, 1 + messages x `delay`). Groups below
    `filled` must not be empty, nor all sessions. A thing must not share a group with
    its foes. `unicast_receivers` is how many receivers of a flow may get it by unicast; `copies`
    says whether a thing may be in several sessions. `home[home_offsets[f]:home_offsets[f + 1]]` are
    the places of flow f in the previous plan (none: it is new), and `home_group` the group that
    each session had there, -1 if it is free to go anywhere. Only `sessions` and `groups` of those
    there are may be used. `any_limit` says whether places have to
    be checked at all; `by_weight` is empty if all receivers weigh 1.
    """

    group_members: float
    group_load: float
    step_members: FloatArray
    step_packets: FloatArray
    fill: float
    delay: float
    receiver_groups: float
    receiver_sessions: float
    receiver_load: FloatArray
    capped: IndexArray
    switch: IndexArray
    switch_entries: FloatArray
    pinned: IndexArray
    foe_offsets: IntArray
    foes: IndexArray
    filled: int
    copies: bool
    sent: float
    unicast_receivers: float
    links: float
    extra: float
    moves: float
    home_offsets: IntArray
    home: IndexArray
    home_group: IndexArray
    sessions: float
    groups: float
    any_limit: bool
    by_weight: FloatArray


class Table(NamedTuple):
    """The places of all pairs, and everything that follows from them.

    The parts of thing k are in the slots `offsets[k]` to `offsets[k] + n_parts[k]`: `part_place`
    and `part_size`. The slots of the parts in a session are linked: `first` of the session, then
    `after` and `before`. `held` and `here` count a receiver's pairs in each session and group;
    `hears` and `joins` say whether there are any.
    """

    place: IndexArray
    part_place: IndexArray
    part_size: IndexArray
    n_parts: IndexArray
    owner: IndexArray
    after: IndexArray
    before: IndexArray
    first: IndexArray
    group: IndexArray
    session: FloatArray
    groups: FloatArray
    held: Any
    here: Any
    hears: Flags
    joins: Flags
    receiver: FloatArray
    entries: Any
    used_entries: FloatArray
    flow_links: IndexArray
    by_unicast: FloatArray
    moved: IndexArray
    sums: FloatArray
    over: FloatArray
    broken: IntArray


class PairState(NamedTuple):
    """Everything that a search at the level of pairs needs: the problem, and where it stands."""

    wants: Wants
    pricing: Pricing
    bounds: Bounds
    table: Table


class PairArrays(NamedTuple):
    """A `PairState` as Python passes it to compiled code."""

    wants: Wants
    pricing: Pricing
    bounds: Bounds
    table: Table


def _make_handle(name: str, fields: tuple[str, ...]) -> Any:
    """A type that holds many arrays: compiled functions pass it on as one pointer.

    Numba passes each array of a named tuple as seven arguments or more. With the hundred arrays of
    a `PairState` that took longer than the functions themselves.
    """

    numba: Any = structref  # it has no types

    class HandleType(types.StructRef):
        def preprocess_fields(self, fields: Any) -> Any:
            unliteral: Any = types.unliteral
            return tuple((field, unliteral(kind)) for field, kind in fields)

    class Handle(structref.StructRefProxy):
        pass

    HandleType.__name__ = HandleType.__qualname__ = f"{name}Type"
    Handle.__name__ = Handle.__qualname__ = name
    globals()[f"{name}Type"] = registered = numba.register(HandleType)
    numba.define_constructor(Handle, registered, list(fields))
    numba.define_attributes(registered)
    return Handle


_WantsHandle = _make_handle("_WantsHandle", Wants._fields)
_BoundsHandle = _make_handle("_BoundsHandle", Bounds._fields)
_TableHandle = _make_handle("_TableHandle", Table._fields)


@kernel
def open_state(arrays: PairArrays) -> PairState:
    """The state of these arrays, which it shares."""
    wants, pricing, bounds, table = arrays
    wanting = _WantsHandle(
        wants.offsets,
        wants.members,
        wants.rate,
        wants.load,
        wants.messages,
        wants.wanted,
        wants.wanted_load,
        wants.link_offsets,
        wants.links,
        wants.flow_offsets,
        wants.flows,
        wants.weight,
    )
    bounding = _BoundsHandle(
        bounds.group_members,
        bounds.group_load,
        bounds.step_members,
        bounds.step_packets,
        bounds.fill,
        bounds.delay,
        bounds.receiver_groups,
        bounds.receiver_sessions,
        bounds.receiver_load,
        bounds.capped,
        bounds.switch,
        bounds.switch_entries,
        bounds.pinned,
        bounds.foe_offsets,
        bounds.foes,
        bounds.filled,
        bounds.copies,
        bounds.sent,
        bounds.unicast_receivers,
        bounds.links,
        bounds.extra,
        bounds.moves,
        bounds.home_offsets,
        bounds.home,
        bounds.home_group,
        bounds.sessions,
        bounds.groups,
        bounds.any_limit,
        bounds.by_weight,
    )
    placing = _TableHandle(
        table.place,
        table.part_place,
        table.part_size,
        table.n_parts,
        table.owner,
        table.after,
        table.before,
        table.first,
        table.group,
        table.session,
        table.groups,
        table.held,
        table.here,
        table.hears,
        table.joins,
        table.receiver,
        table.entries,
        table.used_entries,
        table.flow_links,
        table.by_unicast,
        table.moved,
        table.sums,
        table.over,
        table.broken,
    )
    return PairState(wanting, pricing, bounding, placing)


@kernel
def widen(number: int) -> int:
    """A 64-bit integer, so that functions are compiled for one type of argument only."""
    return np.int64(number)  # type: ignore[return-value]


@kernel
def sum_over(table: Table, weight: FloatArray) -> float:
    """The violation of all limits together, each kind at its weight."""
    total = 0.0
    for kind in range(KINDS):
        if table.broken[kind]:
            total += weight[kind] * table.over[kind]
    return total


@kernel
def count_broken(table: Table) -> int:
    """How many limits are broken, counting each group, receiver, switch or thing."""
    total = 0
    for kind in range(KINDS):
        total += table.broken[kind]
    return total


@kernel
def _note(kind: int, cap: float, load: float, sign: int, table: Table) -> None:
    """Count (1) or uncount (-1) what is over a cap, relative to it."""
    if load > cap:
        table.broken[kind] += sign
        table.over[kind] += sign * (load - cap) / max(cap, 1.0)


@kernel
def _swap(kind: int, cap: float, old: float, new: float, table: Table) -> None:
    """Note that a load has changed."""
    if old > cap or new > cap:
        _note(kind, cap, old, -1, table)
        _note(kind, cap, new, 1, table)


@kernel
def packet_cap(members: float, bounds: Bounds) -> float:
    """The most packets of a group; one beyond the last step breaks the limit of its members."""
    for i in range(len(bounds.step_members)):
        if members <= bounds.step_members[i]:
            return float(bounds.step_packets[i])
    return np.inf


@kernel
def _note_group(m: int, sign: int, bounds: Bounds, table: Table) -> None:
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


@kernel
def _note_sums(sign: int, bounds: Bounds, table: Table) -> None:
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


@kernel
def _group_cost(m: int, pricing: Pricing, table: Table) -> float:
    groups = table.groups
    return float(groups[WEIGHT, m] * (groups[STAGE1, m] + groups[BEAT, m]))


@kernel
def _session_cost(c: int, table: Table) -> float:
    return float(table.session[WEIGHT, c] * table.session[STAGE2, c])


@kernel
def _fill_session(c: int, pricing: Pricing, bounds: Bounds, table: Table) -> None:
    """Price what a session carries."""
    session = table.session
    rate, messages = session[RATE, c], session[MESSAGES, c]
    packets = rate / min(pricing.fill, 1.0 + rate * pricing.delay)
    session[STAGE1, c] = pricing.alpha0 * rate + pricing.alpha1 * packets
    session[STAGE2, c] = pricing.beta0 * rate + pricing.beta1 * packets
    session[PACKETS, c] = messages / min(bounds.fill, 1.0 + messages * bounds.delay)
    session[PAUSES, c] = count_pauses(packets, pricing)


@kernel
def count_pauses(packets: float, pricing: Pricing) -> float:
    """How many packets per second a pause follows."""
    if pricing.heartbeats == 0:
        return 0.0
    real = packets * pricing.unit
    return float(real * np.exp(-FIRST_HEARTBEAT_S * real))


@kernel
def price_beats(pauses: float, pricing: Pricing) -> float:
    """What each member of a group pays for its heartbeats."""
    if pricing.heartbeats == 0:
        return 0.0
    filled = HEARTBEAT_SCALE * (FIRST_HEARTBEAT_S * max(pauses, 0.0)) ** HEARTBEAT_POWER
    beats = pricing.heartbeats + filled / (1.0 + filled / 2.0) / FIRST_HEARTBEAT_S
    return float(pricing.alpha1 * beats / pricing.unit)


@kernel
def price_stream(rate: float, pricing: Pricing) -> float:
    """What a receiver pays for all that it gets by unicast, a stream of its own."""
    if rate <= 0:
        return 0.0
    packets = rate / min(pricing.fill, 1.0 + rate * pricing.delay)
    price = (pricing.alpha0 + pricing.beta0) * rate + (pricing.alpha1 + pricing.beta1) * packets
    return price + price_beats(count_pauses(packets, pricing), pricing)


@kernel
def _count_moved(k: int, wants: Wants, bounds: Bounds, table: Table) -> int:
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


@kernel
def _is_home(f: int, place: int, bounds: Bounds, table: Table) -> bool:
    """Whether a flow had a place before, in the group that this has now."""
    if place >= 0 and table.group[place] != bounds.home_group[place]:
        return False
    for h in range(bounds.home_offsets[f], bounds.home_offsets[f + 1]):
        if bounds.home[h] == place:
            return True
    return False


@kernel
def _extra_of(k: int, wants: Wants, table: Table) -> float:
    """The rate that a thing sends by unicast beyond one copy of each of its flows."""
    rate = table.by_unicast[k]
    if rate and table.n_parts[k] == 1:
        rate -= wants.rate[k]
    return float(rate)


@kernel
def _begin(k: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Uncount what depends on a thing as a whole, before its parts change."""
    _note_sums(-1, bounds, table)
    _note_unpinned(k, -1, bounds, table)
    table.sums[UNICAST_EXTRA] -= _extra_of(k, wants, table)


@kernel
def _end(k: int, wants: Wants, bounds: Bounds, table: Table) -> None:
    """Count what depends on a thing as a whole, after its parts have changed."""
    table.sums[UNICAST_EXTRA] += _extra_of(k, wants, table)
    moved = _count_moved(k, wants, bounds, table)
    table.sums[MOVED] += moved - table.moved[k]
    table.moved[k] = moved
    _note_unpinned(k, 1, bounds, table)
    _note_sums(1, bounds, table)


@kernel
def _note_unpinned(k: int, sign: int, bounds: Bounds, table: Table) -> None:
    """Count or uncount a pinned thing that is in no group at all."""
    if bounds.pinned[k] >= 0 and table.n_parts[k] == 1 and table.by_unicast[k] > 0:
        table.broken[FILLED] += sign
        table.over[FILLED] += sign


@kernel
def find_part(k: int, place: int, wants: Wants, table: Table) -> int:
    """The slot of a thing's part in a place, or -1."""
    start = wants.offsets[k]
    for slot in range(start, start + table.n_parts[k]):
        if table.part_place[slot] == place:
            return slot
    return -1


@kernel
def _link(slot: int, c: int, table: Table) -> None:
    head = table.first[c]
    table.after[slot] = head
    table.before[slot] = -1
    if head >= 0:
        table.before[head] = slot
    table.first[c] = slot


@kernel
def _unlink(slot: int, c: int, table: Table) -> None:
    before, after = table.before[slot], table.after[slot]
    if before >= 0:
        table.after[before] = after
    else:
        table.first[c] = after
    if after >= 0:
        table.before[after] = before


@kernel
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


@kernel
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


@kernel
def _is_in_group(k: int, m: int, but: int, wants: Wants, table: Table) -> bool:
    """Whether a thing is in a group in another session than one."""
    start = wants.offsets[k]
    for slot in range(start, start + table.n_parts[k]):
        c = table.part_place[slot]
        if c >= 0 and c != but and table.group[c] == m:
            return True
    return False


@kernel
def _note_sets(
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


@kernel
def _add_intake(m: int, load: float, bounds: Bounds, table: Table) -> None:
    """Count a load of a group at its members."""
    for i in range(len(bounds.capped)):
        n = bounds.capped[i]
        if table.joins[n, m]:
            old = table.receiver[INTAKE, n]
            table.receiver[INTAKE, n] = old + load
            _swap(RECEIVER_LOAD, bounds.receiver_load[n], old, old + load, table)


@kernel
def _add_receiver(row: int, n: int, more: float, bounds: Bounds, table: Table) -> None:
    """Count sessions, groups or load of one receiver."""
    old = table.receiver[row, n]
    table.receiver[row, n] = old + more
    if row == JOINED:
        _swap(RECEIVER_GROUPS, bounds.receiver_groups, old, old + more, table)
    elif row == SUBSCRIBED:
        _swap(RECEIVER_SESSIONS, bounds.receiver_sessions, old, old + more, table)
    else:
        _swap(RECEIVER_LOAD, bounds.receiver_load[n], old, old + more, table)


@kernel
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
    _add_receiver(JOINED, n, sign, bounds, table)
    if len(bounds.capped):
        _add_receiver(INTAKE, n, sign * table.groups[LOAD, m], bounds, table)
    w = bounds.switch[n]
    if w >= 0:
        table.entries[w, m] += sign
        if table.entries[w, m] == (sign > 0):  # the first has come, or the last has gone
            used = table.used_entries[w]
            table.used_entries[w] = used + sign
            _swap(SWITCH_ENTRIES, bounds.switch_entries[w], used, used + sign, table)


@kernel
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
    _add_receiver(SUBSCRIBED, n, sign, bounds, table)


@kernel
def _add_parts(m: int, more: float, table: Table) -> None:
    """Count parts in a group, and whether it is used."""
    groups = table.groups
    was_used = groups[PARTS, m] > 0
    groups[PARTS, m] += more
    table.sums[GROUPS] += (groups[PARTS, m] > 0) - was_used


@kernel
def _fill_group(m: int, pricing: Pricing, table: Table) -> None:
    """Price the heartbeats of a group; an empty one costs nothing."""
    groups = table.groups
    if groups[PARTS, m] == 0:
        for row in (STAGE1, PACKETS, PAUSES, LOAD, BEAT):
            groups[row, m] = 0.0
    else:
        groups[BEAT, m] = price_beats(groups[PAUSES, m], pricing)


@kernel
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
    _fill_session(c, pricing, bounds, table)
    for row in rows:
        groups[row, m] += session[row, c]
    _fill_group(m, pricing, table)
    table.sums[RATE_SENT] += sign * wants.rate[k]
    table.sums[COST] += sign * wants.rate[k] * pricing.sent
    if len(bounds.capped):
        _add_intake(m, sign * wants.load[k], bounds, table)


@kernel
def put_in(
    k: int,
    part: IntArray,  # IN   pairs of thing k that have no place
    place: int,
    state: PairState,  # IN and OUT
) -> None:
    """Give pairs of a thing a place."""
    wants, pricing, bounds, table = state
    _begin(k, wants, bounds, table)
    slot = find_part(k, place, wants, table)
    is_new = slot < 0
    if place < 0:
        if is_new:
            slot = _open_part(k, place, wants, table)
        _send_by_unicast(k, part, 1, wants, pricing, bounds, table)
    else:
        m = table.group[place]
        _note_group(m, -1, bounds, table)
        table.sums[COST] -= _group_cost(m, pricing, table) + _session_cost(place, table)
        if is_new:
            _note_sets(k, place, m, 1, False, wants, bounds, table)
            slot = _open_part(k, place, wants, table)
            _carry(k, place, 1, wants, pricing, bounds, table)
        for i in range(len(part)):
            n = wants.members[part[i]]
            _hear_session(n, place, 1, wants, bounds, table)
            _join_group(n, m, 1, wants, bounds, table)
        table.sums[COST] += _group_cost(m, pricing, table) + _session_cost(place, table)
        _note_group(m, 1, bounds, table)
    table.part_size[slot] += len(part)
    for i in range(len(part)):
        table.place[part[i]] = place
    _end(k, wants, bounds, table)


@kernel
def take_out(
    k: int,
    part: IntArray,  # IN   pairs of thing k that have one place
    state: PairState,  # IN and OUT
) -> None:
    """Take pairs of a thing out of their place."""
    wants, pricing, bounds, table = state
    _begin(k, wants, bounds, table)
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
        _note_group(m, -1, bounds, table)
        table.sums[COST] -= _group_cost(m, pricing, table) + _session_cost(place, table)
        for i in range(len(part)):
            n = wants.members[part[i]]
            _hear_session(n, place, -1, wants, bounds, table)
            _join_group(n, m, -1, wants, bounds, table)
        if is_last:
            _carry(k, place, -1, wants, pricing, bounds, table)
            _close_part(k, slot, wants, table)
            _note_sets(k, place, m, -1, False, wants, bounds, table)
        table.sums[COST] += _group_cost(m, pricing, table) + _session_cost(place, table)
        _note_group(m, 1, bounds, table)
    for i in range(len(part)):
        table.place[part[i]] = NOWHERE
    _end(k, wants, bounds, table)


@kernel
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
            _swap(UNICAST_RECEIVERS, bounds.unicast_receivers, old, old + sign, table)
        if len(bounds.capped):
            _add_receiver(INTAKE, n, sign * wants.wanted_load[p], bounds, table)


@kernel
def detach(
    c: int,
    listeners: IntArray,  # IN   the receivers in session c
    state: PairState,  # IN and OUT
) -> None:
    """Take a session out of its group."""
    wants, pricing, bounds, table = state
    _shift_session(c, listeners, -1, wants, pricing, bounds, table)


@kernel
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
    _note_sums(-1, bounds, table)
    slot = table.first[c]
    while slot >= 0:
        k = table.owner[slot]
        moved = _count_moved(k, wants, bounds, table)
        table.sums[MOVED] += moved - table.moved[k]
        table.moved[k] = moved
        slot = table.after[slot]
    _note_sums(1, bounds, table)


@kernel
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
    _note_group(m, -1, bounds, table)
    table.sums[COST] -= _group_cost(m, pricing, table)
    for i in range(len(listeners)):
        if sign < 0:
            n = listeners[i]
            _join_group(n, m, -table.held[n, c], wants, bounds, table)
    for row in (STAGE1, PACKETS, PAUSES, LOAD):
        groups[row, m] += sign * session[row, c]
    _note_sums(-1, bounds, table)
    _add_parts(m, sign * session[PARTS, c], table)
    _note_sums(1, bounds, table)
    _fill_group(m, pricing, table)
    if len(bounds.capped):
        _add_intake(m, sign * session[LOAD, c], bounds, table)
    for i in range(len(listeners)):
        if sign > 0:
            n = listeners[i]
            _join_group(n, m, table.held[n, c], wants, bounds, table)
    slot = table.first[c]
    while slot >= 0:
        k = table.owner[slot]
        if bounds.pinned[k] != FREE or bounds.foe_offsets[k] < bounds.foe_offsets[k + 1]:
            _note_sets(k, c, m, sign, True, wants, bounds, table)
        slot = table.after[slot]
    table.sums[COST] += _group_cost(m, pricing, table)
    _note_group(m, 1, bounds, table)


@kernel
def fill(arrays: PairArrays) -> None:
    """Fill everything else from `place` and `group`."""
    recount(open_state(arrays))


@kernel
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


@kernel
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
        _note_group(m, 1, bounds, table)
    _note_sums(1, bounds, table)
