"""The history of a stream: what its line about a batch says."""

from __future__ import annotations

from typing import Any

from distributary.pipeline.following import FollowedPlan
from distributary.pipeline.job import LOGS
from distributary.pipeline.ledger import LedgerState

__all__ = ["describe_batch", "describe_plan"]


def describe_batch(before: LedgerState, state: LedgerState, files: int) -> dict[str, Any]:
    """The batch's line of the history, which does not depend on the clock."""

    def number(of: LedgerState, log: str, key: str) -> int:
        counts = of.counts.get(log, {})
        if key == "quarantined":
            return sum(counts.get("reasons", {}).values())
        return int(counts.get(key, 0))

    return {
        "batch": state.batch,
        "files": files,
        **{log: number(state, log, "used") - number(before, log, "used") for log in LOGS},
        **{
            key: sum(number(state, log, key) - number(before, log, key) for log in LOGS)
            for key in ("duplicates", "quarantined")
        },
        **_list_totals(state),
        **{"excess": None, "drift": None, "moves": 0, "new": 0},
        **{"drift_cost": None, "drift_share": None, **state.entry},
        **_tell_age(state),
        "version": state.version,
    }


def _list_totals(state: LedgerState) -> dict[str, Any]:
    """All rows so far by log, and those put aside by reason."""
    reasons = {log: state.counts.get(log, {}).get("reasons", {}) for log in LOGS}
    rows = {
        log: counts["used"] + counts["duplicates"] + sum(counts["reasons"].values())
        for log, counts in state.counts.items()
    }
    return {"rows": {log: rows.get(log, 0) for log in LOGS}, "quarantine": reasons}


def describe_plan(followed: FollowedPlan) -> dict[str, Any]:
    """What the line of the history says about the plan."""
    cost = followed.cost
    return {
        "excess": followed.excess,
        "drift": followed.drift,
        "moves": followed.moves,
        "new": followed.new,
        "drift_cost": followed.drift_cost,
        "drift_share": followed.drift_cost / cost.work if cost.work else 0.0,
    }


def _tell_age(state: LedgerState) -> dict[str, Any]:
    """How old the plan is, and what the last moves saved."""
    planned = state.planned
    if planned is None:
        return {"age_batches": None, "age_s": None, "saved": None, "saved_share": None}
    began, now = planned.latest, state.latest
    return {
        "age_batches": state.batch - planned.batch,
        "age_s": 0.0 if began is None or now is None else (now - began) / 1e6,
        "saved": planned.saved,
        "saved_share": planned.saved_share,
    }
