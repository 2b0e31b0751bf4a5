"""A stream that goes on from a plan which somebody else decides on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.cli.stream import _batch_line
from distributary.files import fingerprint, read_plan, write_plan
from distributary.model import Constraints, Interest, Limits, Plan, plan_problems
from distributary.pipeline import base as base_module
from distributary.pipeline.base import BaseWatch
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.stream import StreamHooks, StreamJob, stream
from distributary.planning import Request, Size

from .stream_logs import START, Row, publication, subscription, write
from .stream_outcome import history, plan_bytes
from .stream_process import Checks, StoppedError, check_batches, small_job, start_stream

SIZE = Size(groups=2, sessions=4)
WANTED = {(f"r{r}", f"f{f}") for r in range(6) for f in range(8) if (r + f) % 3 == 0}
INTEREST = Interest.from_pairs(sorted(WANTED))


def make_plan(sessions: Mapping[str, int], groups: int = 2) -> Plan:
    """A plan of these flows by session, where session s is in group s modulo `groups`."""
    flows = tuple(sorted(sessions))
    session = np.array([sessions[flow] for flow in flows], np.int32)
    count = int(session.max()) + 1
    heard = sorted({(r, sessions[f]) for r, f in WANTED if f in sessions})
    receivers = tuple(sorted({receiver for receiver, _ in heard}))
    return Plan(
        receivers=receivers,
        flows=flows,
        session_group=np.arange(count, dtype=np.int32) % groups,
        placement_flow=np.arange(len(flows), dtype=np.int32),
        placement_session=session,
        subscription_receiver=np.array([receivers.index(r) for r, _ in heard], np.int32),
        subscription_session=np.array([s for _, s in heard], np.int32),
        unicast_receiver=np.empty(0, np.int32),
        unicast_flow=np.empty(0, np.int32),
    )


ONE = {f"f{f}": f % 4 for f in range(8)}
OTHER = {f"f{f}": f // 2 for f in range(8)}


def put(sessions: Mapping[str, int], folder: Path, said: str = "control") -> str:
    """Write a plan, and return its fingerprint."""
    plan = make_plan(sessions)
    write_plan(plan, {"algorithm": said}, folder)
    return fingerprint(plan)


# --- the folder ------------------------------------------------------------------------------


def test_a_plan_is_found_once_and_again_when_it_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    watch = BaseWatch(folder, SIZE)
    assert watch.is_missing
    assert watch.look(None) is None
    first = put(ONE, folder)
    assert not watch.is_missing
    found = watch.look(None)
    assert found is not None
    assert (found.fingerprint, found.plan) == (first, make_plan(ONE))
    assert watch.look(first) is None
    put(ONE, folder, "the same plan, with other words about it")
    assert watch.look(first) is None
    second = put(OTHER, folder)
    found = watch.look(first)
    assert found is not None
    assert found.fingerprint == second != first
    put(ONE, folder)
    assert watch.look(second) is not None
    shutil.rmtree(folder)
    assert watch.look(first) is None
    assert watch.fault is None


def test_a_damaged_plan_is_not_taken_until_it_is_mended(tmp_path: Path) -> None:
    """Its `plan.json` may be the first file of a copy, and so does not change when the rest is."""
    folder = tmp_path / "base"
    first, watch = put(ONE, folder), BaseWatch(folder, SIZE)
    assert watch.look(None) is not None
    second = put(OTHER, folder)
    whole = (folder / "placements.parquet").read_bytes()
    (folder / "placements.parquet").write_bytes(whole[:40])
    assert watch.look(first) is None
    assert watch.fault is not None
    assert "placements.parquet" in watch.fault
    assert "\n" not in watch.fault
    (folder / "placements.parquet").write_bytes(whole)
    found = watch.look(first)
    assert found is not None
    assert found.fingerprint == second
    assert watch.fault is None


def test_a_plan_that_is_too_large_is_not_taken(tmp_path: Path) -> None:
    put(ONE, tmp_path / "base")
    for size in (Size(2, 3), Size(1, 4)):
        watch = BaseWatch(tmp_path / "base", size)
        assert watch.look(None) is None
        assert watch.fault is not None
        assert "has 4 sessions in 2 groups, more than the " in watch.fault


def test_a_plan_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "base"
    put(ONE, folder)
    left = [OTHER]

    def read_slowly(where: Path) -> Any:
        found = read_plan(where)
        if left:
            put(left.pop(), folder)
        return found

    monkeypatch.setattr(base_module, "read_plan", read_slowly)
    found = BaseWatch(folder, SIZE).look(None)
    assert found is not None
    assert found.plan == make_plan(OTHER)


def test_a_plan_that_is_replaced_again_and_again_waits_for_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "base"
    put(ONE, folder)

    def replace_always(where: Path) -> Any:
        found = read_plan(where)
        put(OTHER, folder)
        return found

    watch = BaseWatch(folder, SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(base_module, "read_plan", replace_always)
        assert watch.look(None) is None
    assert watch.look(None) is not None


def test_a_plan_in_an_output_with_versions_is_that_of_its_pointer(tmp_path: Path) -> None:
    out = tmp_path / "out"
    version = "20260301T080002Z-5b1f0c9e"
    first = put(ONE, out / "versions" / version / "plan")
    files = len(list((out / "versions" / version / "plan").iterdir()))
    pointer = {"format": 1, "version": version, "files": files, "written": "2026-03-01T08:00:02Z"}
    (out / "CURRENT").write_text(json.dumps(pointer))
    watch = BaseWatch(out / "plan", SIZE)
    found = watch.look(None)
    assert found is not None
    assert found.fingerprint == first


# --- a stream --------------------------------------------------------------------------------


class Arriving:
    """Logs that arrive file by file, each followed by a stream that starts again."""

    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.base = folder / "base"
        self.job: StreamJob = small_job(folder, base=self.base, files_per_batch=10, **settings)
        self.notes: list[str] = []
        self._spark, self._folder, self._number = spark, folder, 0

    def arrive(self, subscribing: list[Row] | None = None, messages: int = 1) -> LedgerState:
        self.put_logs(subscribing, messages)
        return self.follow()

    def put_logs(self, subscribing: list[Row] | None = None, messages: int = 1) -> None:
        at = START + timedelta(minutes=self._number)
        if subscribing is None and not self._number:
            subscribing = self._first_rows()
        if subscribing:
            write(self._folder / "subscriptions" / f"{self._number}.csv", subscribing, at)
        publishing = [publication(at, f"f{f}") for f in range(8) for _ in range(messages)]
        write(self._folder / "publications" / f"{self._number}.parquet", publishing, at)
        self._number += 1

    def follow(self) -> LedgerState:
        return stream(self._spark, self.job, StreamHooks(note=self.notes.append))

    def check(self, checks: Checks, arriving: list[list[Row]]) -> None:
        """One stream, with these rows in a batch each, and a look at what each one leaves."""
        for more in arriving:
            self.put_logs([*self._first_rows(), *more])
        check_batches(self._spark, replace(self.job, files_per_batch=1), checks, self.notes)

    def _first_rows(self) -> list[Row]:
        return [subscription(START, *pair) for pair in sorted(WANTED)]

    @property
    def line(self) -> Row:
        return history(self.job)[-1]

    def placed(self) -> dict[str, int]:
        rows = pq.read_table(self.job.out / "plan" / "placements.parquet").to_pylist()
        return {row["flow"]: row["session"] for row in rows}


def test_a_stream_goes_on_from_a_base_that_appears_is_replaced_or_is_damaged(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = Arriving(spark, tmp_path, max_moves=0)

    def check() -> Checks:
        state = yield
        assert state.version == 1
        assert logs.notes == [f"{logs.base}: has no plan yet; it is taken when there is one"]
        assert "base" not in logs.line
        logs.notes.clear()

        first = put(OTHER, logs.base)
        state = yield
        assert (state.version, state.base, logs.line["base"]) == (2, first, first)
        assert logs.placed() == OTHER
        assert "from another base; version 2" in _batch_line(logs.line, 0.1)
        state = yield
        assert (state.version, state.base) == (2, first)
        assert "base" not in logs.line

        missing = put({flow: at for flow, at in ONE.items() if flow != "f5"}, logs.base)
        state = yield
        assert (state.version, logs.line["base"], logs.line["new"]) == (3, missing, 2)
        placed = logs.placed()
        assert {flow: at for flow, at in placed.items() if flow not in ("f5", "new")} == {
            flow: at for flow, at in ONE.items() if flow != "f5"
        }
        interest = Interest.from_pairs(sorted(WANTED | {("ann", "new")}))
        assert plan_problems(read_plan(logs.job.out / "plan", interest).plan, interest) == ()
        assert logs.notes == []

        put(OTHER, logs.base)
        (logs.base / "sessions.parquet").write_bytes(b"PAR1")
        state = yield
        assert (state.version, logs.placed()) == (3, placed)
        assert "sessions.parquet" in logs.line["base_fault"]
        assert [note.split(":")[0] for note in logs.notes] == ["the base stays as it was"]
        assert "base" not in logs.line
        put(OTHER, logs.base)
        state = yield
        assert (state.version, state.base) == (4, first)
        assert "base_fault" not in logs.line
        assert {flow: at for flow, at in logs.placed().items() if flow != "new"} == OTHER

    logs.check(check(), [[], [], [], [subscription(START, "ann", "new")], [], []])


def test_a_base_with_too_many_sessions_is_said_in_each_line_and_noted_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = Arriving(spark, tmp_path, request=Request(2, 3, budget_s=0.01, patience=math.inf))
    put(ONE, logs.base)
    logs.put_logs()
    logs.job = replace(logs.job, files_per_batch=1)
    logs.put_logs()
    state = logs.follow()
    assert state.base is None
    lines = history(logs.job)
    assert len(lines) == 2
    for line in lines:
        assert line["base_fault"].endswith("more than the 3 in 2 of this stream; allow as many")
    assert len(logs.notes) == 1


def test_the_first_plan_is_the_base_if_there_is_one(spark: SparkSession, tmp_path: Path) -> None:
    logs = Arriving(spark, tmp_path, max_moves=0)
    put(OTHER, logs.base)
    state = logs.arrive()
    assert (state.version, logs.placed()) == (1, OTHER)
    assert (logs.line["drift"], logs.line["new"]) == (None, 0)


def test_a_base_waits_until_somebody_wants_something(spark: SparkSession, tmp_path: Path) -> None:
    logs = Arriving(spark, tmp_path, max_moves=0)
    put(OTHER, logs.base)
    at = START - timedelta(minutes=1)
    state = logs.arrive([subscription(at, "ann", "f1", "unsubscribe")])
    assert (state.version, state.base, logs.line["excess"]) == (0, None, None)
    state = logs.arrive([subscription(START, *pair) for pair in sorted(WANTED)])
    assert (state.version, logs.placed()) == (1, OTHER)


def test_a_base_that_cannot_keep_the_terms_is_not_put_in_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    within = Constraints(Limits(group_members=4))
    request = Request(2, 4, constraints=within, budget_s=0.01, patience=math.inf)
    logs = Arriving(spark, tmp_path, request=request, max_moves=0)
    fitting = {f"f{f}": int(f % 3 == 1) for f in range(8)}  # four receivers want the others

    def check() -> Checks:
        yield
        placed = logs.placed()
        put(ONE, logs.base)
        for _ in range(2):
            state = yield
            assert (state.version, state.base, logs.placed()) == (1, None, placed)
            assert logs.line["refused"].startswith("infeasible: ")
            assert "base" not in logs.line
        base = put(fitting, logs.base)
        state = yield
        assert (state.base, logs.placed()) == (base, fitting)
        assert "refused" not in logs.line

    logs.check(check(), [[], [], [], []])


def show_outcome(job: StreamJob, state: LedgerState) -> Row:
    versions = sorted((job.out / "plans").iterdir())
    return {
        "base": state.base,
        "history": history(job),
        "plan": plan_bytes(job.out / "plan"),
        "plans": {path.name: plan_bytes(path) for path in versions},
    }


def follow_with_base(spark: SparkSession, folder: Path) -> Arriving:
    """A stream with a plan of its own, a base, and logs that it has not read."""
    request = Request(2, 4, seed=7, budget_s=0.05, patience=math.inf)
    logs = Arriving(spark, folder, request=request, drift=0.0)
    logs.arrive()
    put(OTHER, logs.base)
    logs.put_logs()
    logs.put_logs([subscription(START, "ann", "new")], messages=5)
    logs.job = replace(logs.job, files_per_batch=1)
    return logs


@pytest.mark.slow
def test_a_stream_stopped_while_it_takes_a_base_ends_as_one_that_was_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = follow_with_base(spark, tmp_path / "whole")
    whole = show_outcome(told.job, told.follow())
    assert sum("base" in line for line in whole["history"]) == 1
    logs = follow_with_base(spark, tmp_path / "stopped")
    for at in ("planned", "committed"):  # `test_ledger` stops at every step from the commit on

        def stop(name: str, at: str = at) -> None:
            if name == at:
                raise StoppedError(name)

        with pytest.raises(StoppedError):
            stream(spark, logs.job, StreamHooks(step=stop))
    assert show_outcome(logs.job, logs.follow()) == whole


@pytest.mark.slow
def test_a_stream_killed_while_it_takes_a_base_ends_as_one_that_was_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With SIGKILL. The process has the base of the folder, if there is one."""
    outcomes = []
    for name in ("whole", "killed"):
        logs = follow_with_base(spark, tmp_path / name)
        for at in ("planned", "committing", "committed", "version in place"):
            if name == "killed":
                process = start_stream(tmp_path / name, "out", at, 1)
                process.communicate()
                assert process.returncode == -9, at
        process = start_stream(tmp_path / name, "out")
        process.communicate()
        assert process.returncode == 0
        outcomes.append(show_outcome(logs.job, logs.follow()))
    assert outcomes[0] == outcomes[1]
