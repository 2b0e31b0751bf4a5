"""The number of seeded schedules run for each protocol, and what they contained."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.content import test_faults, test_schedules

from benchmarks.measure import Section

PLAIN, FAULTY = 400, 200  # of each policy
PARTS = 20

Counts = Counter[str]


def schedules() -> Section:
    rows = []
    for what, run, n in (
        ("content brokers, perfect links", plain, PLAIN),
        ("content brokers, loss, reordering, doubling, cuts, crashes", faulty, FAULTY),
    ):
        for policy in test_schedules.POLICIES:
            began = time.perf_counter()
            counts = _run(run, policy, n)
            seconds = time.perf_counter() - began
            rows.append(
                (
                    what,
                    policy,
                    f"{n:,}",
                    *(f"{counts[one]:,}" for one in ("publications", "deliveries", "crashes")),
                    f"{counts['failures']:,}",
                    f"{seconds:.0f} s",
                )
            )
            assert not counts["failures"], (what, policy)
    return Section(
        "Seeded schedules",
        "Each schedule draws from its seed an overlay, clients that subscribe, unsubscribe, "
        "advertise, move and publish, and the faults in the meantime. A checker that knows only "
        "the clients' actions decides who must get each event and who may, and that nobody gets "
        "it twice; at the end the tables are compared with what is needed, event by event.",
        (
            "what",
            "policy",
            "schedules",
            "publications",
            "deliveries",
            "crashes",
            "failures",
            "took",
        ),
        rows,
    )


def plain(policy: str, seeds: Iterable[int]) -> Counts:
    return _count(test_schedules.run_schedule, policy, seeds)


def faulty(policy: str, seeds: Iterable[int]) -> Counts:
    return _count(test_faults.run_schedule, policy, seeds)


def _count(run: Callable[..., object], policy: str, seeds: Iterable[int]) -> Counts:
    counts: Counts = Counter()
    for seed in seeds:
        try:
            world = run(seed, policy)
        except AssertionError as error:
            print(error)
            counts["failures"] += 1
            continue
        watch = world.watch  # type: ignore[attr-defined]
        counts["publications"] += len(watch.published)
        counts["deliveries"] += sum(map(len, watch.got.values()))
        lives = getattr(world, "lives", {})
        counts["crashes"] += sum(lives.values()) - len(lives)
    return counts


def _run(run: Callable[[str, Iterable[int]], Counts], policy: str, n: int) -> Counts:
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        parts = [range(10_000 + at, 10_000 + n, PARTS) for at in range(PARTS)]
        done = pool.map(run, [policy] * PARTS, parts)
        return sum(done, Counter())


SECTIONS = {"schedules": schedules}
