"""Which part of a plan's traffic is wanted where it arrives, for the pictures and the tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distributary.cost import Loads
from distributary.model import Demand, FloatArray, IntArray, Plan

__all__ = ["Deliveries", "Wasted", "delivered_share", "plan_deliveries", "wasted_shares"]


@dataclass(frozen=True, slots=True, eq=False)
class Deliveries:
    """Which wanted pairs are served, in sessions or by unicast, and by which sessions.

    `pair_served[p]` says whether the p-th pair of `interest.flow_receivers` is served;
    `placement_audience[p]` how many subscribers of a placement's session want its flow;
    `delivered[r]` the wanted rate that reaches receiver r, all of it if the plan is valid.
    """

    pair_served: npt.NDArray[np.bool_]
    placement_audience: IntArray
    delivered: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Wasted:
    """The share of what arrives that is not wanted.

    For all groups together and each group, over their members; for a session and a flow in it (a
    placement), over the session's subscribers.
    """

    overall: float
    group: FloatArray
    session: FloatArray
    placement: FloatArray


def plan_deliveries(plan: Plan, demand: Demand) -> Deliveries:
    """Follow each wanted pair to the sessions that can serve it, or to its unicast link."""
    interest = demand.interest
    flow, receiver = interest.pair_flows(), interest.flow_receivers
    copies = np.bincount(plan.placement_flow, minlength=len(interest.flows))
    first = np.cumsum(copies) - copies
    # One entry for each placement of each pair's flow.
    pair = np.repeat(np.arange(interest.pairs), copies[flow])
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(copies[flow]) - copies[flow], copies[flow])
    placement = first[flow[pair]] + nth
    heard = _is_subscribed(plan, receiver[pair], plan.placement_session[placement])
    served = np.bincount(pair[heard], minlength=interest.pairs) > 0
    served |= np.isin(
        receiver.astype(np.int64) * len(plan.flows) + flow,
        plan.unicast_receiver.astype(np.int64) * len(plan.flows) + plan.unicast_flow,
    )
    return Deliveries(
        pair_served=served,
        placement_audience=np.bincount(placement[heard], minlength=len(plan.placement_flow)),
        delivered=np.bincount(
            receiver[served], weights=demand.rate[flow[served]], minlength=len(interest.receivers)
        ).astype(np.float64, copy=False),
    )


def delivered_share(loads: Loads, deliveries: Deliveries) -> float:
    """The goodput of what is delivered: that of `Evaluation` if the plan is valid, else less."""
    received = float(loads.received.sum())
    return float(deliveries.delivered.sum()) / received if received else 0.0


def wasted_shares(plan: Plan, demand: Demand, loads: Loads, deliveries: Deliveries) -> Wasted:
    """Compare what arrives with what is wanted, at each level."""
    wanted = demand.rate[plan.placement_flow] * deliveries.placement_audience
    in_session = np.bincount(plan.placement_session, weights=wanted, minlength=plan.n_sessions)
    in_group = np.bincount(plan.session_group, weights=in_session, minlength=plan.n_groups)
    subscribers = loads.session_subscribers
    arriving = loads.group_rate * loads.group_members
    return Wasted(
        overall=float(_missing_share(in_group.sum(keepdims=True), arriving.sum(keepdims=True))[0]),
        group=_missing_share(in_group, arriving),
        session=_missing_share(in_session, loads.session_rate * subscribers),
        placement=_missing_share(
            deliveries.placement_audience, subscribers[plan.placement_session]
        ),
    )


def _missing_share(
    wanted: npt.NDArray[np.integer | np.floating], arriving: npt.NDArray[np.integer | np.floating]
) -> FloatArray:
    """1 - wanted/arriving, or 0 if nothing arrives; never below 0 by rounding."""
    share = np.divide(wanted, arriving, out=np.ones(len(arriving)), where=arriving > 0)
    missing: FloatArray = np.clip(1 - share, 0, 1)
    return missing


def _is_subscribed(
    plan: Plan, receiver: npt.NDArray[np.integer], session: npt.NDArray[np.integer]
) -> npt.NDArray[np.bool_]:
    """Whether `receiver[i]` subscribes to `session[i]`."""
    # Ascending, as a plan's subscriptions are.
    keys = plan.subscription_receiver.astype(np.int64) * plan.n_sessions + plan.subscription_session
    sought = receiver.astype(np.int64) * plan.n_sessions + session
    if not len(keys):
        return np.zeros(len(sought), np.bool_)
    found: npt.NDArray[np.bool_] = (
        keys[np.minimum(np.searchsorted(keys, sought), len(keys) - 1)] == sought
    )
    return found
