"""The state of a plan at the level of pairs, in the form that kernels use.

A *thing* is a flow, or a bundle of flows that must stay together. A *pair* is a receiver and a
thing that it wants. Each pair has a place: a session, or unicast (-1). The pairs of a thing with
the same place are one *part* of it; a part in a session is one copy of the thing there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref

from distributary.compiled import inner_kernel
from distributary.model import FloatArray, IndexArray, IntArray

__all__ = [
    "ALONE",
    "APART",
    "BARRED",
    "BEAT",
    "COST",
    "EXTRA",
    "FILLED",
    "FREE",
    "GROUPS",
    "GROUP_LOAD",
    "GROUP_MEMBERS",
    "GROUP_PACKETS",
    "HEADS",
    "INTAKE",
    "JOINED",
    "KINDS",
    "LINKS",
    "LOAD",
    "MESSAGES",
    "MOVED",
    "MOVES",
    "NOWHERE",
    "NUMBERS",
    "PACKETS",
    "PARTS",
    "PAUSES",
    "PINNED",
    "RATE",
    "RATE_SENT",
    "RECEIVER_GROUPS",
    "RECEIVER_LOAD",
    "RECEIVER_SESSIONS",
    "ROWS",
    "SENT",
    "SESSIONS",
    "STAGE1",
    "STAGE2",
    "SUBSCRIBED",
    "SUMS",
    "SWITCH_ENTRIES",
    "UNICAST",
    "UNICAST_EXTRA",
    "UNICAST_LINKS",
    "UNICAST_RECEIVERS",
    "WEIGHT",
    "Bounds",
    "Flags",
    "PairArrays",
    "PairState",
    "Pricing",
    "Table",
    "Wants",
    "open_state",
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


@inner_kernel
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


@inner_kernel
def widen(number: int) -> int:
    """A 64-bit integer, so that functions are compiled for one type of argument only."""
    return np.int64(number)  # type: ignore[return-value]
