"""Flows that must stay together, as one thing each."""

from __future__ import annotations

import numpy as np

from distributary.model import Constraints, Demand, IndexArray

__all__ = ["number_bundles"]


def number_bundles(demand: Demand, constraints: Constraints) -> tuple[IndexArray, int]:
    """Number the flows so that those that must be together share a number."""
    index = {name: k for k, name in enumerate(demand.interest.flows)}
    root = np.arange(len(index), dtype=np.int32)
    for names in constraints.together:
        flows = [index[name] for name in names if name in index]
        if flows:
            roots = root[flows]
            root[np.isin(root, roots)] = roots.min()
    used, bundle = np.unique(root, return_inverse=True)
    return bundle.astype(np.int32), len(used)
