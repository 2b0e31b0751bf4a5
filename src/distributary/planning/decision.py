"""Whether a tiny problem with terms has a plan at all, by trying every one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.planning._pair_decision import try_all
from distributary.planning.term_problem import Places, TermProblem

__all__ = ["Decision", "decide"]

MOST_STEPS = 3_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Places within all limits, if there are any; `is_proven` says that there are none."""

    places: Places | None
    is_proven: bool


def decide(problem: TermProblem) -> Decision:
    """Try every plan of a tiny problem; give up after many steps."""
    nowhere = np.full(len(problem.wants.members), -1, np.int32)
    group = np.where(problem.bounds.home_group >= 0, problem.bounds.home_group, 0)
    state = problem.begin(Places(nowhere, group.astype(np.int32)))
    verdict = int(try_all(MOST_STEPS, state))
    table = state.table
    if verdict > 0:
        return Decision(Places(table.place.copy(), table.group.copy()), False)
    return Decision(None, verdict == 0)
