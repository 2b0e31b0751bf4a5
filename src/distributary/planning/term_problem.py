"""A plan with terms as a problem in plain arrays, at the level of pairs.

Flows that must stay together form one thing, so that this constraint always holds. Rates and loads
are whole numbers stored in doubles, so that their sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from distributary.cost import Prices, count_for
from distributary.model import (
    Constraints,
    Demand,
    FloatArray,
    IndexArray,
    IntArray,
    Interest,
    Packing,
    Plan,
    Previous,
    distinct,
)
from distributary.planning._pair_state import (
    BARRED,
    FREE,
    KINDS,
    ROWS,
    SUMS,
    UNICAST,
    Bounds,
    PairArrays,
    Pricing,
    Table,
    Wants,
)
from distributary.planning._pair_steps import (
    fill,
)
from distributary.planning.bundles import number_bundles
from distributary.planning.terms import UnicastLimits
from distributary.planning.things import whole_rates

__all__ = ["Places", "TermProblem", "TermSettings"]

_BITS = 52  # of a cost; doubles represent such whole numbers exactly
_SLACK = 1 + 5e-10  # relative; smaller than the tolerance of the check of a finished plan


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The place of each pair of things, and the group of each session."""

    place: IndexArray
    group: IndexArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSettings:
    """What a plan with terms is asked for.

    Of the sessions and groups there are, `most_sessions` and `most_groups` may be used.
    """

    n_sessions: int
    n_groups: int
    most_sessions: int | None = None
    most_groups: int | None = None
    prices: Prices
    sent_price: float = 0.0
    constraints: Constraints = field(default_factory=Constraints)
    packing: Packing = field(default_factory=Packing)
    unicast: UnicastLimits | None = None
    max_sent: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    previous: Previous | None = None
    max_moves: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TermProblem:
    """Things, who wants them, prices and bounds, in the form that kernels use.

    `bundle` is the thing of each flow.
    """

    demand: Demand
    bundle: IndexArray
    wants: Wants
    pricing: Pricing
    bounds: Bounds
    n_sessions: int
    n_groups: int
    keeps_numbers: bool

    @classmethod
    def of(cls, demand: Demand, settings: TermSettings) -> TermProblem:
        """State the problem of a demand and what is asked for."""
        bundle, n_things = number_bundles(demand, settings.constraints)
        wants, scale = _state_wants(demand, bundle, n_things, settings)
        unit = scale.unit
        alpha0, alpha1, beta0, beta1, fill, delay, heartbeats = settings.prices.numbers
        pricing = Pricing(
            alpha0, alpha1, beta0, beta1, fill, delay * unit, heartbeats, settings.sent_price, unit
        )
        bounds = _state_bounds(demand, bundle, wants, scale, settings)
        sizes = settings.n_sessions, settings.n_groups
        keeps_numbers = settings.previous is not None or bounds.filled > 0
        return cls(demand, bundle, wants, pricing, bounds, *sizes, keeps_numbers)

    def __len__(self) -> int:
        return len(self.wants.rate)

    @property
    def unit(self) -> float:
        """The number of messages per second in a unit of rate."""
        return self.pricing.unit

    def begin(self, places: Places, max_moves: float | None = None) -> PairArrays:
        """The state of a plan, and with another bound of moves if there is one."""
        bounds = self.bounds if max_moves is None else self.bounds._replace(moves=max_moves)
        table = _empty_table(self, places)
        state = PairArrays(self.wants, self.pricing, bounds, table)
        fill(state)
        return state

    def recall(self, previous: Previous, *, whole: bool = False) -> Places:
        """The places of a previous plan; a thing that is new is in session 0.

        A thing of which it is unknown who got it where is in its first session, as all are if they
        are to be `whole`. More sessions than that plan had are empty, and spread over the groups.
        """
        known = len(previous.session_group)
        more = (np.arange(self.n_sessions - known) % self.n_groups).astype(np.int32)
        group = np.concatenate([previous.session_group, more]).astype(np.int32)
        place = np.zeros(len(self.wants.members), np.int32)
        for k in range(len(self)):
            start, end = self.wants.flow_offsets[k], self.wants.flow_offsets[k + 1]
            names = [self.demand.interest.flows[f] for f in self.wants.flows[start:end]]
            places = next((p for name in names if (p := previous.places_of(name))), frozenset())
            pairs = slice(self.wants.offsets[k], self.wants.offsets[k + 1])
            place[pairs] = min((p for p in places if p >= 0), default=UNICAST if places else 0)
            if len(places) > 1 and not whole:
                place[pairs] = self._recall_parts(previous, names, places, place[pairs], pairs)
        return Places(place, group)

    def _recall_parts(
        self,
        previous: Previous,
        names: list[str],
        places: frozenset[int],
        first: IndexArray,
        pairs: slice,
    ) -> list[int]:
        """Where each receiver of a thing got it, if that may still be; else the first place."""
        may_be = {
            p for p in places if (self.bounds.copies if p >= 0 else self.bounds.unicast_receivers)
        }
        receivers = (self.demand.interest.receivers[r] for r in self.wants.members[pairs])
        return [
            next((p for name in names if (p := previous.place_of(name, receiver)) in may_be), at)
            for receiver, at in zip(receivers, first.tolist(), strict=True)
        ]

    def spread(self, session: IndexArray) -> IndexArray:
        """The place of each pair if each flow is in one session; a thing is where its first is."""
        of_thing = np.zeros(len(self), np.int32)
        of_thing[self.bundle[::-1]] = session[::-1]
        return np.repeat(of_thing, np.diff(self.wants.offsets)).astype(np.int32)

    def write_plan(self, places: Places) -> tuple[Plan, IntArray]:
        """The plan, without empty sessions and groups, and the number each session had before.

        Sessions and groups keep their numbers where these mean something: to pins and to a previous
        plan. Otherwise they are numbered by first use.
        """
        interest = self.demand.interest
        thing, place = self._place_of_pairs(interest, places)
        inside = place >= 0
        key = distinct(thing[inside].astype(np.int64) * self.n_sessions + place[inside])
        copies, at = key // self.n_sessions, key % self.n_sessions
        number = fill_gaps if self.keeps_numbers else number_by_first_use
        session_of, before = number(at, self.n_sessions)
        group_of, _ = number(places.group[before].astype(np.int64), self.n_groups)
        renumber = np.full(self.n_sessions, -1, np.int64)
        renumber[before] = np.arange(len(before))
        flows, sessions = self._expand(copies, session_of)
        n = len(before)
        receiver = interest.flow_receivers.astype(np.int64)
        heard = distinct(receiver[inside] * n + renumber[place[inside]])
        alone = np.sort(receiver[~inside] * len(interest.flows) + interest.pair_flows()[~inside])
        order = np.lexsort((sessions, flows))
        plan = Plan(
            receivers=interest.receivers,
            flows=interest.flows,
            placement_flow=flows[order].astype(np.int32),
            placement_session=sessions[order].astype(np.int32),
            session_group=group_of.astype(np.int32),
            subscription_receiver=(heard // n).astype(np.int32),
            subscription_session=(heard % n).astype(np.int32),
            unicast_receiver=(alone // len(interest.flows)).astype(np.int32),
            unicast_flow=(alone % len(interest.flows)).astype(np.int32),
        )
        return plan, before

    def _place_of_pairs(self, interest: Interest, places: Places) -> tuple[IndexArray, IndexArray]:
        """The thing and the place of each wanted pair of flows."""
        thing = self.bundle[interest.pair_flows()]
        n = len(interest.receivers)
        owner = np.repeat(np.arange(len(self)), np.diff(self.wants.offsets))
        keys = owner * n + self.wants.members
        at = np.searchsorted(keys, thing.astype(np.int64) * n + interest.flow_receivers)
        return thing, places.place[at]

    def _expand(self, things: IntArray, sessions: IntArray) -> tuple[IntArray, IntArray]:
        """The placements of all flows of things."""
        sizes = np.diff(self.wants.flow_offsets)[things]
        first = np.repeat(self.wants.flow_offsets[things], sizes)
        nth = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.wants.flows[first + nth].astype(np.int64), np.repeat(sessions, sizes)


def fill_gaps(labels: IntArray, n_labels: int) -> tuple[IntArray, IntArray]:
    """Renumber labels without gaps, changing few; also return the old label of each new one."""
    used = np.bincount(labels, minlength=n_labels) > 0
    n_used = int(used.sum())
    old = np.arange(n_used)
    old[~used[:n_used]] = np.flatnonzero(used[n_used:]) + n_used
    renumbered = np.zeros(n_labels, np.int64)
    renumbered[old] = np.arange(n_used)
    return renumbered[labels], old


def number_by_first_use(labels: IntArray, n_labels: int) -> tuple[IntArray, IntArray]:
    """Renumber labels in order of appearance; also return the old label of each new one."""
    used, first = np.unique(labels, return_index=True)
    old = used[np.argsort(first)]
    renumbered = np.zeros(n_labels, np.int64)
    renumbered[old] = np.arange(len(old))
    return renumbered[labels], old


def _state_wants(
    demand: Demand, bundle: IndexArray, n_things: int, settings: TermSettings
) -> tuple[Wants, _Scale]:
    interest = demand.interest
    n = len(interest.receivers)
    priced = count_for(demand, settings.prices).rate
    rate = whole_rates(priced, n, _BITS)
    load = whole_rates(demand.load, n, _BITS)
    messages = whole_rates(demand.message_load, n, _BITS)
    flow = interest.pair_flows()
    key = bundle[flow].astype(np.int64) * n + interest.flow_receivers
    pairs, pair = np.unique(key, return_inverse=True)
    order = np.argsort(pair, kind="stable")
    link_offsets = _offsets(np.bincount(pair, minlength=len(pairs)))
    by_thing = np.argsort(bundle, kind="stable")
    weights = np.array([settings.weights.get(name, 1.0) for name in interest.receivers])
    wants = Wants(
        offsets=_offsets(np.bincount(pairs // n, minlength=n_things)),
        members=(pairs % n).astype(np.int32),
        rate=_sum_by(bundle, rate, n_things),
        load=_sum_by(bundle, load, n_things),
        messages=_sum_by(bundle, messages, n_things),
        wanted=_sum_by(pair, rate[flow], len(pairs)),
        wanted_load=_sum_by(pair, load[flow], len(pairs)),
        link_offsets=link_offsets,
        links=flow[order].astype(np.int32),
        flow_offsets=_offsets(np.bincount(bundle, minlength=n_things)),
        flows=by_thing.astype(np.int32),
        weight=weights.astype(np.float64),
    )
    return wants, _Scale.of(priced, rate)


def _state_bounds(
    demand: Demand, bundle: IndexArray, wants: Wants, scale: _Scale, settings: TermSettings
) -> Bounds:
    interest, limits = demand.interest, settings.constraints.limits
    n, packing, unicast = len(interest.receivers), settings.packing, settings.unicast
    by_load = _Scale.of(demand.load, whole_rates(demand.load, n, _BITS))
    by_message = _Scale.of(demand.message_load, whole_rates(demand.message_load, n, _BITS))
    receiver_load = by_load.caps(limits.receiver_caps(interest.receivers))
    switch, entries = _state_switches(interest, settings.constraints)
    pinned, foe_offsets, foes = _state_sets(demand, bundle, len(wants.rate), settings.constraints)
    home_offsets, home, home_group = _state_homes(interest, settings)
    sent = float(wants.rate.sum()) * (np.inf if settings.max_sent is None else settings.max_sent)
    bounds = Bounds(
        group_members=_or_infinity(limits.most_members),
        group_load=float(by_load.caps(_or_infinity(limits.group_rate))),
        step_members=np.array([step.members for step in limits.group_packets], np.float64),
        step_packets=by_message.caps(
            np.array([step.packets for step in limits.group_packets], np.float64)
        ),
        fill=packing.messages_per_packet,
        delay=packing.delay_s * by_message.unit,
        receiver_groups=_or_infinity(limits.receiver_groups),
        receiver_sessions=_or_infinity(limits.receiver_sessions),
        receiver_load=receiver_load,
        capped=np.flatnonzero(np.isfinite(receiver_load)).astype(np.int32),
        switch=switch,
        switch_entries=entries,
        pinned=pinned,
        foe_offsets=foe_offsets,
        foes=foes,
        filled=max(0, int(pinned.max()) + 1),
        copies=settings.max_sent is not None,
        sent=sent * _SLACK,
        unicast_receivers=0.0 if unicast is None else float(unicast.max_receivers),
        links=np.inf if unicast is None else _or_infinity(unicast.max_links),
        extra=np.inf if unicast is None else float(scale.caps(_or_infinity(unicast.max_rate))),
        moves=_or_infinity(settings.max_moves),
        home_offsets=home_offsets,
        home=home,
        home_group=home_group,
        sessions=float(settings.most_sessions or np.inf),
        groups=float(settings.most_groups or np.inf),
        any_limit=False,
        by_weight=np.zeros(0) if (wants.weight == 1).all() else wants.weight,
    )
    return bounds._replace(any_limit=_has_limits(bounds))


def _has_limits(bounds: Bounds) -> bool:
    """Whether some places may be forbidden."""
    return bool(
        bounds.group_members < np.inf
        or bounds.group_load < np.inf
        or len(bounds.step_members)
        or bounds.receiver_groups < np.inf
        or bounds.receiver_sessions < np.inf
        or len(bounds.capped)
        or len(bounds.switch_entries)
        or (bounds.pinned != FREE).any()
        or len(bounds.foes)
        or min(bounds.sessions, bounds.groups) < np.inf
    )


def _state_switches(interest: Interest, constraints: Constraints) -> tuple[IndexArray, FloatArray]:
    """The switch of each receiver, -1 for none that is limited, and the entries of each switch."""
    limits = constraints.limits
    caps = {name: limits.switch_cap(name) for name in sorted(set(limits.switch_of.values()))}
    number = {name: at for at, name in enumerate(n for n, cap in caps.items() if cap is not None)}
    switch = [number.get(limits.switch_of.get(name, ""), -1) for name in interest.receivers]
    entries = [cap for cap in caps.values() if cap is not None]
    return np.array(switch, np.int32), np.array(entries, np.float64)


def _state_sets(
    demand: Demand, bundle: IndexArray, n_things: int, constraints: Constraints
) -> tuple[IndexArray, IntArray, IndexArray]:
    """The pinned group of each thing, and those it must not meet."""
    index = {name: k for k, name in enumerate(demand.interest.flows)}
    pinned = np.full(n_things, FREE, np.int32)
    foes: list[set[int]] = [set() for _ in range(n_things)]
    for name, group in constraints.pinned.items():
        if name in index:
            pinned[bundle[index[name]]] = group
    for names in constraints.apart:
        apart = [int(bundle[index[name]]) for name in names if name in index]
        for thing in apart:
            if apart.count(thing) > 1:  # its own flows must not meet, so it goes by unicast
                pinned[thing] = BARRED
            foes[thing] |= {*apart} - {thing}
    return (
        pinned,
        _offsets(np.array([len(each) for each in foes], np.int64)),
        np.array([foe for each in foes for foe in sorted(each)], np.int32),
    )


def _state_homes(
    interest: Interest, settings: TermSettings
) -> tuple[IntArray, IndexArray, IndexArray]:
    """The places that each flow had before, and the group of each session that had flows then."""
    home_group = np.full(settings.n_sessions, -1, np.int32)
    previous = settings.previous
    if previous is None or settings.max_moves is None:
        return np.zeros(len(interest.flows) + 1, np.int64), np.zeros(0, np.int32), home_group
    places = [sorted(previous.places_of(name)) for name in interest.flows]
    home = np.array([place for each in places for place in each], np.int32)
    used = np.unique(home[home >= 0])
    home_group[used] = previous.session_group[used]
    return _offsets(np.array([len(each) for each in places], np.int64)), home, home_group


def _sum_by(index: IndexArray | IntArray, values: IntArray, n: int) -> FloatArray:
    return np.bincount(index, values, n).astype(np.float64)


def _offsets(sizes: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _or_infinity(cap: float | None) -> float:
    return np.inf if cap is None else float(cap)


class _Scale(NamedTuple):
    """How many units of whole-number rates are in a message per second: the product of both.

    A power of two lifts tiny rates exactly, and keeps the quotient from overflowing.
    """

    lift: float
    rest: float

    @classmethod
    def of(cls, real: FloatArray, whole: IntArray) -> _Scale:
        lift = 2.0**600 if real.sum() < 1e-280 else 1.0
        return cls(lift, float(whole.sum() / (real.sum() * lift)))

    @property
    def unit(self) -> float:
        """The messages per second in a unit of rate; 0 if they are too few for a number."""
        return 1.0 / self.rest / self.lift

    def caps(self, caps: FloatArray | float) -> FloatArray:
        """Caps in units of rate, with a little room for rounding."""
        with np.errstate(over="ignore"):  # a cap far above all loads is none
            return np.asarray(caps) * self.lift * self.rest * _SLACK


def _empty_table(problem: TermProblem, places: Places) -> Table:
    wants = problem.wants
    n_receivers, n_pairs, n_things = len(wants.weight), len(wants.members), len(wants.rate)
    s, g, switches = problem.n_sessions, problem.n_groups, len(problem.bounds.switch_entries)
    return Table(
        place=places.place.astype(np.int32),
        part_place=np.zeros(n_pairs, np.int32),
        part_size=np.zeros(n_pairs, np.int32),
        n_parts=np.zeros(n_things, np.int32),
        owner=np.zeros(n_pairs, np.int32),
        after=np.full(n_pairs, -1, np.int32),
        before=np.full(n_pairs, -1, np.int32),
        first=np.full(s, -1, np.int32),
        group=places.group.astype(np.int32),
        session=np.zeros((ROWS, s)),
        groups=np.zeros((ROWS, g)),
        held=np.zeros((n_receivers, s), np.int32),
        here=np.zeros((n_receivers, g), np.int32),
        hears=np.zeros((n_receivers, s), np.uint8),
        joins=np.zeros((n_receivers, g), np.uint8),
        receiver=np.zeros((4, n_receivers)),
        entries=np.zeros((switches, g), np.int32),
        used_entries=np.zeros(switches),
        flow_links=np.zeros(len(problem.bundle), np.int32),
        by_unicast=np.zeros(n_things),
        moved=np.zeros(n_things, np.int32),
        sums=np.zeros(SUMS),
        over=np.zeros(KINDS),
        broken=np.zeros(KINDS, np.int64),
    )
