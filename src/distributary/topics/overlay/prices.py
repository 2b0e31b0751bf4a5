"""Prices of channels on Scribe, from measured tree sizes including helper peers."""

from __future__ import annotations

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.topics import MeasuredCost
from distributary.topics.overlay import measure_trees

__all__ = ["measure_scribe_prices"]

_FIRST_STEPS = (1, 2, 5)  # times every power of ten


def measure_scribe_prices(
    peers: int, rng: np.random.Generator, *, groups: int = 20
) -> OperatingPrices:
    """Prices from trees measured on a ring of that many peers, as means over `groups` groups.

    Maintaining a channel costs one message for every peer of its tree, and so does an event: for
    subscribers and for helper peers that only forward. The paper counts subscribers alone.
    """
    sizes = [step * 10**power for power in range(len(str(peers))) for step in _FIRST_STEPS]
    sizes = [size for size in sizes if size < peers] + [peers]
    found = measure_trees(peers, sizes, rng, groups=groups)
    costs = np.maximum.accumulate(found.peers)  # a mean of few groups may dip by chance
    measured = MeasuredCost(tuple(sizes), tuple(costs.tolist()))
    return OperatingPrices(maintain=measured, disseminate=measured)
