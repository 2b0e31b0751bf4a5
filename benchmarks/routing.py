"""Content routing: the speed of the simulator, and what our policy adds."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.measure import Section
from distributary.content import COVERING_POLICIES
from distributary.papers.chen.network import (
    CORE,
    CongestionCase,
    CongestionOutcome,
    run_congestion_case,
)

PRUNING = replace(COVERING_POLICIES["pruning"], sweeps=False)
POLICIES = {
    "active covering": COVERING_POLICIES["active"],
    "selective pruning, as published": PRUNING,
    "merging (ours)": COVERING_POLICIES["merging"],
}


def routing() -> Section:
    found, speeds = {}, {}
    for name, policy in POLICIES.items():
        began = time.perf_counter()
        found[name] = run_congestion_case(CongestionCase(policy))
        speeds[name] = found[name].messages / (time.perf_counter() - began)
    reached = {len(outcome.delays) for outcome in found.values()}
    assert len(reached) == 1, f"the policies deliver different numbers of probes: {reached}"
    rows = [
        (*_row(name, outcome, found), f"{speeds[name]:,.0f}") for name, outcome in found.items()
    ]
    return Section(
        "Content routing at full scale",
        "55 brokers, 30,000 subscriptions of covering degree 30, 300 roots end within 150 s, "
        "21,000 publications; one seed. The delay is that of the probes 600 s later; the ratio "
        "is to that of the published selective pruning. Tables and prices count boxes. Messages "
        "are the inputs and ends of service that the simulator handled per second on one core.",
        (
            "policy",
            "delay",
            "ratio",
            "longest core queue",
            "false positives",
            "table at E",
            "core tables",
            "triggered at E",
            "simulated messages/s",
        ),
        rows,
    )


def _row(
    name: str, outcome: CongestionOutcome, found: dict[str, CongestionOutcome]
) -> tuple[str, ...]:
    published = found["selective pruning, as published"].delays.mean()
    return (
        name,
        f"{outcome.delays.mean():,.2f} s",
        f"{outcome.delays.mean() / published:,.2f}",
        f"{outcome.core_queue():,}",
        f"{100 * outcome.false_positives():.3f} %",
        f"{outcome.tables['E']:,}",
        f"{np.mean([outcome.tables[broker] for broker in CORE]):,.0f}",
        f"{outcome.triggered.get('E', 0):,}",
    )


SECTIONS = {"routing": routing}
