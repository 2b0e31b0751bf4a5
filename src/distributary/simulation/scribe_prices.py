"""What channels cost on Scribe, helper peers counted: prices from the sizes of real trees."""

from __future__ import annotations

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.topics import MeasuredCost
from distributary.protocol.overlay import tree_sizes

__all__ = ["scribe_prices"]

_FIRST_STEPS = (1, 2, 5)  # of every power of ten


def scribe_prices(peers: int, rng: np.random.Generator, *, groups: int = 20) -> OperatingPrices:
    """Prices by trees measured on a ring of so many peers: the mean of so many groups.

    Keeping a channel up costs a message for every peer of its tree, and so does an event: for
    subscribers and for peers that only pass things on. The paper counts subscribers alone.
    """
    sizes = [step * 10**power for power in range(len(str(peers))) for step in _FIRST_STEPS]
    sizes = [size for size in sizes if size < peers] + [peers]
    found = tree_sizes(peers, sizes, rng, groups=groups)
    costs = np.maximum.accumulate(found.peers)  # a mean of few groups may dip by chance
    measured = MeasuredCost(tuple(sizes), tuple(costs.tolist()))
    return OperatingPrices(maintain=measured, disseminate=measured)
