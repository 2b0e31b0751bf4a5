"""The optimum of tiny two-level instances, by trying every pair of maps."""

from __future__ import annotations

from collections.abc import Iterator

from distributary import Demand, FilteringPrices


def least_work(demand: Demand, n_sessions: int, n_groups: int, prices: FilteringPrices) -> float:
    """The least Cw with at most this many sessions and groups, each flow in one session."""
    interest = demand.interest
    wants = [sum(1 << int(n) for n in interest.receivers_of(k)) for k in range(len(demand.rate))]
    least = float("inf")
    for session in _partitions(len(wants), n_sessions):
        n_used = max(session) + 1
        audience, rate = [0] * n_used, [0.0] * n_used
        for k, s in enumerate(session):
            audience[s] |= wants[k]
            rate[s] += float(demand.rate[k])
        accepted = sum(a.bit_count() * r for a, r in zip(audience, rate, strict=True))
        for group in _partitions(n_used, n_groups):
            members, carried = [0] * n_groups, [0.0] * n_groups
            for s, g in enumerate(group):
                members[g] |= audience[s]
                carried[g] += rate[s]
            received = sum(m.bit_count() * c for m, c in zip(members, carried, strict=True))
            least = min(least, prices.alpha * received + prices.beta * accepted)
    return least


def _partitions(n: int, most: int) -> Iterator[list[int]]:
    """Every way to divide n things into at most `most` parts."""

    def go_on(parts: list[int], used: int) -> Iterator[list[int]]:
        if len(parts) == n:
            yield parts
            return
        for part in range(min(used + 1, most)):
            yield from go_on([*parts, part], max(used, part + 1))

    return go_on([], 0)
