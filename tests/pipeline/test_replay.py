from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import distributary
from distributary import Demand, Interest, Plan, Request, evaluate
from distributary.model import IndexArray
from distributary.pipeline.plans import PlanTables, flooding, plan_tables, unicast
from distributary.pipeline.replay import activity, references, replay
from distributary.pipeline.schemas import (
    INTEREST,
    PLACEMENTS,
    PLAN_SUBSCRIPTIONS,
    PUBLICATIONS,
    SESSIONS,
    UNICAST,
)
from distributary.planning import UnicastLimits

S = TypeVar("S")
T = TypeVar("T")

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
SHARES = ("received", "wanted", "dropped_by_session", "dropped_by_flow", "unserved")


@dataclass
class Case:
    """A plan, an interest and a log in plain Python; names need not match between them."""

    placed: set[tuple[str, int]]
    group_of: dict[int, int]
    subscribed: set[tuple[str, int]]
    alone: set[tuple[str, str]]
    wanted: set[tuple[str, str]]
    log: list[tuple[int, str, int | None]] = field(default_factory=list)  # second, flow, size

    def delivered(self) -> dict[tuple[str, int], Counter[str]]:
        """By receiver and minute, message by message: the oracle."""
        everybody = {r for r, _ in self.subscribed | self.alone | self.wanted}
        seen: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for second, flow, size in self.log:
            for receiver in everybody:
                self._deliver(receiver, flow, size, seen[receiver, second // 60])
        return seen

    def _deliver(self, receiver: str, flow: str, size: int | None, seen: Counter[str]) -> None:
        def count(what: str) -> None:
            seen[what] += 1
            seen[f"{what}_bytes"] += size or 0

        groups = {self.group_of[s] for r, s in self.subscribed if r == receiver}
        wants = (receiver, flow) in self.wanted
        kept = False
        copies = [s for f, s in self.placed if f == flow]
        for session in copies:
            if self.group_of[session] not in groups:
                continue
            count("received")
            if (receiver, session) not in self.subscribed:
                count("dropped_by_session")
            elif wants and not kept:
                kept = True
                count("wanted")
            else:
                count("dropped_by_flow")
        if (receiver, flow) in self.alone:
            count("received")
            count("dropped_by_flow" if kept or not wants else "wanted")
            kept = True
        if wants and not kept:
            count("unserved")

    @property
    def sent(self) -> int:
        copies = Counter(f for f, _ in self.placed) + Counter(f for _, f in self.alone)
        return sum(copies[flow] for _, flow, _ in self.log)

    @property
    def unplaced(self) -> int:
        known = {f for f, _ in self.placed} | {f for _, f in self.alone}
        return sum(flow not in known for _, flow, _ in self.log)

    def named(self, number: int) -> Case:
        """The same with names and numbers of its own, to stand beside others in one frame."""
        step = 10 * number
        return Case(
            {(f"{number}{f}", s + step) for f, s in self.placed},
            {s + step: g + step for s, g in self.group_of.items()},
            {(f"{number}{r}", s + step) for r, s in self.subscribed},
            {(f"{number}{r}", f"{number}{f}") for r, f in self.alone},
            {(f"{number}{r}", f"{number}{f}") for r, f in self.wanted},
            [(second, f"{number}{f}", size) for second, f, size in self.log],
        )


def together(cases: list[Case]) -> Case:
    whole = Case(set(), {}, set(), set(), set(), [])
    for case in (case.named(number) for number, case in enumerate(cases)):
        whole.placed |= case.placed
        whole.group_of |= case.group_of
        whole.subscribed |= case.subscribed
        whole.alone |= case.alone
        whole.wanted |= case.wanted
        whole.log += case.log
    return whole


def drawn(chance: Random) -> Case:
    receivers, flows, sessions = ("a", "b", "c"), ("w", "x", "y", "z"), (0, 1, 2)

    def some(left: Sequence[T], right: Sequence[S]) -> set[tuple[T, S]]:
        pairs = list(product(left, right))
        return set(chance.sample(pairs, chance.randint(0, len(pairs) * 2 // 3)))

    size = chance.choice((None, 7))
    return Case(
        some(flows, sessions),
        {session: chance.randint(0, 2) for session in sessions},
        some(receivers, sessions),
        some(receivers, flows) if chance.random() < 0.4 else set(),
        some(receivers, flows),
        [
            (chance.randrange(180), chance.choice(flows), chance.choice((size, 0, 3)))
            for _ in range(chance.randint(0, 12))
        ],
    )


def tables(spark: SparkSession, case: Case) -> PlanTables:
    subscriptions = [(r, s, case.group_of[s]) for r, s in case.subscribed]
    return PlanTables(
        frame(spark, case.placed, PLACEMENTS),
        frame(spark, case.group_of.items(), SESSIONS),
        frame(spark, subscriptions, PLAN_SUBSCRIPTIONS),
        frame(spark, case.alone, UNICAST),
    )


def publications(spark: SparkSession, log: list[tuple[int, str, int | None]]) -> DataFrame:
    rows = [(START + timedelta(seconds=second), flow, size) for second, flow, size in log]
    return frame(spark, rows, PUBLICATIONS)


def frame(spark: SparkSession, rows: Iterable[Sequence[object]], schema: StructType) -> DataFrame:
    kinds = to_arrow_schema(schema, timezone="UTC")
    columns = zip(*rows, strict=True)
    values = [
        pa.array(list(column), kind.type) for column, kind in zip(columns, kinds, strict=False)
    ]
    table = pa.table(values, schema=kinds) if values else kinds.empty_table()
    return spark.createDataFrame(table, schema)


def rows(frame: DataFrame, *key: str) -> dict[object, dict[str, int]]:
    """By key; what is null or 0 is left out, and so are rows in which all is."""
    found = {}
    for row in frame.toArrow().to_pylist():
        at = tuple(_minute(row.pop(name)) for name in key)
        kept = {name: value for name, value in row.items() if value}
        if kept:
            found[at if len(at) > 1 else at[0]] = kept
    return found


def _minute(value: object) -> object:
    return int((value - START).total_seconds() // 60) if isinstance(value, datetime) else value


def over(seen: dict[tuple[str, int], Counter[str]], which: int) -> dict[object, dict[str, int]]:
    sums: dict[object, Counter[str]] = defaultdict(Counter)
    for key, counts in seen.items():
        sums[key[which]].update(counts)
    found = {key: {n: v for n, v in counts.items() if v} for key, counts in sums.items()}
    return {key: counts for key, counts in found.items() if counts}


def test_every_receiver_and_every_minute_is_as_counted_message_by_message(
    spark: SparkSession,
) -> None:
    chance = Random(4)
    case = together([drawn(chance) for _ in range(60)])
    log = activity(publications(spark, case.log)).persist()
    plan, interest = tables(spark, case), frame(spark, case.wanted, INTEREST)
    told = replay(log, plan, interest, DataFrame.persist)
    seen = case.delivered()
    columns = [*SHARES, *(f"{name}_bytes" for name in SHARES)]
    assert rows(told.receivers.select("receiver", *columns), "receiver") == over(seen, 0)
    assert rows(told.minutes.select("minute", *columns), "minute") == over(seen, 1)
    totals = told.totals()
    counted = (totals["messages"], totals["sent"], totals["unplaced"])
    assert counted == (len(case.log), case.sent, case.unplaced)
    assert (totals["messages_bytes"] or 0) == sum(size or 0 for *_, size in case.log)
    spark.catalog.clearCache()


def test_names_that_only_the_plan_or_only_the_log_knows_are_told(spark: SparkSession) -> None:
    case = Case(
        placed={("x", 0), ("y", 1)},
        group_of={0: 0, 1: 0},
        subscribed={("a", 0), ("old", 1)},
        alone=set(),
        wanted={("a", "x"), ("a", "late"), ("new", "x")},
        log=[(0, "x", 5), (61, "x", 5), (61, "late", 7), (61, "late", 7), (62, "noise", None)],
    )
    log = activity(publications(spark, case.log))
    told = replay(log, tables(spark, case), frame(spark, case.wanted, INTEREST))
    receivers = {row["receiver"]: row for row in told.receivers.toArrow().to_pylist()}
    known = {name: (row["planned"], row["interested"]) for name, row in receivers.items()}
    assert known == {"a": (True, True), "old": (True, False), "new": (False, True)}
    assert receivers["old"]["dropped_by_session"] == 2
    assert receivers["new"]["unserved"] == 2
    assert (receivers["a"]["unserved"], receivers["a"]["unserved_bytes"]) == (2, 14)
    flows = {row["flow"]: row for row in told.flows.toArrow().to_pylist()}
    assert {name for name, row in flows.items() if row["unserved_by"]} == {"late", "x"}
    assert {name for name, row in flows.items() if not row["placed"]} == {"late", "noise"}
    assert {name for name, row in flows.items() if not row["published"]} == {"y"}
    assert {name: row["wanted_by"] for name, row in flows.items()} == {
        "x": 2,
        "y": 0,
        "late": 1,
        "noise": 0,
    }
    totals = told.totals()
    assert (totals["unplaced"], totals["unserved"], totals["messages"]) == (3, 4, 5)


def test_nothing_published_is_a_replay_of_zeros_without_bytes(spark: SparkSession) -> None:
    case = Case({("x", 0)}, {0: 0}, {("a", 0)}, set(), {("a", "x")})
    told = replay(
        activity(publications(spark, [])),
        tables(spark, case),
        frame(spark, case.wanted, INTEREST),
    )
    totals = told.totals()
    assert {totals[name] for name in ("received", "wanted", "sent", "messages")} == {0}
    assert totals["received_bytes"] is None
    assert told.receivers.toArrow().to_pylist()[0]["received"] == 0


# --- agreement with `evaluate` -------------------------------------------------------------------


def demand_of(number: int, chance: Random) -> Demand:
    """What some receivers want, at whole rates; the number is part of every name."""
    receivers, flows = chance.randint(2, 6), chance.randint(3, 8)
    pairs = [
        (f"{number}-r{j}", f"{number}-f{k}")
        for j, k in product(range(receivers), range(flows))
        if chance.random() < 0.4 or k == j
    ]
    interest = Interest.from_pairs(pairs)
    return Demand(interest, np.array([float(chance.randint(1, 9)) for _ in interest.flows]))


REQUESTS = (
    Request(2, 3, budget_s=0.01),
    Request(2, algorithm="user-merge"),
    Request(2, 3, budget_s=0.01, max_sent=1.6),
    Request(2, 3, budget_s=0.01, unicast=UnicastLimits(max_receivers=2)),
)


def log_of(demands: list[Demand]) -> list[tuple[int, str, int | None]]:
    """As many messages of each flow as its rate says: the log is worth one second."""
    flows = [
        flow
        for demand in demands
        for flow, rate in zip(demand.interest.flows, demand.rate, strict=True)
        for _ in range(int(rate))
    ]
    return [(7 * index % 150, flow, 3) for index, flow in enumerate(flows)]


def pairs_of(demands: list[Demand]) -> list[tuple[str, str]]:
    return [
        (interest.receivers[receiver], interest.flows[flow])
        for interest in (demand.interest for demand in demands)
        for receiver, flow in zip(interest.flow_receivers, interest.pair_flows(), strict=True)
    ]


def side_by_side(plans: list[Plan]) -> Plan:
    """Plans of different names, with sessions and groups of their own, as one."""

    def join(column: str, *, by: str) -> IndexArray:
        """A column of all plans, whose numbers go on from those of the plans before."""
        counts = [0, *(count(plan, by) for plan in plans)]
        starts = np.cumsum(counts)[:-1]
        parts = (getattr(plan, column) + at for plan, at in zip(plans, starts, strict=True))
        return np.concatenate(list(parts)).astype(np.int32)

    def count(plan: Plan, of: str) -> int:
        sizes = {"session": plan.n_sessions, "group": plan.n_groups}
        return sizes.get(of) or len(getattr(plan, f"{of}s"))

    return Plan(
        receivers=tuple(name for plan in plans for name in plan.receivers),
        flows=tuple(name for plan in plans for name in plan.flows),
        placement_flow=join("placement_flow", by="flow"),
        placement_session=join("placement_session", by="session"),
        session_group=join("session_group", by="group"),
        subscription_receiver=join("subscription_receiver", by="receiver"),
        subscription_session=join("subscription_session", by="session"),
        unicast_receiver=join("unicast_receiver", by="receiver"),
        unicast_flow=join("unicast_flow", by="flow"),
    )


def test_totals_are_those_of_evaluate_at_the_rates_of_the_log(spark: SparkSession) -> None:
    chance = Random(11)
    demands = [demand_of(number, chance) for number in range(12)]
    plans = [
        distributary.plan(demand, REQUESTS[number % 4]).plan
        for number, demand in enumerate(demands)
    ]
    assert sum(plan.duplicated_flows > 0 for plan in plans) > 2
    assert sum(plan.unicast_flows > 0 for plan in plans) > 1
    told = replay(
        activity(publications(spark, log_of(demands))),
        plan_tables(spark, side_by_side(plans)),
        frame(spark, pairs_of(demands), INTEREST),
    )
    priced = [evaluate(plan, demand) for plan, demand in zip(plans, demands, strict=True)]
    assert all(one.valid for one in priced)
    rows = {row["receiver"]: row for row in told.receivers.toArrow().to_pylist()}
    for plan, loads in zip(plans, (one.loads for one in priced), strict=True):
        told_here = [rows[name] for name in plan.receivers]
        assert [row["received"] for row in told_here] == loads.received.tolist()
        assert [row["wanted"] for row in told_here] == loads.wanted.tolist()
        first, second = loads.received - loads.accepted, loads.accepted - loads.wanted
        assert [row["dropped_by_session"] for row in told_here] == first.tolist()
        assert [row["dropped_by_flow"] for row in told_here] == second.tolist()
    totals = {name: value or 0 for name, value in told.totals().items()}
    assert totals["sent"] == sum(one.channel.sent for one in priced)
    assert totals["received"] == sum(one.channel.received for one in priced)
    assert totals["received"] == sum(one.filtering.session_cost for one in priced)
    accepted = totals["received"] - totals["dropped_by_session"]
    assert accepted == sum(one.filtering.flow_cost for one in priced)
    assert 2 * totals["wanted"] == sum(one.filtering.wanted_work for one in priced)
    assert totals["received_bytes"] == 3 * totals["received"]
    assert (totals["unserved"], totals["unplaced"]) == (0, 0)


def test_flooding_and_unicast_are_plans_like_any_other(spark: SparkSession) -> None:
    interest = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")])
    demand = Demand(interest, np.array([5.0, 3.0, 2.0]))
    log = activity(publications(spark, log_of([demand])))
    wants = frame(spark, pairs_of([demand]), INTEREST)
    flooded = replay(log, flooding(wants), wants).totals()
    assert (flooded["received"], flooded["sent"], flooded["dropped_by_session"]) == (30, 10, 0)
    assert (flooded["wanted"], flooded["dropped_by_flow"]) == (15, 15)
    apart = replay(log, unicast(wants), wants)
    one_each = apart.totals()
    assert (one_each["received"], one_each["wanted"], one_each["sent"]) == (15, 15, 15)
    assert (one_each["dropped_by_session"], one_each["dropped_by_flow"]) == (0, 0)
    priced = evaluate(distributary.plan(demand, Request(1, algorithm="flow-merge")).plan, demand)
    assert priced.filtering.flooding_excess == 2 * (flooded["dropped_by_flow"] or 0)
    receivers = wants.select("receiver").distinct().count()
    by_sum = references(apart, receivers)
    assert by_sum == {"flooding": flooded, "unicast": one_each}
