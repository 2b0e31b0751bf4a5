"""Who subscribes to what, once flows are placed: the subscription problem.

Reference: Adler et al. (2001), sections 3.3 and 3.4. If each flow is in one session, there is no
choice. If flows are in several groups, each receiver needs a cheapest set of groups that carries
all it wants: a weighted set cover.
"""

from __future__ import annotations

import numpy as np

from distributary.model import Demand, FloatArray, IndexArray, Plan, distinct
from distributary.model.topics import BoolArray

__all__ = ["cheapest_cover", "place_shared", "place_single"]


def place_single(demand: Demand, session: IndexArray, session_group: IndexArray) -> Plan:
    """The plan with each flow in one session: a receiver needs exactly its flows' sessions."""
    interest = demand.interest
    n_sessions = len(session_group)
    keys = distinct(
        interest.flow_receivers.astype(np.int64) * n_sessions + session[interest.pair_flows()]
    )
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=np.arange(len(interest.flows), dtype=np.int32),
        placement_session=session.astype(np.int32),
        session_group=session_group.astype(np.int32),
        subscription_receiver=(keys // n_sessions).astype(np.int32),
        subscription_session=(keys % n_sessions).astype(np.int32),
    )


def place_shared(demand: Demand, in_group: BoolArray) -> Plan:
    """The plan with flows in several groups; every receiver joins its cheapest cover.

    `in_group` is flows x groups, and each group is one session. The price of a group is its rate.
    Groups that nobody joins are dropped, and the rest are renumbered.
    """
    interest = demand.interest
    price = demand.rate @ in_group
    groups_of = [frozenset(np.flatnonzero(row).tolist()) for row in in_group]
    receivers: list[int] = []
    groups: list[int] = []
    for receiver in range(len(interest.receivers)):
        cover = cheapest_cover([groups_of[flow] for flow in interest.flows_of(receiver)], price)
        receivers.extend([receiver] * len(cover))
        groups.extend(cover)
    used, session = np.unique(np.array(groups, np.int32), return_inverse=True)
    placement_flow, placement_session = np.nonzero(in_group[:, used])
    return Plan(
        receivers=interest.receivers,
        flows=interest.flows,
        placement_flow=placement_flow.astype(np.int32),
        placement_session=placement_session.astype(np.int32),
        session_group=np.arange(len(used), dtype=np.int32),
        subscription_receiver=np.array(receivers, np.int32),
        subscription_session=session.astype(np.int32),
    )


def cheapest_cover(options: list[frozenset[int]], price: FloatArray) -> list[int]:
    """The cheapest groups that hit every option (the groups that carry a wanted flow), ascending.

    The search is exact and meant for the few groups of `optimal_shared`.
    """
    # A superset of another option asks for nothing more.
    needs = sorted(set(options), key=lambda option: (len(option), sorted(option)))
    needs = [o for i, o in enumerate(needs) if not any(other < o for other in needs[:i])]
    if all(len(option) == 1 for option in needs):
        return sorted(next(iter(option)) for option in needs)
    return sorted(_exact_cover(needs, price))


def _exact_cover(needs: list[frozenset[int]], price: FloatArray) -> set[int]:
    """Branch on the groups of the first unmet option, cheapest first."""
    best = _greedy_cover(needs, price)
    best_price = float(sum(price[group] for group in best))

    def descend(taken: set[int], paid: float) -> None:
        nonlocal best, best_price
        unmet = next((option for option in needs if not option & taken), None)
        if unmet is None:
            best, best_price = set(taken), paid
            return
        for total, group in sorted((paid + float(price[group]), group) for group in unmet):
            if total < best_price:
                descend(taken | {group}, total)

    descend(set(), 0.0)
    return best


def _greedy_cover(needs: list[frozenset[int]], price: FloatArray) -> set[int]:
    """Take the group with the least price per option met, then drop those no longer needed."""
    taken: set[int] = set()
    unmet = list(needs)
    while unmet:
        group = min(
            sorted(frozenset[int]().union(*unmet)),
            key=lambda g: price[g] / sum(g in option for option in unmet),
        )
        taken.add(group)
        unmet = [option for option in unmet if group not in option]
    for group in sorted(taken, key=lambda g: (-price[g], g)):
        if all(option & (taken - {group}) for option in needs):
            taken.remove(group)
    return taken
