"""Greedy merging: start with everything separate and merge the cheapest pair repeatedly.

Reference: Adler et al. (2001), section 4: flow-based and user-based merge. Both have prices of the
same form. A flow-based cluster of rate m and receivers E costs m |E|; a user-based one of m users
and flows E of total rate |E| costs (m + 1) |E|, where the 1 is the sender's. So one loop does both.
If users have weights, m is the sum of theirs, and the 1 is that of what is sent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from distributary.model import Demand, IndexArray, IntArray
from distributary.planning._kernels import Merging, merge_closest
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things, whole_rates
from distributary.planning.weighted import WholeWeights

__all__ = ["bits", "flow_merge", "user_merge"]

Bits = npt.NDArray[np.uint64]

_MERGES_PER_STEP = 256  # between two progress reports


def flow_merge(demand: Demand, n_groups: int, progress: Progress = silent) -> IndexArray:
    """FBM: start with a group per flow and merge the pair that adds least; return the groups."""
    things = Things.flows_of(demand)
    # Flows with the same receivers merge at no cost, so they would be merged first in any case.
    twins = _same_members(things)
    n_sets = int(twins.max()) + 1
    if n_sets < n_groups:
        twins, n_sets = np.arange(len(things), dtype=np.int32), len(things)
    sets = things.merge(twins, n_sets)
    owner = np.repeat(np.arange(n_sets), np.diff(sets.offsets))
    words = bits(owner, sets.members, n_sets, sets.n_receivers)
    merging = _start(words, np.zeros(0, np.int64), sets.weight.copy(), np.diff(sets.offsets), 0)
    return _merge_down(merging, n_groups, progress)[twins]


def user_merge(
    demand: Demand,
    n_groups: int,
    progress: Progress = silent,
    weights: WholeWeights | None = None,
) -> IndexArray:
    """UBM: start with a group per receiver, merge the pair that adds least; return their groups.

    A receiver's group carries everything that its members want, so a flow may be in several groups.
    A merge may even save: flows that both groups carry are then sent only once. Without `weights`,
    a message received and one sent count the same.
    """
    interest = demand.interest
    n_receivers, n_flows = len(interest.receivers), len(interest.flows)
    mass = np.ones(n_receivers, np.int64) if weights is None else weights.receivers.copy()
    sent = 1 if weights is None else weights.sent
    weight = whole_rates(demand.rate, int(mass.sum()) + sent)
    wanted = np.add.reduceat(weight[interest.receiver_flows], interest.receiver_offsets[:-1])
    owner = np.repeat(np.arange(n_receivers), np.diff(interest.receiver_offsets))
    words = bits(owner, interest.receiver_flows, n_receivers, n_flows)
    padded = np.zeros(words.shape[1] * 64, np.int64)
    padded[:n_flows] = weight
    return _merge_down(_start(words, padded, mass, wanted, sent), n_groups, progress)


def _start(
    words: Bits, element_weight: IntArray, mass: IntArray, extent: IntArray, bonus: int
) -> Merging:
    """Merge until `n_left` sets are left; return the set that each row belongs to."""
    n_rows = len(words)
    return Merging(
        words,
        element_weight,
        mass,
        extent,
        bonus,
        parent=np.arange(n_rows, dtype=np.int32),
        nearest=np.full(n_rows, -1, np.int32),
        least=np.full(n_rows, np.iinfo(np.int64).min, np.int64),
        stale=np.ones(n_rows, np.bool_),
    )


def _merge_down(sets: Merging, n_left: int, progress: Progress) -> IndexArray:
    """Merge until `n_left` sets are left; return, row by row, which of them it is in."""
    parent = sets.parent
    n_rows = len(parent)
    to_do = max(0, n_rows - n_left)
    done = 0
    while done < to_do:
        progress(Step("merging", done, to_do))
        steps = min(_MERGES_PER_STEP, to_do - done)
        done += merge_closest(sets, steps)
    progress(Step("merging", to_do, to_do))
    for row in range(n_rows):  # parents are smaller rows, so one ascending pass is enough
        parent[row] = parent[parent[row]]
    return np.unique(parent, return_inverse=True)[1].astype(np.int32)


def _same_members(things: Things) -> IndexArray:
    """Number things by their set of receivers, in order of first appearance."""
    seen: dict[bytes, int] = {}
    members, offsets = things.members, things.offsets
    return np.array(
        [
            seen.setdefault(members[offsets[k] : offsets[k + 1]].tobytes(), len(seen))
            for k in range(len(things))
        ],
        np.int32,
    )


def bits(rows: IntArray | IndexArray, elements: IndexArray, n_rows: int, n_elements: int) -> Bits:
    """Sets as rows of bits: bit e of row r is set for each pair (r, e)."""
    words = np.zeros((n_rows, (n_elements + 63) // 64), np.uint64)
    bit = np.left_shift(np.uint64(1), (elements % 64).astype(np.uint64))
    np.bitwise_or.at(words, (rows, elements // 64), bit)
    return words
