"""The plain twins of `_kernels.py`: the same functions, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["clustering_cost", "kmeans_pass", "merge_closest"]


def clustering_cost(
    receivers: Sequence[set[int]], weight: Sequence[int], cluster: Sequence[int]
) -> int:
    """What all receivers together take in: each cluster's receivers times its rate."""
    cost = 0
    for c in set(cluster):
        things = [k for k in range(len(cluster)) if cluster[k] == c]
        audience = set().union(*(receivers[k] for k in things))
        cost += len(audience) * sum(weight[k] for k in things)
    return cost


def kmeans_pass(
    receivers: Sequence[set[int]], weight: Sequence[int], cluster: Sequence[int], n_clusters: int
) -> tuple[list[int], int, int]:
    """Offer every thing in turn the nearest cluster (eq. 8); return clusters, moves and saving."""
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


def merge_closest(
    sets: Sequence[set[int]],
    element_weight: Sequence[int],
    mass: Sequence[int],
    bonus: int,
    steps: int,
) -> list[set[int]]:
    """Merge the cheapest pair of sets, `steps` times; return which rows ended up together."""
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
