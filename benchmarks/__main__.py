"""`python -m benchmarks [NAME ...]`: run, check the answers, update docs/benchmarks.md."""

from __future__ import annotations

import sys

from benchmarks import (
    bounds,
    broker_matching,
    broker_restart,
    brokers,
    control,
    control_shifts,
    covering,
    dashboard,
    delivery,
    delivery_changes,
    executors,
    following,
    limits,
    matching,
    neighbourhoods,
    overlay,
    pipeline,
    planner,
    quality,
    real_logs,
    replanning,
    routing,
    schedules,
    sharing,
    speed,
    stream,
    topics,
    topics_cost,
    topics_live,
    topics_peers,
    topics_ring,
    topics_store,
)
from benchmarks.measure import update_page

SECTIONS = {
    "fig7": quality.fig7,
    "fig2": quality.fig2,
    "kernels": speed.kernels,
    "algorithms": speed.algorithms,
    **planner.SECTIONS,
    **bounds.SECTIONS,
    **sharing.SECTIONS,
    **neighbourhoods.SECTIONS,
    **limits.SECTIONS,
    **pipeline.SECTIONS,
    **stream.SECTIONS,
    **following.SECTIONS,
    **executors.SECTIONS,
    **replanning.SECTIONS,
    **control_shifts.SECTIONS,
    **real_logs.SECTIONS,
    **matching.SECTIONS,
    **covering.SECTIONS,
    **broker_matching.SECTIONS,
    **broker_restart.SECTIONS,
    **routing.SECTIONS,
    **schedules.SECTIONS,
    **brokers.SECTIONS,
    **topics.SECTIONS,
    **overlay.SECTIONS,
    **topics_peers.SECTIONS,
    **topics_ring.SECTIONS,
    **delivery.SECTIONS,
    **delivery_changes.SECTIONS,
    **topics_cost.SECTIONS,
    **topics_live.SECTIONS,
    **topics_store.SECTIONS,
    **control.SECTIONS,
    **dashboard.SECTIONS,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        sys.exit(f"no benchmark is called {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    for name in names or SECTIONS:
        print(f"running {name} ...", file=sys.stderr)
        section = SECTIONS[name]()
        print(section.markdown())
        update_page(name, section, list(SECTIONS))


if __name__ == "__main__":
    main(sys.argv[1:])
