"""Assignments as people make them today: by hash, by name, by a column such as the market.

They ignore interest and serve as baselines. Each uses as many sessions and groups as it may.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from distributary.model import FloatArray, IndexArray
from distributary.planning.balancing import lightest_first
from distributary.planning.hierarchy import Maps

__all__ = ["by_column", "by_hash", "by_name"]


def by_hash(flows: Sequence[str], n_sessions: int, n_groups: int) -> Maps:
    """Place each flow by the hash of its name: other flows may come and go, and it stays."""
    session = [
        int.from_bytes(blake2b(flow.encode(), digest_size=8).digest(), "big") % n_sessions
        for flow in flows
    ]
    return Maps(np.array(session, np.int32), (np.arange(n_sessions) % n_groups).astype(np.int32))


def by_name(n_flows: int, n_sessions: int, n_groups: int) -> Maps:
    """Split the flows, sorted by name, into ranges of equal size."""
    return Maps(_stretches(n_flows, n_sessions), _stretches(n_sessions, n_groups))


def by_column(labels: Sequence[str], rate: FloatArray, n_sessions: int, n_groups: int) -> Maps:
    """Keep flows of one label together; balance groups by rate, then split each by name."""
    values, value = np.unique(np.array(labels, object).astype(str), return_inverse=True)
    value_rate = np.bincount(value, weights=rate).astype(np.float64, copy=False)
    heaviest_first = np.lexsort((np.arange(len(values)), -value_rate))
    group = lightest_first(value_rate, heaviest_first, n_groups)[value]
    session = np.empty(len(labels), np.int32)
    session_group: list[int] = []
    used = np.unique(group)
    share = n_sessions // len(used)
    for g in used:
        flows = np.flatnonzero(group == g)
        by_value = flows[np.argsort(value[flows], kind="stable")]
        n = min(share, len(flows))
        session[by_value] = len(session_group) + _stretches(len(flows), n)
        session_group += [g] * n
    return Maps(session, np.array(session_group, np.int32))


def _stretches(n: int, n_parts: int) -> IndexArray:
    """Number 0, 1, ... n_parts - 1 in ranges of equal size, as nearly as possible."""
    return (np.arange(n) * n_parts // max(n, 1)).astype(np.int32)
