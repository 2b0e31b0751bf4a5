"""What the trees of an overlay send for a clustering, against their routes counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.papers.milo.overlay import carry_on_trees
from distributary.topics.overlay.simulation import OverlayNetwork
from tests.topics.overlay import oracles


@pytest.mark.parametrize("peers", [1, 12, 60])
def test_an_event_and_a_keep_alive_cost_one_message_for_each_edge(peers: int) -> None:
    rng = np.random.default_rng(peers)
    names = [f"topic/t{at}" for at in range(6)]
    members = [rng.permutation(peers)[: rng.integers(0, peers + 1)] for _ in names]
    members[0] = np.arange(0)
    members[1] = np.arange(peers)
    found = carry_on_trees(peers, names, members, seed=3)
    ring = OverlayNetwork.build_converged(
        [f"u{at}" for at in range(peers)], np.random.default_rng([3, 7])
    )
    edges = [
        len(oracles.routes(ring, [f"u{at}" for at in users], name)) - 1 if len(users) else 0
        for name, users in zip(names, members, strict=True)
    ]
    assert found.events.tolist() == edges
    assert found.maintenance == sum(edges)
    assert found.events[1] == peers - 1  # all peers of a tree are subscribers
