"""The cheapest plan of a tiny instance under any terms, found by trying every plan.

A wanted pair (receiver, flow) is served by one session or by unicast. A plan in which a receiver
subscribes to more than it needs is never cheaper and keeps no limit that the leaner plan breaks,
so that the enumeration leaves such plans out. It also leaves out plans in which a session carries a
flow that nobody takes from it, though such a plan might meet a pin by the letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from tests.planning.tiny_plans import ROUNDING, UNICAST, Instance, Prices, TinyPlan, is_over


class Cheapest(NamedTuple):
    """The least cost of all plans within the terms, and a plan that has it."""

    cost: float
    plan: TinyPlan


def cheapest_plan(instance: Instance) -> Cheapest | None:
    """The cheapest of all plans, None if no plan keeps the terms.

    Flows that must be together form a bundle, and each bundle in turn is tried in every way: each
    of its receivers takes it from one of the session slots or by unicast. A branch ends where it
    breaks a limit or costs as much as the best plan known: more flows never cost less, and never
    need less of anything.
    """
    search = _Search(instance)
    for group_of in _layouts(instance):
        search.try_layout(group_of)
    return search.best


def _layouts(instance: Instance) -> Iterator[tuple[int, ...]]:
    """The groups of all session slots, one of each kind that differs by numbers only.

    Numbers of groups matter where flows are pinned, numbers of slots where moves are counted.
    """
    slots, groups = _count_slots(instance), instance.groups
    all_maps = product(range(groups), repeat=slots)
    if instance.max_moves is not None:
        yield from all_maps
        return
    seen = set()
    for group_of in all_maps:
        sizes = [group_of.count(group) for group in range(groups)]
        kind = tuple(sizes if instance.pinned else sorted(sizes, reverse=True))
        if kind not in seen:
            seen.add(kind)
            yield tuple(sorted(group_of))


def _count_slots(instance: Instance) -> int:
    """How many sessions may be used: with a previous plan, any of its own, but not all at once."""
    return instance.sessions if instance.max_moves is not None else instance.most_sessions


class _Bundle(NamedTuple):
    """Flows that travel together: who takes any of them, and their rates in sum."""

    flows: tuple[int, ...]
    receivers: tuple[int, ...]
    rate: float
    load: float


class _Way(NamedTuple):
    """One way to serve a bundle: the receivers (a bit each) at each slot, and by unicast."""

    parts: tuple[tuple[int, int], ...]
    unicast: int


class _State(NamedTuple):
    """What the bundles placed so far come to."""

    rate: tuple[float, ...]  # by slot
    load: tuple[float, ...]
    heard: tuple[int, ...]  # receivers of each slot, a bit each
    flows: tuple[int, ...]  # flows of each slot, a bit each
    stream: tuple[float, ...]  # rate by unicast, by receiver
    intake: tuple[float, ...]  # load by unicast, by receiver
    links: int
    extra: float
    sent: float
    moves: int


class _Search:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.best: Cheapest | None = None
        self._n_slots = _count_slots(instance)
        # What never falls when flows are added. Heartbeats may: a fuller session pauses less.
        self._growing = replace(instance.prices, heartbeats=0.0)
        self._bundles = sorted(
            _bundles(instance), key=lambda one: (-one.rate * len(one.receivers), one.flows)
        )
        self._ways = [self._all_ways(bundle) for bundle in self._bundles]
        weight = instance.weights
        self._weight = [
            sum(w for r, w in enumerate(weight) if mask >> r & 1)
            for mask in range(1 << len(weight))
        ]
        # The least that the bundles from here on add: their wanted messages, without packets.
        least = [self._least_work(bundle) for bundle in self._bundles]
        self._rest = [sum(least[at:]) for at in range(len(least) + 1)]
        rates = [bundle.rate for bundle in self._bundles]
        self._rest_rate = [sum(rates[at:]) for at in range(len(rates) + 1)]
        self._chosen: list[_Way] = []

    def try_layout(self, group_of: tuple[int, ...]) -> None:
        """Try every way to serve the bundles with these groups of the slots."""
        self._group_of = group_of
        self._before = self._slots_before(group_of)
        slots, n = self._n_slots, len(self.instance.receivers)
        nothing = _State(
            (0.0,) * slots, (0.0,) * slots, (0,) * slots, (0,) * slots, (0.0,) * n, (0.0,) * n,
            0, 0.0, 0.0, 0,
        )  # fmt: skip
        self._chosen = []
        self._descend(nothing)

    def _descend(self, state: _State) -> None:
        at = len(self._chosen)
        if at == len(self._bundles):
            self._finish(state)
            return
        nexts = []
        for way in self._ways[at]:
            after = self._add(state, self._bundles[at], way)
            if self._is_canonical(after) and self._holds(after):
                nexts.append((self._cost(after, self._growing), way, after))
        for cost, way, after in sorted(nexts):
            if self.best is not None and cost + self._rest[at + 1] >= self.best.cost:
                return
            self._chosen.append(way)
            self._descend(after)
            self._chosen.pop()

    def _finish(self, state: _State) -> None:
        """Keep a plan with all bundles if it is in order: the only checks that growth can mend."""
        used = {g for g, heard in zip(self._group_of, state.heard, strict=True) if heard}
        if not used or any(group >= len(used) for group in self.instance.pinned.values()):
            return
        if not self._holds_packets(state):
            return
        cost = self._cost(state, self.instance.prices)
        if self.best is None or cost < self.best.cost:
            self.best = Cheapest(cost, self._write_plan(used))

    def _all_ways(self, bundle: _Bundle) -> list[_Way]:
        instance = self.instance
        is_pinned = not instance.pinned.keys().isdisjoint(bundle.flows)
        most = 0 if instance.unicast is None else instance.unicast.receivers
        places = [*range(self._n_slots), *([UNICAST] if most else [])]
        ways = set()
        for choice in product(places, repeat=len(bundle.receivers)):
            slots = sorted(set(choice) - {UNICAST})
            if (len(slots) > 1 and instance.max_sent is None) or (is_pinned and not slots):
                continue
            masks = dict.fromkeys(choice, 0)
            for receiver, place in zip(bundle.receivers, choice, strict=True):
                masks[place] |= 1 << receiver
            alone = masks.get(UNICAST, 0)
            if any(len(self._takers(flow, alone)) > most for flow in bundle.flows):
                continue
            ways.add(_Way(tuple((slot, masks[slot]) for slot in slots), alone))
        return sorted(ways)

    def _takers(self, flow: int, unicast: int) -> list[int]:
        """Who gets the flow by unicast if these receivers get its bundle so."""
        return [r for r in self.instance.wanted[flow] if unicast >> r & 1]

    def _add(self, state: _State, bundle: _Bundle, way: _Way) -> _State:
        """The state with one more bundle."""
        instance = self.instance
        rate, load = list(state.rate), list(state.load)
        heard, flows = list(state.heard), list(state.flows)
        for slot, mask in way.parts:
            rate[slot] += bundle.rate
            load[slot] += bundle.load
            heard[slot] |= mask
            flows[slot] |= sum(1 << flow for flow in bundle.flows)
        stream, intake = list(state.stream), list(state.intake)
        links, extra = state.links, state.extra
        sent = state.sent + len(way.parts) * bundle.rate
        for flow in bundle.flows:
            takers = self._takers(flow, way.unicast)
            own = instance.rate[flow]
            for receiver in takers:
                stream[receiver] += own
                intake[receiver] += instance.load[flow]
            links += len(takers)
            extra += own * (len(takers) if way.parts else len(takers) - 1)
            sent += own * len(takers)
        return _State(
            tuple(rate), tuple(load), tuple(heard), tuple(flows), tuple(stream), tuple(intake),
            links, extra, sent, state.moves + self._count_moved(bundle, way),
        )  # fmt: skip

    def _count_moved(self, bundle: _Bundle, way: _Way) -> int:
        instance = self.instance
        if instance.max_moves is None:
            return 0
        moved = 0
        for flow in bundle.flows:
            places = {slot for slot, _ in way.parts}
            regrouped = any(
                slot < len(instance.home_group)
                and self._group_of[slot] != instance.home_group[slot]
                for slot in places
            )
            if self._takers(flow, way.unicast):
                places.add(UNICAST)
            home = instance.home[flow]
            moved += bool(home) and (not places <= home or regrouped)
        return moved

    def _least_work(self, bundle: _Bundle) -> float:
        instance, prices = self.instance, self.instance.prices
        work = 0.0
        for flow in bundle.flows:
            weight = sum(instance.weights[r] for r in instance.wanted[flow])
            work += instance.rate[flow] * (weight * (prices.alpha0 + prices.beta0) + prices.sent)
        return work * (1 - ROUNDING)

    def _cost(self, state: _State, prices: Prices) -> float:
        weight = self._weight
        work = prices.sent * state.sent
        for group in set(self._group_of):
            members, rates = 0, []
            for slot, own in enumerate(self._group_of):
                if own == group and state.heard[slot]:
                    members |= state.heard[slot]
                    rates.append(state.rate[slot])
            work += weight[members] * prices.at_group(rates)
        for rate, heard in zip(state.rate, state.heard, strict=True):
            if heard:
                work += weight[heard] * prices.at_session(rate)
        for receiver, stream in enumerate(state.stream):
            if stream:
                each = prices.at_group([stream]) + prices.at_session(stream)
                work += weight[1 << receiver] * each
        return work

    def _holds(self, state: _State) -> bool:
        """Whether no term is broken that more bundles could not mend."""
        return (
            self._holds_totals(state) and self._holds_groups(state) and self._holds_receivers(state)
        )

    def _holds_totals(self, state: _State) -> bool:
        instance, unicast = self.instance, self.instance.unicast
        if instance.max_moves is not None and state.moves > instance.max_moves:
            return False
        used = [g for g, heard in zip(self._group_of, state.heard, strict=True) if heard]
        if len(used) > instance.most_sessions or len(set(used)) > instance.most_groups:
            return False
        if instance.max_sent is not None:
            least = state.sent + self._rest_rate[len(self._chosen) + 1]
            if is_over(least, instance.max_sent * sum(instance.rate)):
                return False
        if unicast is None:
            return True
        return not is_over(state.links, unicast.links) and not (
            unicast.rate is not None and state.extra > unicast.rate + ROUNDING * state.sent
        )

    def _holds_groups(self, state: _State) -> bool:
        instance, limits = self.instance, self.instance.limits
        for group in set(self._group_of):
            slots = [slot for slot, own in enumerate(self._group_of) if own == group]
            members, flows = 0, [0] * len(instance.flows)
            for slot in slots:
                members |= state.heard[slot]
                for flow in range(len(flows)):
                    flows[flow] += state.flows[slot] >> flow & 1
            if is_over(members.bit_count(), limits.most_members):
                return False
            if is_over(sum(state.load[slot] for slot in slots), limits.group_rate):
                return False
            if any(flows[f] and g != group for f, g in instance.pinned.items()):
                return False
            if any(sum(flows[f] > 0 for f in apart) > 1 for apart in instance.apart):
                return False
        return True

    def _holds_receivers(self, state: _State) -> bool:
        instance, limits = self.instance, self.instance.limits
        behind: dict[str, set[int]] = {}
        for receiver, name in enumerate(instance.receivers):
            slots = [s for s, heard in enumerate(state.heard) if heard >> receiver & 1]
            groups = {self._group_of[slot] for slot in slots}
            if is_over(len(slots), limits.receiver_sessions):
                return False
            if is_over(len(groups), limits.receiver_groups):
                return False
            cap = limits.receiver_rates.get(name, limits.receiver_rate)
            if cap is not None:
                carried = [s for s, group in enumerate(self._group_of) if group in groups]
                if is_over(state.intake[receiver] + sum(state.load[s] for s in carried), cap):
                    return False
            if name in limits.switch_of:
                behind.setdefault(limits.switch_of[name], set()).update(groups)
        return not any(
            is_over(len(groups), limits.entries_of.get(switch, limits.switch_entries))
            for switch, groups in behind.items()
        )

    def _holds_packets(self, state: _State) -> bool:
        """The steps may allow more packets to more members, so that only whole plans tell."""
        limits, prices = self.instance.limits, self.instance.prices
        if not limits.group_packets:
            return True
        for group in set(self._group_of):
            slots = [s for s, g in enumerate(self._group_of) if g == group and state.heard[s]]
            members = 0
            for slot in slots:
                members |= state.heard[slot]
            packets = sum(prices.packets(state.load[slot]) for slot in slots)
            steps = [s for s in limits.group_packets if members.bit_count() <= s.members]
            if slots and is_over(packets, steps[0].packets):
                return False
        return True

    def _slots_before(self, group_of: tuple[int, ...]) -> list[int | None]:
        """For each slot one that differs from it by number only, and is to be used first."""
        if self.instance.max_moves is not None:
            return [None] * len(group_of)
        before: list[int | None] = []
        for slot, group in enumerate(group_of):
            first = group_of.index(group)
            if slot > first:
                before.append(slot - 1)
            elif (
                not self.instance.pinned
                and group
                and group_of.count(group) == group_of.count(group - 1)
            ):
                before.append(group_of.index(group - 1))
            else:
                before.append(None)
        return before

    def _is_canonical(self, state: _State) -> bool:
        return all(
            before is None or not heard or state.heard[before]
            for heard, before in zip(state.heard, self._before, strict=True)
        )

    def _write_plan(self, used: set[int]) -> TinyPlan:
        """The plan of the ways chosen, without unused slots and with gaps between groups closed."""
        slots = sorted({slot for way in self._chosen for slot, _ in way.parts})
        pinned = set(self.instance.pinned.values())
        numbers = {group: group for group in used if group < len(used)}
        gaps = [number for number in range(len(used)) if number not in used]
        for group in sorted(used - set(numbers)):
            assert group not in pinned
            numbers[group] = gaps.pop()
        session = {slot: number for number, slot in enumerate(slots)}
        placed, subscribed, unicast = set(), set(), set()
        for bundle, way in zip(self._bundles, self._chosen, strict=True):
            for slot, mask in way.parts:
                placed |= {(flow, session[slot]) for flow in bundle.flows}
                subscribed |= {(r, session[slot]) for r in bundle.receivers if mask >> r & 1}
            for flow in bundle.flows:
                unicast |= {(receiver, flow) for receiver in self._takers(flow, way.unicast)}
        known = len(self.instance.home_group)
        return TinyPlan(
            frozenset(placed),
            frozenset(subscribed),
            frozenset(unicast),
            tuple(numbers[self._group_of[slot]] for slot in slots),
            tuple(slot if slot < known else None for slot in slots)
            if self.instance.max_moves is not None
            else None,
        )


def _bundles(instance: Instance) -> Iterator[_Bundle]:
    """The flows that must share their sessions."""
    for bundle in {frozenset(instance.companions(flow)) for flow in range(len(instance.flows))}:
        yield _Bundle(
            tuple(sorted(bundle)),
            tuple(sorted(frozenset().union(*(instance.wanted[flow] for flow in bundle)))),
            sum(instance.rate[flow] for flow in sorted(bundle)),
            sum(instance.load[flow] for flow in sorted(bundle)),
        )


# --- plainer still --------------------------------------------------------------------------------


def every_plan_at_all(instance: Instance) -> Iterator[TinyPlan]:
    """Any placements that somebody takes, and any subscriptions and unicast pairs."""
    flows, receivers = range(len(instance.flows)), range(len(instance.receivers))
    for n_sessions in range(1, instance.sessions + 1):
        sessions = range(n_sessions)
        for group_of in product(range(instance.groups), repeat=n_sessions):
            for placed in _subsets(product(flows, sessions)):
                for subscribed in _subsets(product(receivers, sessions)):
                    for unicast in _subsets(product(receivers, flows if instance.unicast else ())):
                        plan = TinyPlan(placed, subscribed, unicast, group_of)
                        if not any(plan.idles(*pair, instance) for pair in placed):
                            yield plan


def _subsets(pairs: Iterator[tuple[int, int]]) -> list[frozenset[tuple[int, int]]]:
    listed = list(pairs)
    return [
        frozenset(pair for pair, chosen in zip(listed, choice, strict=True) if chosen)
        for choice in product((False, True), repeat=len(listed))
    ]


def every_lean_plan(instance: Instance) -> Iterator[TinyPlan]:
    """Every plan that serves each wanted pair once, without any shortcut."""
    pairs = [(r, f) for f, receivers in enumerate(instance.wanted) for r in sorted(receivers)]
    places = [*range(instance.sessions), *([None] if instance.unicast else [])]
    for choice in product(places, repeat=len(pairs)):
        used = sorted({place for place in choice if place is not None})
        taken = [
            (r, f, used.index(p)) for (r, f), p in zip(pairs, choice, strict=True) if p is not None
        ]
        placed = frozenset((c, s) for _, f, s in taken for c in instance.companions(f))
        subscribed = frozenset((r, s) for r, _, s in taken)
        unicast = frozenset(pair for pair, p in zip(pairs, choice, strict=True) if p is None)
        if used == list(range(len(used))):
            for group_of in product(range(instance.groups), repeat=len(used)):
                if used:
                    yield TinyPlan(placed, subscribed, unicast, group_of)
