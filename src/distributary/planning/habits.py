"""How people assign flows today: by a hash, by the alphabet, by a column such as the market.

They look at nobody's interest and are here to be held against. Each fills as many sessions and
groups as it may.
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
    """Each flow where the hash of its name says: stable, whoever else comes and goes."""
    session = [
        int.from_bytes(blake2b(flow.encode(), digest_size=8).digest(), "big") % n_sessions
        for flow in flows
    ]
    return Maps(np.array(session, np.int32), (np.arange(n_sessions) % n_groups).astype(np.int32))


def by_name(n_flows: int, n_sessions: int, n_groups: int) -> Maps:
    """Stretches of the alphabet with equal numbers of flows; flows come sorted by name."""
    return Maps(_stretches(n_flows, n_sessions), _stretches(n_sessions, n_groups))


def by_column(labels: Sequence[str], rate: FloatArray, n_sessions: int, n_groups: int) -> Maps:
    """Flows of one label together, labels to groups by even rate, stretches of names within."""
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
    """Number 0, 1, ... n_parts - 1 in stretches as equal as can be."""
    return (np.arange(n) * n_parts // max(n, 1)).astype(np.int32)
