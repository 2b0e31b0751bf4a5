"""The simulated broker network of the link-matching paper.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from distributary.model import Topology

__all__ = ["broker_trees", "region_of"]

_ROOTS = {("0", "1"): 0.065, ("1", "2"): 0.050, ("0", "2"): 0.075}
_LEVELS = (0.025, 0.010)


def broker_trees(*, clients: int = 10) -> Topology:
    """39 brokers in three regional trees of 13 with connected roots, and clients at each.

    A regional tree is assumed to be a root, three brokers 25 ms from it, and three 10 ms from each
    of those; a broker's name is its path, as in "2.0.1". The paper mentions lateral links without
    saying where they are; they are omitted.
    """
    delays = dict(_ROOTS)
    level = ["0", "1", "2"]
    for delay in _LEVELS:
        below = [(f"{broker}.{at}", broker) for broker in level for at in range(3)]
        delays |= {(parent, child): delay for child, parent in below}
        level = [child for child, _ in below]
    brokers = sorted({broker for link in delays for broker in link})
    return Topology(
        delays, {f"{broker}/{at}": broker for broker in brokers for at in range(clients)}
    )


def region_of(broker: str) -> int:
    """The index of a broker's regional tree."""
    return int(broker.split(".")[0])
