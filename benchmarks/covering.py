"""The index of covers: the cost of queries and changes, against comparing with all filters."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Section, timed
from distributary.matching._covering_reference import PlainCoverIndex
from distributary.matching.covering import CoverIndex
from distributary.model import Filter, Schema
from distributary.workloads.workflows import WorkflowsParams, workflows

SIZES = (10, 1_000, 10_000, 100_000)
ASKED = 1_000
# Filters compared with each other in all, where each is compared with all others.
_COMPARISONS = 300_000
# PADRES's own structure, in Java, at 10,000 subscriptions: microseconds for one insertion.
PADRES = 139.0


def covering(sizes: Sequence[int] = SIZES) -> Section:
    """Microseconds for each query, and for adding and removing a filter."""
    rows: list[list[str]] = []
    inserting = None
    for n in sizes:
        schema, filters = _filters(n)
        index: CoverIndex[int] = CoverIndex(schema)
        plain = PlainCoverIndex(schema)
        for key, filter in enumerate(filters):
            index.add(filter, key)
            plain.add(filter, key)
        asked = _filters(max(n, ASKED), seed=1)[1][:ASKED]
        asked = [filters[at % n] if at % 2 else found for at, found in enumerate(asked)]
        rows += [_question(name, n, index, plain, asked) for name in QUESTIONS]
        row, insertion = _changes(n, index, plain, asked)
        rows.append(row)
        if n == 10_000:
            inserting = insertion
    _, made = timed(lambda: [CoverIndex(schema) for _ in range(1_000)])
    peer = ""
    if inserting is not None:
        peer = (
            f" At 10,000 filters it takes {inserting:.3g} microseconds to find what covers a new "
            "filter and what it covers, and to add it; PADRES's own covering structure "
            f"(Java) takes {PADRES:.0f} for an insertion, by an independent measurement on another "
            "machine."
        )
    return Section(
        "Covering: which filters cover this one, and which does it cover",
        "Microseconds for each call. Filters of the congestion paper's workload: one of 100 "
        "workflows, a range of values and a range of loads; every root covers 30 others. Half of "
        "the filters in the queries are in the index, half are not. First: a filter that no "
        "index has seen before; again: one that has been queried before, as at the next broker "
        "on its way. Comparing with all filters uses the model's own `covers` and `intersects`, "
        "on fewer filters. The answers are the same (asserted).",
        ["filters", "call", "answers", "first", "again", "comparing with all", "all / again"],
        rows,
        f"An empty index is created in {made * 1e3:.1f} microseconds.{peer}",
    )


QUESTIONS: dict[str, Callable[[Any, Filter], Any]] = {
    "`is_covered`": lambda index, filter: index.is_covered(filter),
    "`find_covers`": lambda index, filter: index.find_covers(filter),
    "`find_covered`": lambda index, filter: index.find_covered(filter),
    "`find_meeting`": lambda index, filter: index.find_meeting(filter),
}


def _filters(n: int, seed: int = 0) -> tuple[Schema, list[Filter]]:
    params = WorkflowsParams(subscriptions=max(n, 100), dimensions=2)
    made = workflows(params, np.random.default_rng([n, seed]))
    return made.schema, [filter for _, _, filter in made.subscriptions[:n]]


def _fresh(filters: Sequence[Filter]) -> list[Filter]:
    """Copies of the filters without cached values, as if they had just arrived."""
    return [Filter(filter.schema, filter.boxes) for filter in filters]


def _question(
    name: str, n: int, index: CoverIndex[int], plain: PlainCoverIndex, asked: list[Filter]
) -> list[str]:
    ask = QUESTIONS[name]
    answers, again = timed(lambda: [ask(index, filter) for filter in asked])
    first = statistics.median(_seconds(ask, index, _fresh(asked)) for _ in range(5))
    few = asked[: max(2, min(ASKED, _COMPARISONS // n))]
    began = time.perf_counter()
    expected = [ask(plain, filter) for filter in few]
    slow = (time.perf_counter() - began) / len(few)
    assert answers[: len(few)] == expected
    sizes = [answer if isinstance(answer, bool) else len(answer) for answer in answers]
    return _row(n, name, f"{np.mean(sizes):.2f}", first / len(asked), again / len(asked), slow)


def _changes(
    n: int, index: CoverIndex[int], plain: PlainCoverIndex, asked: list[Filter]
) -> tuple[list[str], float]:
    """A row for adding and removing, and the microseconds of both queries plus an insertion."""

    def come_and_go(filters: list[Filter]) -> float:
        began = time.perf_counter()
        for filter in filters:
            index.add(filter, -1)
            index.remove(-1)
        return time.perf_counter() - began

    def come(filters: list[Filter]) -> float:
        began = time.perf_counter()
        for key, filter in enumerate(filters, n):
            index.find_covers(filter)
            index.find_covered(filter)
            index.add(filter, key)
        taken = time.perf_counter() - began
        for key in range(n, n + len(filters)):
            index.remove(key)
        return taken

    again = statistics.median(come_and_go(asked) for _ in range(5)) / len(asked)
    first = statistics.median(come_and_go(_fresh(asked)) for _ in range(5)) / len(asked)
    insertion = statistics.median(come(_fresh(asked)) for _ in range(5)) / len(asked) * 1e6
    assert list(index) == list(plain)
    assert index.find_covered(asked[0]) == plain.find_covered(asked[0])
    return _row(n, "`add` and `remove`", "", first, again, None), insertion


def _seconds(ask: Callable[[Any, Filter], Any], index: Any, filters: list[Filter]) -> float:
    began = time.perf_counter()
    for filter in filters:
        ask(index, filter)
    return time.perf_counter() - began


def _row(
    n: int, name: str, answers: str, first: float, again: float, slow: float | None
) -> list[str]:
    return [
        f"{n:,}",
        name,
        answers,
        f"{first * 1e6:.3g}",
        f"{again * 1e6:.3g}",
        "" if slow is None else f"{slow * 1e6:,.0f}",
        "" if slow is None else f"{slow / again:,.0f}",
    ]


SECTIONS = {"covering": covering}
