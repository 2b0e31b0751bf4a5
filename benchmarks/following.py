"""Streams: what it costs to let a plan follow a batch, by the size of the demand."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.measure import Section, shown_seconds
from distributary.cost import evaluate
from distributary.files import fingerprint, plan_document, write_plan
from distributary.model import IndexArray, Plan, Previous, Rates
from distributary.pipeline.following import FollowedPlan, PlanFollower, follow
from distributary.pipeline.live_demand import DemandChange, LiveDemand
from distributary.pipeline.warming import warm_up
from distributary.planning import Request, place_single

T = TypeVar("T")

PAIRS = (1_000_000, 5_000_000, 30_000_000)
PLAIN = PAIRS[:2]  # the planner takes 140 bytes a pair
GROUPS, SESSIONS, TOPICS = 16, 64, 64
ROWS, NEW_FLOWS = 1_000, 20
ENOUGH = 1e9  # a drift that is never reached: the plan is completed, and no flow moves


def stream_following() -> Section:
    """A batch of subscriptions and one of rates, on plans of three sizes, beside the planner."""
    load, began, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
    warm_up(Request(GROUPS, SESSIONS, budget_s=30))
    _compile_former()
    rows = [_Measured.of(pairs).row() for pairs in PAIRS]
    cores = (time.process_time() - cpu) / (time.perf_counter() - began)
    return Section(
        "A plan that follows a stream",
        f"The plan of so many pairs, in {GROUPS} groups and {SESSIONS} sessions, follows a batch "
        f"that changes the rates of {ROWS:,} flows, and one with {ROWS:,} actions, half of them "
        f"unsubscribing, with {NEW_FLOWS // 2} new flows. *Decided* is the time until the plan is "
        "complete and its cost known; *with version* adds all of a new version, with its "
        "fingerprints and files, which are not synced here; both are medians of three, after one "
        "that sorts all pairs. *From the whole demand* is what a version took before that, "
        "evaluated and fingerprinted from all pairs, its files not included. The former way "
        "completes the plan with the planner, from the whole demand, also for rates alone. After "
        "each kind of batch the cost is checked against a complete evaluation, and the "
        "fingerprints are compared.",
        [
            "pairs",
            "rates: decided",
            "former",
            "actions: decided",
            "with version",
            "from the whole demand",
            "former",
            "excess to former",
        ],
        rows,
        f"The load of the machine was {load:.1f} in the minute before and "
        f"{os.getloadavg()[0]:.1f} at the end; this benchmark, one process, kept {cores:.1f} cores "
        "busy.",
    )


@dataclass(frozen=True)
class _Measured:
    pairs: int
    rates: float
    decided: float
    version: float
    whole: float
    former_rates: float | None
    former: float | None
    excess_ratio: float | None

    @classmethod
    def of(cls, pairs: int) -> _Measured:
        live, plan = _make_stream(pairs)
        request = Request(GROUPS, SESSIONS, budget_s=30)
        follower = PlanFollower(request, live, plan, drift=ENOUGH)
        reference, rng = 0.5, np.random.default_rng(1)
        for _ in range(2):  # the first compiles
            change = _change_rates(live, rng)
            followed, rates = _take(partial(follower.follow, change, reference))
        assert followed is not None
        assert followed.made is None
        _check_cost(followed.cost.work, plan, live)
        previous = Previous.of(plan)
        former_rates = _time_former(pairs, live, request, previous, reference)[0]
        decided, versions = [], []
        for _ in range(4):
            change = _change_wishes(live, rng)
            began = time.perf_counter()
            spent = _note_descriptions(live)
            followed = follower.follow(change, reference)
            inputs = _write_version(followed, live)
            versions.append(time.perf_counter() - began)
            decided.append(spent[0] - began)
        assert followed is not None
        assert followed.made is not None
        whole = _describe_from_whole(followed, live, inputs)
        version = statistics.median(versions[1:])
        former, excess = _time_former(pairs, live, request, previous, reference)
        ratio = None if excess is None else followed.excess / excess
        decision = statistics.median(decided[1:])
        return cls(pairs, rates, decision, version, whole, former_rates, former, ratio)

    def row(self) -> list[str]:
        return [
            f"{self.pairs:,}",
            shown_seconds(self.rates),
            _beside(self.former_rates, self.rates),
            shown_seconds(self.decided),
            shown_seconds(self.version),
            _beside(self.whole, self.version),
            _beside(self.former, self.version),
            "-" if self.excess_ratio is None else f"{self.excess_ratio:.4f}",
        ]


def _beside(former: float | None, ours: float) -> str:
    return "-" if former is None else f"{shown_seconds(former)}, {former / ours:,.0f} x"


def _note_descriptions(live: LiveDemand) -> list[float]:
    """The moments at which a new version is begun to be described: then the plan is decided."""
    moments: list[float] = []

    def wanting() -> IndexArray:
        moments.append(time.perf_counter())
        return LiveDemand.wanting(live)

    live.wanting = wanting  # type: ignore[method-assign]
    return moments


def _write_version(followed: FollowedPlan | None, live: LiveDemand) -> dict[str, str]:
    """Write a version as a stream does; return the fingerprints of its inputs."""
    assert followed is not None
    assert followed.made is not None
    inputs = live.fingerprints()
    with TemporaryDirectory() as folder:
        document = plan_document(followed.made, inputs)
        write_plan(followed.made.solution.plan, document, Path(folder) / "plan")
    return inputs


def _describe_from_whole(followed: FollowedPlan, live: LiveDemand, inputs: dict[str, str]) -> float:
    """How long the plan and what its document says take from the whole demand, which agrees."""
    assert followed.made is not None
    plan, began = followed.made.solution.plan, time.perf_counter()
    demand = live.demand()
    assert demand is not None
    made = place_single(demand, plan.placement_session, plan.session_group)
    found = evaluate(made, demand).filtering
    interest = fingerprint(demand.interest)
    rates = fingerprint(Rates(demand.interest.flows, demand.rate))
    seconds = time.perf_counter() - began
    assert made == plan
    assert {"interest": interest, "rates": rates} == inputs
    told = followed.made.evaluation.filtering
    assert abs(told.work - found.work) < 1e-9 * found.work
    assert abs(told.work - followed.cost.work) < 1e-9 * found.work
    return seconds


def _compile_former() -> None:
    """Let the planner compile, on a small stream."""
    live, plan = _make_stream(10_000)
    demand = live.demand()
    assert demand is not None
    request = Request(GROUPS, SESSIONS, budget_s=30)
    follow(demand, request, Previous.of(plan), 0.5, ENOUGH)


def _time_former(
    pairs: int, live: LiveDemand, request: Request, previous: Previous, reference: float
) -> tuple[float | None, float | None]:
    if pairs not in PLAIN:
        return None, None

    def complete() -> float:
        demand = live.demand()
        assert demand is not None
        return follow(demand, request, previous, reference, ENOUGH).excess

    excess, seconds = _take(complete)
    gc.collect()
    return seconds, excess


def _take(run: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def _check_cost(work: float, plan: Plan, live: LiveDemand) -> None:
    demand = live.demand()
    assert demand is not None
    found = evaluate(plan, demand).filtering.work
    assert abs(work - found) < 1e-9 * found, (work, found)


def _make_stream(pairs: int) -> tuple[LiveDemand, Plan]:
    """Receivers with a taste for three of the topics, and a plan with a session for each topic."""
    rng = np.random.default_rng(0)
    flows, receivers = pairs // 50, pairs // 40
    live = LiveDemand()
    taste = rng.integers(0, TOPICS, (receivers, 3))
    chunks = []
    for first in range(0, pairs, 1_000_000):
        n = min(1_000_000, pairs - first)
        receiver = rng.integers(0, receivers, n)
        topic = taste[receiver, rng.integers(0, 3, n)]
        flow = topic + TOPICS * rng.integers(0, flows // TOPICS, n)
        chunks.append(np.unique(receiver.astype(np.int64) << 32 | flow))
    keys = np.unique(np.concatenate(chunks))
    tables = (
        _table(part >> 32, part & 0xFFFFFFFF, 1) for part in np.array_split(keys, len(chunks))
    )
    messages = {
        "flow": _names("flow", np.arange(flows)),
        "messages": pa.array(rng.zipf(1.5, flows).clip(0, 10**6)),
    }
    live.load(tables, pa.table(messages), 3600.0)
    demand = live.demand()
    assert demand is not None
    topic = np.array([int(name[4:]) % TOPICS for name in demand.interest.flows], np.int32)
    return live, place_single(demand, topic, np.arange(SESSIONS, dtype=np.int32) % GROUPS)


def _names(kind: str, numbers: np.ndarray) -> pa.Array:
    codes, inverse = np.unique(numbers, return_inverse=True)
    names = pa.array([f"{kind}{code}" for code in codes.tolist()])
    return names.take(pa.array(inverse))


def _table(
    receiver: np.ndarray, flow: np.ndarray, time_us: int, on: np.ndarray | None = None
) -> pa.Table:
    on = np.ones(len(receiver), np.bool_) if on is None else on
    return pa.table(
        {
            "receiver": _names("receiver", receiver),
            "flow": _names("flow", flow),
            "ts": pa.array(np.full(len(receiver), time_us)),
            "on": pa.array(on),
        }
    )


def _change_rates(live: LiveDemand, rng: np.random.Generator) -> DemandChange:
    flow = rng.choice(len(live.flows), ROWS, replace=False)
    names = pa.array([live.flows.listed[at] for at in flow.tolist()])
    counts = pa.array(rng.integers(1, 100, ROWS))
    return live.apply(None, pa.table({"flow": names, "messages": counts}), 3600.0, _never)


_clock = iter(range(2, 1_000_000))


def _change_wishes(live: LiveDemand, rng: np.random.Generator) -> DemandChange:
    """Half of the actions end pairs that are wanted, half begin others, some with new flows."""
    receiver, flow = live.list_pairs()
    drawn = rng.choice(len(receiver), ROWS // 2, replace=False)
    now = next(_clock)
    ending = [(live.receivers.listed[receiver[at]], live.flows.listed[flow[at]]) for at in drawn]
    others = rng.permutation(len(live.receivers))[: ROWS // 2]
    known = rng.choice(len(live.flows), ROWS // 2)
    beginning = [
        (live.receivers.listed[r], f"new{now}-{at % NEW_FLOWS}" if at % 2 else live.flows.listed[f])
        for at, (r, f) in enumerate(zip(others.tolist(), known.tolist(), strict=True))
    ]
    rows = dict.fromkeys(ending, False) | dict.fromkeys(beginning, True)
    table = pa.table(
        {
            "receiver": pa.array([receiver for receiver, _ in rows]),
            "flow": pa.array([flow for _, flow in rows]),
            "ts": pa.array([now] * len(rows), pa.int64()),
            "on": pa.array(list(rows.values())),
        }
    )
    return live.apply(table, None, 3600.0, _never)


def _never(rows: pa.Table) -> np.ndarray:
    raise AssertionError("no action is at the time of an earlier one")


SECTIONS = {"stream_following": stream_following}
