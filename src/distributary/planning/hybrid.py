"""Send some flows by unicast and the others in sessions.

A flow with one or few receivers rarely fits a session: either its receivers get a session of which
they want little, or other receivers get a flow that they do not want. By unicast it costs other
receivers nothing. But the sender keeps one more link for each pair of receiver and flow, and sends
one more copy for each receiver beyond the first. Both may be limited.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import Demand, FloatArray, IntArray, Interest, Plan
from distributary.planning.hierarchy import Maps
from distributary.planning.subscription import place_single
from distributary.planning.things import Things

__all__ = ["UnicastLimits", "choose_unicast", "drop_flows", "hybrid", "send_by_unicast"]


@dataclass(frozen=True, slots=True)
class UnicastLimits:
    """Which flows may go by unicast, and how much unicast the sender allows.

    A flow may go by unicast if it has at most `max_receivers` receivers. `max_links` limits the
    number of (receiver, flow) pairs, `max_rate` the messages per second that are sent beyond one
    copy of each flow: a flow with a single receiver adds none.
    """

    max_receivers: int = 1
    max_links: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        if self.max_receivers < 1:
            raise ValueError(f"max_receivers must be at least 1, not {self.max_receivers}")
        if self.max_links is not None and self.max_links < 0:
            raise ValueError(f"max_links must be at least 0, not {self.max_links}")
        if self.max_rate is not None and not 0 <= self.max_rate < float("inf"):
            raise ValueError(f"max_rate must be a finite number of at least 0, not {self.max_rate}")


def hybrid(
    demand: Demand,
    limits: UnicastLimits,
    solve: Callable[[Demand], Plan],
    price: Callable[[Plan], float],
    prices: FilteringPrices,
    sent_price: float = 0.0,
) -> Plan:
    """Plan all flows, move to unicast what saves most, plan the rest again, and choose once more.

    Returns the cheapest plan found, by `price`: never worse than what `solve` finds for all flows.
    `solve` runs twice and must place each flow once; `prices` and `sent_price` are for
    `choose_unicast`.
    """
    first = solve(demand)
    chosen = choose_unicast(demand, prices, first, limits, sent_price=sent_price)
    if not len(chosen):
        return first
    again = _complete(solve(drop_flows(demand, chosen)), demand)
    more = choose_unicast(demand, prices, again, limits, sent_price=sent_price)
    return min(
        (
            first,
            send_by_unicast(demand, first, chosen),
            again,
            send_by_unicast(demand, again, more),
        ),
        key=price,
    )


def choose_unicast(
    demand: Demand,
    prices: FilteringPrices,
    plan: Plan,
    limits: UnicastLimits,
    *,
    sent_price: float = 0.0,
) -> IntArray:
    """Choose the flows of a plan that are cheaper by unicast; ascending.

    Greedy: repeatedly take the flow that saves most per share of the limits it uses, at its exact
    price in the plan at that point, until no single flow saves anything. With `sent_price`, each
    copy beyond the first costs that much per message. Flows that already go by unicast stay there
    and count; at least one flow stays in a session.
    """
    state = _Leaving(demand, plan, prices, sent_price)
    budget = _Budget(demand, plan, limits)
    chosen: list[int] = []
    while taken := _choose_once(state, budget):
        chosen += taken
    return np.array(sorted(chosen), np.int64)


def send_by_unicast(demand: Demand, plan: Plan, flows: IntArray) -> Plan:
    """Send these flows of a plan by unicast; receivers keep only the sessions they need."""
    session = _session_of(plan)
    session[flows] = -1
    kept = np.flatnonzero(session >= 0)
    maps = Maps(session[kept].astype(np.int32), plan.session_group).compact()
    rest = drop_flows(demand, np.flatnonzero(session < 0))
    return _complete(place_single(rest, maps.session, maps.group), demand)


def drop_flows(demand: Demand, flows: IntArray) -> Demand:
    """Remove flows from a demand, with the receivers who want no other flow."""
    interest = demand.interest
    kept = np.ones(len(interest.flows), np.bool_)
    kept[flows] = False
    pair = kept[interest.pair_flows()]
    receivers, receiver = np.unique(interest.flow_receivers[pair], return_inverse=True)
    flow = (np.cumsum(kept) - 1)[interest.pair_flows()[pair]]
    return Demand(
        Interest.from_codes(
            (interest.receivers[j] for j in receivers),
            (interest.flows[k] for k in np.flatnonzero(kept)),
            receiver.astype(np.int32),
            flow.astype(np.int32),
        ),
        demand.rate[kept],
        None if demand.peak is None else demand.peak[kept],
        None if demand.size is None else demand.size[kept],
        demand.unit,
    )


def _complete(plan: Plan, demand: Demand) -> Plan:
    """Extend a plan for some of the flows to all: the others go by unicast."""
    interest = demand.interest
    known = set(plan.flows)
    flow_at = np.array([k for k, name in enumerate(interest.flows) if name in known], np.int32)
    known = set(plan.receivers)
    receiver_at = np.array(
        [j for j, name in enumerate(interest.receivers) if name in known], np.int32
    )
    unicast = np.ones(len(interest.flows), np.bool_)
    unicast[flow_at] = False
    receiver = np.repeat(
        np.arange(len(interest.receivers), dtype=np.int32), np.diff(interest.receiver_offsets)
    )
    pair = unicast[interest.receiver_flows]
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=flow_at[plan.placement_flow],
        placement_session=plan.placement_session,
        session_group=plan.session_group,
        subscription_receiver=receiver_at[plan.subscription_receiver],
        subscription_session=plan.subscription_session,
        unicast_receiver=receiver[pair],
        unicast_flow=interest.receiver_flows[pair],
    )


def _session_of(plan: Plan) -> IntArray:
    """The session of each flow, -1 for those in none."""
    if plan.duplicated_flows:
        raise ValueError("unicast needs a plan with each flow in one session")
    session = np.full(len(plan.flows), -1, np.int64)
    session[plan.placement_flow] = plan.placement_session
    return session


class _Budget:
    """The unused part of the limits."""

    def __init__(self, demand: Demand, plan: Plan, limits: UnicastLimits) -> None:
        self.limits = limits
        self._links = demand.interest.audience
        self._extra: FloatArray = (self._links - 1) * demand.rate
        sent = np.unique(plan.unicast_flow)
        self._links_used = int(self._links[sent].sum())
        self._extra_used = float(self._extra[sent].sum())

    def allows(self, flow: int) -> bool:
        """Whether the flow may go by unicast within the limits that are left."""
        limits, links = self.limits, int(self._links[flow])
        return (
            links <= limits.max_receivers
            and (limits.max_links is None or self._links_used + links <= limits.max_links)
            and (limits.max_rate is None or self._extra_used + self._extra[flow] <= limits.max_rate)
        )

    def worth(self, flow: int, saving: float) -> float:
        """The saving per share of the limits used; the saving itself if nothing is limited."""
        limits = self.limits
        if saving <= 0 or (limits.max_links is None and limits.max_rate is None):
            return saving
        links = self._links[flow] / limits.max_links if limits.max_links else 0.0
        extra = self._extra[flow] / limits.max_rate if limits.max_rate else 0.0
        return saving / share if (share := float(links + extra)) else float("inf")

    def spend(self, flow: int) -> None:
        """Count the flow as sent by unicast."""
        self._links_used += int(self._links[flow])
        self._extra_used += float(self._extra[flow])


class _Leaving:
    """The saving of moving each flow to unicast, kept exact while flows move.

    Rates are whole numbers, so that a flow that saves nothing saves exactly 0.
    """

    def __init__(
        self, demand: Demand, plan: Plan, prices: FilteringPrices, sent_price: float
    ) -> None:
        things = Things.flows_of(demand)
        session = _session_of(plan)
        self.placed: set[int] = set(np.flatnonzero(session >= 0).tolist())
        self._weight: list[int] = things.weight.tolist()
        self._audience: list[int] = np.diff(things.offsets).tolist()
        self._sent_price = sent_price
        group = np.where(session < 0, -1, plan.session_group[session])
        self._levels = (
            (prices.beta, _Level(things, session, plan.n_sessions)),
            (prices.alpha, _Level(things, group, plan.n_groups)),
        )

    def saving(self, flow: int) -> float:
        """The saving if the flow moves from its session to unicast now."""
        weight, audience = self._weight[flow], self._audience[flow]
        copies = self._sent_price * (audience - 1) * weight
        return sum(p * level.saving(flow, weight, audience) for p, level in self._levels) - copies

    def leave(self, flow: int) -> None:
        """Take the flow out of its session; receivers that want nothing else there leave too."""
        self.placed.remove(flow)
        for _, level in self._levels:
            level.leave(flow, self._weight[flow])


class _Level:
    """Sessions or groups: what each carries, who is in it, and for how many of its flows."""

    def __init__(self, things: Things, channel: IntArray, n_channels: int) -> None:
        placed = channel >= 0
        weight = np.zeros(n_channels, np.int64)
        np.add.at(weight, channel[placed], things.weight[placed])
        self._channel: list[int] = channel.tolist()
        self._weight: list[int] = weight.tolist()
        self._offsets: list[int] = things.offsets.tolist()
        pair = np.repeat(placed, np.diff(things.offsets))
        owner = np.repeat(channel, np.diff(things.offsets))[pair]
        keys, slot, reasons = np.unique(
            owner * things.n_receivers + things.members[pair],
            return_inverse=True,
            return_counts=True,
        )
        # Index into `reasons`, which counts a receiver's wanted flows in a channel, of each pair.
        self._slot: IntArray = np.zeros(len(pair), np.int64)
        self._slot[pair] = slot
        self._reasons: IntArray = reasons
        self._listeners: list[int] = np.bincount(
            keys // things.n_receivers, minlength=n_channels
        ).tolist()

    def saving(self, flow: int, weight: int, audience: int) -> int:
        """Receivers that leave save the rest of the channel; receivers that stay save the flow."""
        channel = self._channel[flow]
        rest = self._weight[channel] - weight
        return self._leavers(flow) * rest + (self._listeners[channel] - audience) * weight

    def leave(self, flow: int, weight: int) -> None:
        channel = self._channel[flow]
        self._weight[channel] -= weight
        self._listeners[channel] -= self._leavers(flow)
        self._reasons[self._slots(flow)] -= 1

    def _leavers(self, flow: int) -> int:
        return int((self._reasons[self._slots(flow)] == 1).sum())

    def _slots(self, flow: int) -> IntArray:
        return self._slot[self._offsets[flow] : self._offsets[flow + 1]]


def _choose_once(state: _Leaving, budget: _Budget) -> list[int]:
    """Move flows to unicast, the most worthwhile first, until none of those priced saves anything.

    Each move changes the saving of other flows. A flow that now saves less is queued again; one
    that now saves more is priced anew when its turn comes, or in the next pass.
    """
    waiting = [
        (-budget.worth(flow, state.saving(flow)), flow)
        for flow in sorted(state.placed)
        if budget.allows(flow)
    ]
    heapq.heapify(waiting)
    chosen = []
    while waiting and len(state.placed) > 1:
        worth, flow = heapq.heappop(waiting)
        if worth >= 0 or not budget.allows(flow):
            continue
        now = -budget.worth(flow, state.saving(flow))
        if now > worth:
            heapq.heappush(waiting, (now, flow))
            continue
        state.leave(flow)
        budget.spend(flow)
        chosen.append(flow)
    return chosen
