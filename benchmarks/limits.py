"""What the limits of known networks cost on real interest tables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.measure import Section
from benchmarks.planner import real_demand
from distributary import Demand, InfeasibleError, Limits, Request, evaluate, plan
from distributary.files import list_profiles, read_limits
from distributary.model import Constraints, Plan, broken_constraints, broken_limits

GROUPS, SESSIONS = 200, 500
SPARE = 1.1  # more than the copies that large audiences need at least
DATA = (
    ("cran-mirror-log", "interest"),
    ("julia-registry", "interest"),
    ("debian", "interest_maintainers"),
    ("npm-dependents", "interest"),
)


def limits(seconds: float = 10.0) -> Section:
    """Each profile on the real tables in the folder that DISTRIBUTARY_DATA names."""
    folder = os.environ.get("DISTRIBUTARY_DATA")
    if not folder:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    rows: list[list[str]] = []
    for data, table in DATA:
        demand = real_demand(Path(folder) / data, table)
        request = Request(groups=GROUPS, sessions=SESSIONS, budget_s=seconds)
        free = plan(demand, request).plan
        rows += [
            [data, name, *_compare(demand, request, free, read_limits(name))]
            for name in list_profiles()
        ]
    return Section(
        "Limits of networks on real interest tables",
        f"At most {GROUPS} groups and {SESSIONS:,} sessions, alpha = beta = 1, Cx/Cf; `best` with "
        f"a budget of {seconds:g} s without limits and with those of each profile. Broken: the "
        "limits that the plan without limits breaks. Where audiences are larger than a group may "
        "be, flows may be sent several times, up to the multiple of all rates in the column sent.",
        ["data", "profile", "Cx/Cf without", "broken", "sent", "Cx/Cf within", "within / without"],
        rows,
    )


def _compare(demand: Demand, request: Request, free: Plan, network: Limits) -> list[str]:
    """The cost without and with limits, or why no plan is within them."""
    before = _excess(free, demand)
    shown = [f"{before:.4f}", f"{len(broken_limits(free, demand, network)):,}"]
    max_sent = _find_copies(demand, network)
    shown.append("1" if max_sent is None else f"{max_sent:.2f}")
    within = Constraints(network)
    try:
        found = plan(demand, request.replace(constraints=within, max_sent=max_sent)).plan
    except InfeasibleError as error:
        return [*shown, str(error), "-"]
    assert broken_constraints(found, demand, within) == ()
    after = _excess(found, demand)
    return [*shown, f"{after:.4f}", f"{after / before:.3f}"]


def _find_copies(demand: Demand, network: Limits) -> float | None:
    """What to allow as `max_sent` so that every audience fits groups of so many members."""
    if network.most_members is None:
        return None
    copies = np.ceil(demand.interest.audience / network.most_members)
    least = float(copies @ demand.rate / demand.rate.sum())
    return None if least <= 1 else SPARE * least


def _excess(found: Plan, demand: Demand) -> float:
    evaluation = evaluate(found, demand)
    assert evaluation.valid
    return evaluation.filtering.relative_excess


SECTIONS = {"limits": limits}
