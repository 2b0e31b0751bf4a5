"""The plain twins of the kernels: the same functions, slow and obvious."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

__all__ = [
    "PlainPlan",
    "cheapest_partition",
    "cheapest_sharing",
    "clustering_cost",
    "descend",
    "draw_moves",
    "kmeans_pass",
    "largest_profit",
    "merge_closest",
    "pair_profit",
    "pick",
    "place_beside",
    "prices_of_moving",
    "regroup",
    "two_level_cost",
]


def clustering_cost(
    receivers: Sequence[set[int]], weight: Sequence[int], cluster: Sequence[int]
) -> int:
    """The intake of all receivers together: each cluster's receivers times its rate."""
    cost = 0
    for c in set(cluster):
        things = [k for k in range(len(cluster)) if cluster[k] == c]
        audience = set().union(*(receivers[k] for k in things))
        cost += len(audience) * sum(weight[k] for k in things)
    return cost


def kmeans_pass(
    receivers: Sequence[set[int]], weight: Sequence[int], cluster: Sequence[int], n_clusters: int
) -> tuple[list[int], int, int]:
    """Move each thing in turn to its nearest cluster (eq. 8); return clusters, moves and saving."""
    cluster = list(cluster)
    moves = saved = 0
    for k in range(len(cluster)):
        others = [j for j in range(len(cluster)) if j != k]
        distance = []
        for c in range(n_clusters):
            things = [j for j in others if cluster[j] == c]
            audience = set().union(*(receivers[j] for j in things))
            rate = sum(weight[j] for j in things)
            distance.append(
                weight[k] * len(audience - receivers[k]) + rate * len(receivers[k] - audience)
            )
        nearest = min(range(n_clusters), key=lambda c: (distance[c], c))
        if distance[nearest] < distance[cluster[k]]:
            saved += distance[cluster[k]] - distance[nearest]
            cluster[k] = nearest
            moves += 1
    return cluster, moves, saved


def place_beside(
    receivers: Sequence[set[int]],
    weight: Sequence[float],
    audiences: Sequence[set[int]],
    totals: Sequence[float],
) -> list[int]:
    """Put each new thing into its nearest cluster, the first of several, seeing earlier ones."""
    heard, total = [set(audience) for audience in audiences], list(totals)
    cluster = []
    for members, rate in zip(receivers, weight, strict=True):
        distance = [
            rate * len(audience - members) + other * len(members - audience)
            for audience, other in zip(heard, total, strict=True)
        ]
        nearest = distance.index(min(distance))
        cluster.append(nearest)
        heard[nearest] |= members
        total[nearest] += rate
    return cluster


def merge_closest(
    sets: Sequence[set[int]],
    element_weight: Sequence[int],
    mass: Sequence[int],
    bonus: int,
    steps: int,
) -> list[set[int]]:
    """Merge the cheapest pair of sets, `steps` times; return which rows were merged."""
    rows = {a: (set(s), m, {a}) for a, (s, m) in enumerate(zip(sets, mass, strict=True))}

    def weigh(elements: set[int]) -> int:
        return sum(element_weight[e] for e in elements)

    def cost(pair: tuple[int, int]) -> int:
        (set_a, mass_a, _), (set_b, mass_b, _) = rows[pair[0]], rows[pair[1]]
        return (
            mass_a * weigh(set_b)
            + mass_b * weigh(set_a)
            - (mass_a + mass_b + bonus) * weigh(set_a & set_b)
        )

    for _ in range(steps):
        pairs = [(a, b) for a in rows for b in rows if a < b]
        if not pairs:
            break
        a, b = min(pairs, key=lambda pair: (cost(pair), pair))
        set_b, mass_b, rows_b = rows.pop(b)
        set_a, mass_a, rows_a = rows[a]
        rows[a] = (set_a | set_b, mass_a + mass_b, rows_a | rows_b)
    return [rows[a][2] for a in sorted(rows)]


def cheapest_partition(receivers: Sequence[set[int]], rate: Sequence[int], n_groups: int) -> int:
    """The least channel cost with each flow in one group, by trying every map."""
    maps = product(range(n_groups), repeat=len(rate))
    return min(clustering_cost(receivers, rate, groups) for groups in maps) + sum(rate)


def cheapest_sharing(
    receivers: Sequence[set[int]], rate: Sequence[int], n_groups: int, n_receivers: int
) -> int:
    """The least channel cost with each flow in any groups, by trying every map and every cover."""
    sets = list(_subsets(n_groups))
    least = None
    for placed in product(sets[1:], repeat=len(rate)):
        group_rate = [
            sum(r for r, groups in zip(rate, placed, strict=True) if g in groups)
            for g in range(n_groups)
        ]
        cost = sum(group_rate)
        for receiver in range(n_receivers):
            wanted = [k for k in range(len(rate)) if receiver in receivers[k]]
            cost += min(
                sum(group_rate[g] for g in joined)
                for joined in sets
                if all(joined & placed[k] for k in wanted)
            )
        least = cost if least is None else min(least, cost)
    assert least is not None
    return least


