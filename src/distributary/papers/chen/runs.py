"""The cases behind the figures, each run once, two at a time.

Every setting is run with `SEEDS` seeds, or with one for a first look. Figures
share cases, so results are cached.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from distributary.content import COVERING_POLICIES, Covering
from distributary.papers.chen.choices import HISTORY, TO_WARM_UP
from distributary.papers.chen.mobile import MobileCase, MobileOutcome, run_mobile_case
from distributary.papers.chen.network import CongestionCase, CongestionOutcome, run_congestion_case
from distributary.papers.chen.repeats import Repeated, RepeatedMoves
from distributary.papers.processes import run_apart
from distributary.planning import Progress, Step
from distributary.workloads.roaming import RoamingParams
from distributary.workloads.workflows import WorkflowsParams

__all__ = [
    "ACTIVE",
    "COMPARED",
    "OURS",
    "POLICIES",
    "SEEDS",
    "SELECTIVE",
    "SPARSE_WORKFLOWS",
    "SWEPT",
    "case",
    "cases",
    "mobile_case",
    "mobile_cases",
    "mobile_results",
    "results",
]

ACTIVE, LAZY, PACKING, SELECTIVE, SWEPT, OURS = (
    "active",
    "lazy",
    "packing",
    "selective",
    "swept",
    "ours",
)
COMPARED = (ACTIVE, SELECTIVE, OURS)
_PRUNING = replace(COVERING_POLICIES["pruning"], prunes=HISTORY)
# "selective" is the paper's policy: the remnants of an unsubscription are never swept.
POLICIES: Mapping[str, Covering] = {
    ACTIVE: COVERING_POLICIES["active"],
    LAZY: COVERING_POLICIES["lazy"],
    PACKING: COVERING_POLICIES["packing"],
    SELECTIVE: replace(_PRUNING, sweeps=False),
    SWEPT: _PRUNING,
    OURS: COVERING_POLICIES["merging"],
}
QUICK, QUICK_MOBILE = 0.05, 0.1
SIMILARITIES = 50  # ended subscriptions followed from their broker to the publisher's
SEEDS = 3
MOBILE_WORKFLOWS, SPARSE_WORKFLOWS = 20, 100
PAPERS_WORKFLOWS = WorkflowsParams()

C = TypeVar("C", CongestionCase, MobileCase)
K = TypeVar("K", bound=Hashable)
O = TypeVar("O", CongestionOutcome, MobileOutcome)  # noqa: E741

_found: dict[CongestionCase, CongestionOutcome] = {}
_found_mobile: dict[MobileCase, MobileOutcome] = {}


def case(
    policy: str,
    *,
    quick: bool,
    seed: int,
    unsubscriptions: int = 300,
    full: WorkflowsParams = PAPERS_WORKFLOWS,
) -> CongestionCase:
    """One run of the paper's size, or a twentieth of it with shorter periods before and after."""
    scale = QUICK if quick else 1.0
    drawn = replace(
        full,
        subscriptions=round(scale * full.subscriptions),
        workflows=round(scale * full.workflows),
    )
    made = CongestionCase(
        POLICIES[policy],
        drawn,
        round(scale * unsubscriptions),
        similarities=SIMILARITIES if policy == ACTIVE else 0,
        scale=scale,
        seed=seed,
    )
    if quick:
        return replace(made, publications=1_200, before=300, probe_after=150.0)
    return made


def cases(policy: str, *, quick: bool, seed: int, **of: Any) -> tuple[CongestionCase, ...]:
    """A case with each seed; see `case`."""
    drawn = range(seed, seed + (1 if quick else SEEDS))
    return tuple(case(policy, quick=quick, seed=each, **of) for each in drawn)


def mobile_cases(policy: str, *, quick: bool, seed: int, **of: Any) -> tuple[MobileCase, ...]:
    """A case with moves with each seed; see `mobile_case`."""
    drawn = range(seed, seed + (1 if quick else SEEDS))
    return tuple(mobile_case(policy, quick=quick, seed=each, **of) for each in drawn)


def mobile_case(
    policy: str,
    *,
    quick: bool,
    seed: int,
    all_move: bool = False,
    overlap: bool = False,
    workflows: int = MOBILE_WORKFLOWS,
) -> MobileCase:
    """One run of six hours, or half an hour with a tenth of the subscribers."""
    scale = QUICK_MOBILE if quick else 1.0
    full = RoamingParams(workflows=workflows, moves_per_minute=60.0 if all_move else 0.0)
    drawn = replace(
        full,
        subscribers=round(scale * full.subscribers),
        workflows=round(scale * full.workflows),
        moves_per_minute=scale * full.moves_per_minute,
        duration=1_800.0 if quick else full.duration,
    )
    return MobileCase(POLICIES[policy], drawn, overlap, scale=scale, seed=seed)


def results(
    progress: Progress, *groups: Mapping[K, Sequence[CongestionCase]]
) -> list[dict[K, Repeated]]:
    """The outcomes of several groups of settings, each run with its seeds."""
    found = _run([each for group in groups for cases in group.values() for each in cases], progress)
    return [
        {key: Repeated(tuple(found[each] for each in cases)) for key, cases in group.items()}
        for group in groups
    ]


def mobile_results(
    group: Mapping[K, Sequence[MobileCase]], progress: Progress
) -> dict[K, RepeatedMoves]:
    """The outcomes of several settings with moves, each run with its seeds."""
    found = _run_mobile([each for cases in group.values() for each in cases], progress)
    return {
        key: RepeatedMoves(
            tuple(found[each] for each in cases),
            TO_WARM_UP * cases[0].roaming.seconds_between_monitors,
        )
        for key, cases in group.items()
    }


def _run(
    cases: Sequence[CongestionCase], progress: Progress
) -> dict[CongestionCase, CongestionOutcome]:
    """The outcome of each case; two run at a time, each in its own process."""
    return _run_new(cases, _found, run_congestion_case, progress)


def _run_mobile(cases: Sequence[MobileCase], progress: Progress) -> dict[MobileCase, MobileOutcome]:
    """The outcome of each case; two run at a time, each in its own process."""
    return _run_new(cases, _found_mobile, run_mobile_case, progress)


def _run_new(
    cases: Sequence[C], found: dict[C, O], run: Callable[[C], O], progress: Progress
) -> dict[C, O]:
    wanted = list(dict.fromkeys(cases))
    todo = [each for each in wanted if each not in found]
    progress(Step("cases", len(wanted) - len(todo), len(wanted)))
    if todo:
        with closing(run_apart(partial(_run_without_pauses, run), todo)) as ended:
            for done, (each, outcome) in enumerate(ended, 1):
                found[each] = outcome
                progress(Step("cases", len(wanted) - len(todo) + done, len(wanted)))
    return {each: found[each] for each in wanted}


def _run_without_pauses(run: Callable[[C], O], case: C) -> O:
    """Run a case without the garbage collector, which takes an eighth of its time and finds little.

    Each case is collected after its end.
    """
    gc.disable()
    try:
        return run(case)
    finally:
        gc.enable()
        gc.collect()
