from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.cost import evaluate, plan_loads
from distributary.errors import DistributaryError, InfeasibleError, InputError
from distributary.files import read_demand, read_flow_filters, read_plan
from distributary.model import (
    AttributeKind,
    Constraints,
    Demand,
    Limits,
    broken_constraints,
    plan_problems,
)
from distributary.pipeline import distributed
from distributary.pipeline.ingest import BadRowsError, TimeWindow
from distributary.pipeline.job import Job, Outcome, driver_need
from distributary.pipeline.run import MANIFEST, run
from distributary.planning import Request, UnicastLimits
from distributary.workloads import (
    DayParams,
    TradingFloor,
    publication_log,
    spoil_rows,
    subscription_log,
    trading_floor,
)
from tests.spark import SETTINGS

REQUEST = Request(groups=4, sessions=8, seed=1, budget_s=0.05)
BEGIN = datetime(2025, 3, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trading floor's day, with some rows that cannot be used."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(1)
    floor = TradingFloor(symbols=200, markets=4, receivers=20, share_of_market=0.1)
    interest, rates = trading_floor(floor, rng)
    day = DayParams(seconds=1800, messages=3_000, churn=0.5)
    subscriptions = subscription_log(interest, day, rng)
    subscriptions = pa.concat_tables([subscriptions, subscriptions.slice(0, 5)])  # told twice
    pq.write_table(spoil_rows(subscriptions, 0.05, rng), folder / "subscriptions.parquet")
    pq.write_table(
        spoil_rows(publication_log(rates, day, rng), 0.02, rng), folder / "publications.parquet"
    )
    return folder


def job(logs: Path, out: Path, **more: object) -> Job:
    given = {
        "subscriptions": str(logs / "subscriptions.parquet"),
        "publications": str(logs / "publications.parquet"),
        "request": REQUEST,
        **more,
    }
    return Job(out=out, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(
    spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("run") / "out"
    return out, run(spark, job(logs, out))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def count_messages(logs: Path) -> Counter[str]:
    rows = pq.read_table(logs / "publications.parquet").to_pylist()
    return Counter(row["flow"] for row in rows if row["ts"] and row["flow"] and row["size"] >= 0)


def test_every_row_that_came_in_is_somewhere(done: tuple[Path, Outcome], logs: Path) -> None:
    out, outcome = done
    for name in ("subscriptions", "publications"):
        told = outcome.manifest[name]
        assert told["read"] == pq.read_metadata(logs / f"{name}.parquet").num_rows
        assert told["read"] == told["used"] + told["duplicates"] + told["quarantined"]
        aside = pq.read_table(out / "quarantine", filters=[("log", "=", name)])
        assert len(aside) == told["quarantined"] > 0
        assert sum(told["reasons"].values()) == told["quarantined"]
    assert outcome.manifest["subscriptions"]["duplicates"] > 0


def test_interest_and_rates_are_those_of_the_logs(done: tuple[Path, Outcome], logs: Path) -> None:
    out, outcome = done
    last: dict[tuple[str, str], tuple[object, int, str]] = {}
    rows = pq.read_table(logs / "subscriptions.parquet").to_pylist()
    for at, row in enumerate(rows):
        usable = row["ts"] and row["flow"] and row["action"] in ("subscribe", "unsubscribe")
        if usable:
            key = (row["receiver"], row["flow"])
            last[key] = max(last.get(key, (row["ts"], -1, "")), (row["ts"], at, row["action"]))
    wanted = {key for key, (_, _, action) in last.items() if action == "subscribe"}
    found = pq.read_table(out / "interest").to_pylist()
    assert {(row["receiver"], row["flow"]) for row in found} == wanted
    messages = count_messages(logs)
    seconds = outcome.manifest["window"]["seconds"]
    rates = {row["flow"]: row["rate"] for row in pq.read_table(out / "rates").to_pylist()}
    assert rates == pytest.approx({flow: max(messages[flow], 1) / seconds for _, flow in wanted})
    silent = {flow for _, flow in wanted} - messages.keys()
    assert outcome.manifest["rates"]["silent"] == len(silent)


def test_the_replay_agrees_with_the_evaluation_of_the_plan(
    done: tuple[Path, Outcome], logs: Path
) -> None:
    """At the log's own rates; flows that are silent are given next to nothing."""
    out, outcome = done
    stated = read_demand(out / "interest", out / "rates").demand
    messages = count_messages(logs)
    heard = np.array([flow in messages for flow in stated.interest.flows])
    assert not heard.all()
    demand = Demand(stated.interest, np.where(heard, stated.rate, 1e-12))
    stored = read_plan(out / "plan", demand.interest)
    assert plan_problems(stored.plan, demand.interest) == ()
    loads = evaluate(stored.plan, demand).loads
    seconds = outcome.manifest["window"]["seconds"]
    totals = outcome.manifest["replay"]["plan"]
    assert totals["received"] == pytest.approx(loads.received.sum() * seconds, abs=1e-3)
    accepted = totals["wanted"] + totals["dropped_by_flow"]
    assert accepted == pytest.approx(loads.accepted.sum() * seconds, abs=1e-3)
    assert totals["wanted"] == pytest.approx(loads.wanted.sum() * seconds, abs=1e-3)
    assert totals["wanted"] == outcome.manifest["replay"]["flooding"]["wanted"]
    assert totals["received"] <= outcome.manifest["replay"]["flooding"]["received"]
    assert outcome.manifest["replay"]["unicast"]["received"] == totals["wanted"]


def test_a_repeated_run_writes_the_same_bytes(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        run(spark, job(logs, tmp_path / "out"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", SETTINGS["spark.sql.shuffle.partitions"])
    ours, theirs = contents(tmp_path / "out"), contents(done[0])
    assert {name for name in ours if ours[name] != theirs.get(name)} <= {MANIFEST}
    assert ours.keys() == theirs.keys()
    facts = [json.loads(files[MANIFEST]) for files in (ours, theirs)]
    taken = [facts[at].pop("stages") for at in (0, 1)]
    assert facts[0] == facts[1]
    assert [step["step"] for step in taken[0]["steps"]] == [
        step["step"] for step in taken[1]["steps"]
    ]


def test_the_manifest_says_how_long_each_step_took_and_what_it_read(
    done: tuple[Path, Outcome],
) -> None:
    manifest = json.loads((done[0] / MANIFEST).read_text())
    taken = manifest["stages"]
    rows = {step["step"]: step["rows"] for step in taken["steps"]}
    for log in ("subscriptions", "publications"):
        assert rows[f"reading the {log}"] == manifest[log]["read"]
    assert rows["planning"] is None
    assert sum(step["share"] for step in taken["steps"]) == pytest.approx(1, abs=0.01)
    seconds = sum(step["seconds"] for step in taken["steps"])
    assert seconds == pytest.approx(taken["seconds"], abs=0.1)
    assert manifest == done[1].manifest


def test_a_second_run_compares_itself_with_the_first(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    first, outcome = done
    out = shutil.copytree(first, tmp_path / "out")
    assert outcome.manifest["diff"] is None
    moved = run(spark, job(logs, out, request=REQUEST.replace(seed=9, sessions=5))).manifest
    assert moved["diff"]["moved"] > 0
    assert moved["replay"]["previous"]["wanted"] == moved["replay"]["plan"]["wanted"]
    assert len(pq.read_table(out / "diff" / "moves.parquet")) == sum(
        moved["diff"][kind] for kind in ("moved", "new", "gone", "added", "removed")
    )


@pytest.mark.slow
def test_limited_moves_start_from_the_plan_there_and_repeating_changes_nothing(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no plan here yet"):
        run(spark, job(logs, out, max_moves=3))
    run(spark, job(logs, out, request=REQUEST.replace(algorithm="hash")))
    first = run(spark, job(logs, out, max_moves=3)).manifest
    assert first["diff"]["moved"] <= 3
    before = contents(out / "plan")
    second = run(spark, job(logs, out, max_moves=3)).manifest
    assert second["diff"]["moved"] == 0
    assert contents(out / "plan") == before


def test_too_many_bad_rows_fail_the_run_and_leave_the_old_output(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    out = shutil.copytree(done[0], tmp_path / "out")
    before = contents(out)
    with pytest.raises(BadRowsError, match="cannot be used, more than 1"):
        run(spark, job(logs, out, max_bad=0.01))
    assert contents(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("module", "stage"),
    [
        ("inputs", "_account_rows"),
        *(
            pytest.param(*stage, marks=pytest.mark.slow)
            for stage in (
                ("inputs", "_write_rates"),
                ("run", "_plan_on_driver"),
                ("run", "_replay_log"),
                ("run", "write_group_table"),
                ("run", "tidy"),
            )
        ),
    ],
)
def test_a_run_that_ends_between_stages_leaves_the_old_output_whole(
    spark: SparkSession,
    logs: Path,
    done: tuple[Path, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    stage: str,
) -> None:
    def die(*args: object) -> None:
        raise KeyboardInterrupt

    out, _ = done
    before = contents(out)
    monkeypatch.setattr(sys.modules[f"distributary.pipeline.{module}"], stage, die)
    with pytest.raises(KeyboardInterrupt):
        run(spark, job(logs, out))
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.slow
def test_csv_and_json_lines_give_the_same_plan_as_parquet(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    for name in ("subscriptions", "publications"):
        rows = pq.read_table(logs / f"{name}.parquet")
        (tmp_path / name).mkdir()
        half = len(rows) // 2
        for part, some in enumerate((rows.slice(0, half), rows.slice(half))):
            pa.csv.write_csv(some, tmp_path / name / f"part-{part}.csv")
    out = tmp_path / "out"
    given = {name: str(tmp_path / name) for name in ("subscriptions", "publications")}
    outcome = run(spark, job(logs, out, **given))
    assert contents(out / "plan") == contents(done[0] / "plan")
    assert outcome.manifest["subscriptions"]["used"] == done[1].manifest["subscriptions"]["used"]


def test_a_window_puts_aside_what_is_outside(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    until = BEGIN + timedelta(minutes=20)
    window = TimeWindow(since=BEGIN + timedelta(minutes=10), until=until)
    told = run(spark, job(logs, tmp_path / "out", window=window, floor=0.25)).manifest
    assert told["window"]["seconds"] == 600
    assert told["rates"]["floor"] == 0.25
    rates = pq.read_table(tmp_path / "out" / "rates")["rate"].to_pylist()
    assert rates.count(0.25) >= told["rates"]["silent"] > 0
    assert any("window" in reason for reason in told["publications"]["reasons"])
    minutes = pq.read_table(tmp_path / "out" / "replay" / "minutes.parquet")["minute"].to_pylist()
    assert min(minutes) >= BEGIN + timedelta(minutes=10)
    assert max(minutes) < until


def test_content_subscriptions_become_flows(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    events = pa.table(
        {
            "ts": pa.array([BEGIN + timedelta(seconds=i) for i in range(300)]),
            "flow": pa.array(["trades"] * 300),
            "symbol": pa.array(rng.choice(["IBM", "SAP", "ABB"], 300)),
            "price": pa.array(rng.integers(50, 150, 300)),
            "payload": pa.array(["text"] * 300),
        }
    )
    pq.write_table(events, tmp_path / "events.parquet")
    filters = {
        "receiver": ["ann", "bob", "cy", "dee", "eve"],
        "filter": [
            "symbol = 'IBM'",
            "price > 100",
            "symbol = 'IBM' AND price > 100",
            "sqrt(price) > 2",
            "symbol = 'NEW'",
        ],
    }
    pq.write_table(pa.table(filters), tmp_path / "filters.parquet")
    out = tmp_path / "out"
    told = run(
        spark,
        Job(
            out=out,
            publications=str(tmp_path / "events.parquet"),
            filters=str(tmp_path / "filters.parquet"),
            request=Request(groups=2, budget_s=0.05),
        ),
    ).manifest
    rows = events.to_pylist()
    matches = {
        "ann": sum(row["symbol"] == "IBM" for row in rows),
        "bob": sum(row["price"] > 100 for row in rows),
        "cy": sum(row["symbol"] == "IBM" and row["price"] > 100 for row in rows),
    }
    got = pq.read_table(out / "replay" / "receivers.parquet").to_pylist()
    assert {row["receiver"]: row["wanted"] for row in got if row["wanted"]} == matches
    assert told["filters"]["quarantined"] == 1
    assert told["filters"]["read"] == 5
    content = read_flow_filters(out / "content")
    plan = read_plan(out / "plan", content.interest()).plan
    assert not plan_problems(plan, content.interest())
    assert "eve" in plan.receivers  # though no event of the log matches her filter
    sets = {frozenset(content.texts[at] for at in found) for found in content.flows.values()}
    assert frozenset(["symbol = 'NEW'"]) in sets
    assert frozenset(filters["filter"][:3]) in sets
    kinds = {each.name: each.kind for each in content.schema.attributes}
    assert kinds["price"] is AttributeKind.INTEGER
    assert "payload" not in kinds


def test_interest_beyond_the_limit_of_the_driver_is_planned_on_executors(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "MOST_ROUNDS", 2)
    out = tmp_path / "out"
    told = run(spark, job(logs, out, driver_limit=1_000)).manifest
    assert told["plan"]["where"] == "executors"
    demand = read_demand(out / "interest", out / "rates").demand
    stored = read_plan(out / "plan", demand.interest)
    evaluation = evaluate(stored.plan, demand)
    assert evaluation.valid
    assert told["plan"]["filtering"]["excess"] == pytest.approx(evaluation.filtering.excess)
    assert told["plan"]["channel"]["cost"] == pytest.approx(evaluation.channel.cost)
    assert told["plan"]["channel"]["lower_bound"] == pytest.approx(evaluation.channel.lower_bound)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    before = contents(out)
    limited = REQUEST.replace(constraints=Constraints(Limits(group_rate=1e9)))
    with pytest.raises(
        DistributaryError, match=r"too large for the driver.* --restarts or limits, pins and sets"
    ):
        run(spark, job(logs, out, driver_limit=1_000, restarts=2, request=limited))
    assert contents(out) == before  # though it ended in mid-work
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_plan_from_logs_keeps_all_its_terms_or_is_refused_in_one_line(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = read_demand(done[0] / "interest", done[0] / "rates", count="bytes").demand
    most = float(plan_loads(done[1].plan, before).group_rate.max())
    within = Constraints(Limits(group_rate=0.95 * most, group_members=20))
    terms = REQUEST.replace(
        constraints=within,
        unicast=UnicastLimits(1, max_links=30),
        max_sent=1.2,
        receiver_weights={done[1].plan.receivers[0]: 5.0},
    )
    shutil.copytree(done[0], out)
    told = run(spark, job(logs, out, request=terms, max_moves=40, count="bytes")).manifest
    assert told["replay"]["plan"]["unserved"] == 0
    assert told["plan"]["count"] == "bytes"
    demand = read_demand(out / "interest", out / "rates", count="bytes").demand
    kept = read_plan(out / "plan", demand.interest).plan
    assert broken_constraints(kept, demand, within) == ()
    assert len(kept.unicast_flow) <= 30
    loads = plan_loads(kept, demand)
    assert loads.session_rate.sum() + loads.unicast_rate <= 1.2001 * demand.rate.sum()
    diff = pq.read_table(out / "diff" / "moves.parquet")
    assert len(set(diff["flow"].to_pylist())) <= 40
    written = contents(out)
    nothing = REQUEST.replace(constraints=Constraints(Limits(group_rate=1e-6)))
    with pytest.raises(InfeasibleError, match=r"infeasible: .*1e-06"):
        run(spark, job(logs, out, request=nothing))
    assert contents(out) == written


def test_the_need_of_the_driver_grows_with_pairs_and_with_seats() -> None:
    assert driver_need(10**7, 5_000, 2_000, 200) > 10**9
    assert driver_need(10, 10**6, 2_000, 200) > 10**10


@pytest.mark.slow
def test_of_several_restarts_the_cheapest_is_kept(
    spark: SparkSession, logs: Path, done: tuple[Path, Outcome], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    request = REQUEST.replace(algorithm="groups-first")
    one = [
        run(spark, job(logs, out, request=request.replace(seed=seed))).manifest["plan"]
        for seed in (1, 2, 3)
    ]
    best = run(spark, job(logs, out, request=request, restarts=3)).manifest["plan"]
    assert best["filtering"]["work"] == min(each["filtering"]["work"] for each in one)
    assert json.loads((out / "plan" / "plan.json").read_text())["seed"] == best["seed"]


def test_silence_and_missing_logs_are_told_plainly(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="nowhere"):
        run(spark, job(logs, tmp_path / "out", publications=str(tmp_path / "nowhere.parquet")))
    late = TimeWindow(since=BEGIN + timedelta(days=3))
    with pytest.raises(InputError, match="no message can be used"):
        run(spark, job(logs, tmp_path / "out", window=late))
    assert list(tmp_path.iterdir()) == []