def _subsets(n: int) -> Iterator[frozenset[int]]:
    for bits in range(1 << n):
        yield frozenset(g for g in range(n) if bits >> g & 1)


class PlainPlan(NamedTuple):
    """Flows by their receivers and rates, each flow's session and each session's group."""

    receivers: Sequence[set[int]]
    weight: Sequence[int]
    session: Sequence[int]
    group: Sequence[int]


def two_level_cost(
    plan: PlainPlan,
    alpha: int,
    beta: int,
) -> int:
    """Cw: the rates of the groups joined and of the sessions subscribed to, at their prices."""
    receivers, weight, session, group = plan
    received = clustering_cost(receivers, weight, [group[s] for s in session])
    accepted = clustering_cost(receivers, weight, session)
    return alpha * received + beta * accepted


def prices_of_moving(
    flow: int,
    plan: PlainPlan,
    alpha: int,
    beta: int,
) -> list[int]:
    """Cw with the flow in each of the sessions and all other flows unchanged."""
    prices = []
    for s in range(len(plan.group)):
        moved = [s if k == flow else old for k, old in enumerate(plan.session)]
        prices.append(two_level_cost(plan._replace(session=moved), alpha, beta))
    return prices


def pick(price: Sequence[float], stay: int, temperature: float, chance: float) -> int:
    """Draw one choice: at temperature 0 the cheapest, else where `chance` falls in the odds."""
    if temperature == 0:
        return stay if price[stay] == min(price) else min(range(len(price)), key=lambda c: price[c])
    odds = [max(0.0, 1 - (p - min(price)) / (64 * temperature)) ** 64 for p in price]
    reached = 0.0
    for c in range(len(price)):
        reached += odds[c] / sum(odds)
        if chance < reached:
            return c
    return stay


def draw_moves(
    chosen: Sequence[int],
    plan: PlainPlan,
    alpha: int,
    beta: int,
    toll: int = 0,
    home: Sequence[int] = (),
) -> list[int]:
    """The session that each flow would move to at temperature 0 if no other moved.

    A flow away from home pays a toll.
    """
    targets = []
    for k in chosen:
        price = prices_of_moving(k, plan, alpha, beta)
        if home and home[k] >= 0:
            price = [p if s == home[k] else p + toll for s, p in enumerate(price)]
        targets.append(pick(price, plan.session[k], 0, 0))
    return targets


def descend(
    order: Sequence[int],
    plan: PlainPlan,
    alpha: int,
    beta: int,
    toll: int = 0,
    home: Sequence[int] = (),
) -> list[int]:
    """Move flow after flow to its cheapest session; return each flow's session."""
    session = list(plan.session)
    for k in order:
        now = plan._replace(session=session)
        session[k] = draw_moves([k], now, alpha, beta, toll, home)[0]
    return session


def regroup(
    plan: PlainPlan,
    n_groups: int,
    alpha: int,
) -> list[int]:
    """Move session after session to its cheapest group; return each session's group."""
    group = list(plan.group)
    for s in range(len(group)):
        if s not in plan.session:
            continue
        price = []
        for m in range(n_groups):
            moved = [m if other == s else g for other, g in enumerate(group)]
            price.append(two_level_cost(plan._replace(group=moved), alpha, 0))
        group[s] = pick(price, group[s], 0, 0)
    return group


def largest_profit(
    receivers: Sequence[set[int]],
    rate: Sequence[float],
    weight: Sequence[float],
    worth: Sequence[float],
    anchor: int,
) -> float:
    """The largest profit of any cluster of the anchor and some later kinds (`planning.anchors`)."""
    best = -float("inf")
    for chosen in product((False, True), repeat=len(rate) - anchor - 1):
        cluster = [anchor, *(k for k, is_in in enumerate(chosen, anchor + 1) if is_in)]
        width = sum(weight[j] for j in set().union(*(receivers[k] for k in cluster)))
        best = max(best, sum(rate[k] * (worth[k] - width) for k in cluster))
    return best


def pair_profit(
    receivers: Sequence[set[int]],
    rate: Sequence[float],
    weight: Sequence[float],
    worth: Sequence[float],
    anchor: int,
) -> float:
    """The same with clusters only as wide as the anchor and any one other kind together."""

    def widen(kind: int) -> float:
        return sum(weight[j] for j in receivers[anchor] | receivers[kind])

    later = range(anchor + 1, len(rate))
    return max(
        rate[anchor] * (worth[anchor] - width)
        + sum(rate[k] * max(worth[k] - width, 0) for k in later if widen(k) <= width)
        for width in {widen(k) for k in (anchor, *later)}
    )
