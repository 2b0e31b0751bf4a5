"""Tiny instances as the planner takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from distributary.cost import ChannelPrices, FilteringPrices, PacketPrices
from distributary.model import Constraints, Demand, Interest, Packing, Plan, Previous
from distributary.planning import Request, UnicastLimits
from tests.planning.tiny_plans import Instance, TinyPlan


def as_demand(instance: Instance) -> Demand:
    """The interest and the rates of an instance, whose numbers are in order of name."""
    pairs = [
        (instance.receivers[receiver], name)
        for name, receivers in zip(instance.flows, instance.wanted, strict=True)
        for receiver in receivers
    ]
    peak = None if instance.peak is None else np.array(instance.peak)
    demand = Demand(Interest.from_pairs(pairs), np.array(instance.rate), peak)
    assert (demand.interest.receivers, demand.interest.flows) == (
        instance.receivers,
        instance.flows,
    )
    return demand


def as_constraints(instance: Instance) -> Constraints:
    """The limits, pins and sets of an instance, by name."""

    def names(flows: frozenset[int]) -> frozenset[str]:
        return frozenset(instance.flows[flow] for flow in flows)

    return Constraints(
        instance.limits,
        {instance.flows[flow]: group for flow, group in instance.pinned.items()},
        tuple(map(names, instance.together)),
        tuple(map(names, instance.apart)),
    )


def as_packing(instance: Instance) -> Packing:
    """When a packet leaves."""
    return Packing(instance.prices.messages_per_packet, instance.prices.delay_s)


def as_prices(instance: Instance) -> FilteringPrices | PacketPrices:
    """The prices of both filters: linear ones if packets cost nothing."""
    prices = instance.prices
    if prices.alpha1 == prices.beta1 == 0:
        return FilteringPrices(prices.alpha0, prices.beta0)
    return PacketPrices(
        prices.alpha0, prices.alpha1, prices.beta0, prices.beta1,
        prices.messages_per_packet, prices.delay_s, prices.heartbeats,
    )  # fmt: skip


def as_previous(instance: Instance) -> Previous | None:
    """The plan that an instance starts from."""
    if not instance.home_group:
        return None
    places = dict(zip(instance.flows, instance.home, strict=True))
    one = {name: min(home) for name, home in places.items() if len(home) == 1 and min(home) >= 0}
    several = {name: home for name, home in places.items() if home and name not in one}
    return Previous(one, np.array(instance.home_group, np.int32), several)


def as_request(instance: Instance, **settings: Any) -> Request:
    """The request for a plan of an instance, with more settings."""
    prices, unicast = instance.prices, instance.unicast
    by_channel = prices.sent > 0
    linear = prices.alpha1 == prices.beta1 == 0
    return Request(
        instance.groups,
        instance.sessions,
        prices=None if by_channel else as_prices(instance),
        channel=ChannelPrices(prices.alpha0, prices.sent) if by_channel else None,
        objective="channel" if by_channel else "filtering",
        packing=as_packing(instance) if linear else None,
        receiver_weights=dict(zip(instance.receivers, instance.weights, strict=True)),
        constraints=as_constraints(instance),
        unicast=unicast and UnicastLimits(unicast.receivers, unicast.links, unicast.rate),
        max_sent=instance.max_sent,
        previous=as_previous(instance),
        max_moves=instance.max_moves,
        **settings,
    )


def as_plan(plan: TinyPlan, instance: Instance) -> Plan:
    """A tiny plan as the planner writes it."""

    def columns(pairs: frozenset[tuple[int, int]]) -> list[np.ndarray]:
        table = np.array(sorted(pairs), np.int32).reshape(-1, 2)
        return [table[:, 0], table[:, 1]]

    return Plan(
        instance.receivers,
        instance.flows,
        *columns(plan.placed),
        np.array(plan.group_of, np.int32),
        *columns(plan.subscribed),
        *columns(plan.unicast),
    )
