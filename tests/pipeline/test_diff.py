from __future__ import annotations

from random import Random

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from distributary.model import Plan, Previous
from distributary.pipeline.diff import KINDS, plan_diff
from distributary.pipeline.plans import plan_tables
from distributary.planning.moves import moves_between
from tests.pipeline.test_replay import Case, drawn, tables, together

Rows = set[tuple[object, ...]]


def rows(frame: DataFrame, *columns: str) -> Rows:
    listed = frame.select(*columns).toArrow().to_pylist()
    found = {tuple(row.values()) for row in listed}
    assert len(found) == len(listed)
    return found


def placed(case: Case) -> Rows:
    return {(flow, session, case.group_of[session]) for flow, session in case.placed}


def subscribed(case: Case) -> Rows:
    return {(receiver, session, case.group_of[session]) for receiver, session in case.subscribed}


def joined(case: Case) -> Rows:
    return {(receiver, case.group_of[session]) for receiver, session in case.subscribed}


def applied(before: Rows, changes: Rows, new: str, gone: str) -> Rows:
    """What is done must be possible: nothing is left that was not joined, nor joined twice."""
    coming = {row[:-1] for row in changes if row[-1] == new}
    going = {row[:-1] for row in changes if row[-1] == gone}
    assert going <= before
    assert not coming & before
    assert len(coming) + len(going) == len(changes)
    return (before - going) | coming


def test_applying_the_diff_to_a_plan_gives_the_other(spark: SparkSession) -> None:
    chance = Random(5)
    before = together([drawn(chance) for _ in range(40)])
    after = together([drawn(chance) for _ in range(40)])
    diff = plan_diff(tables(spark, before), tables(spark, after))
    subscriptions = rows(diff.subscriptions, *diff.subscriptions.columns)
    assert applied(subscribed(before), subscriptions, "subscribe", "unsubscribe") == subscribed(
        after
    )
    memberships = rows(diff.memberships, *diff.memberships.columns)
    assert applied(joined(before), memberships, "join", "leave") == joined(after)
    alone = rows(diff.unicast, *diff.unicast.columns)
    assert applied(set(before.alone), alone, "start", "stop") == after.alone
    moves = rows(diff.moves, *diff.moves.columns)
    left = {(f, s, g) for f, s, g, _, _, _ in moves if s is not None}
    came = {(f, s, g) for f, _, _, s, g, _ in moves if s is not None}
    changes = {(*row, "left") for row in left} | {(*row, "came") for row in came}
    assert applied(placed(before), changes, "came", "left") == placed(after)
    for changes, table in ((moves, "moves"), (memberships, "memberships"), (alone, "unicast")):
        assert {row[-1] for row in changes} <= set(KINDS[table])


def test_each_kind_of_move_has_its_name(spark: SparkSession) -> None:
    before = Case(
        {("stays", 0), ("moves", 0), ("gone", 0), ("doubled", 0), ("halved", 0), ("halved", 1)},
        {0: 0, 1: 0, 2: 1},
        set(),
        {("a", "alone")},
        set(),
    )
    after = Case(
        {("stays", 0), ("moves", 2), ("new", 1), ("doubled", 0), ("doubled", 1), ("halved", 1)}
        | {("alone", 2)},
        {0: 0, 1: 0, 2: 1},
        set(),
        set(),
        set(),
    )
    diff = plan_diff(tables(spark, before), tables(spark, after))
    assert rows(diff.moves, *diff.moves.columns) == {
        ("moves", 0, 0, 2, 1, "moved"),
        ("new", None, None, 1, 0, "new"),
        ("gone", 0, 0, None, None, "gone"),
        ("doubled", None, None, 1, 0, "added"),
        ("halved", 0, 0, None, None, "removed"),
        ("alone", None, None, 2, 1, "added"),
    }


def test_moves_are_those_of_the_planner_where_every_flow_has_one_session(
    spark: SparkSession,
) -> None:
    chance = Random(9)
    flows = [f"f{k:02}" for k in range(40)]
    old = {flow: chance.randrange(4) for flow in flows[:32]}
    new = {flow: chance.randrange(4) for flow in flows[8:]}
    groups = ([0, 0, 1, 1], [0, 1, 1, 1])
    plans = [one_session_each(*plan) for plan in zip((old, new), groups, strict=True)]
    diff = plan_diff(*(plan_tables(spark, plan) for plan in plans))
    previous = Previous(old, np.array(groups[0], np.int32))
    expected = {
        (move.flow, *(move.before or (None, None)), *move.after)
        for move in moves_between(previous, plans[1])
    }
    found = diff.moves.where("change <> 'gone'")
    assert rows(found, *found.columns[:-1]) == expected
    assert rows(diff.moves.where("change = 'gone'"), "flow") == {(flow,) for flow in flows[:8]}


def one_session_each(session: dict[str, int], groups: list[int]) -> Plan:
    return Plan(
        ("r",),
        tuple(session),
        np.arange(len(session), dtype=np.int32),
        np.array(list(session.values()), np.int32),
        np.array(groups, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    )
