"""Clusters of topics proposed from logs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.cost.topics import clustering_cost
from distributary.errors import InputError
from distributary.model.topics import Clustering
from distributary.pipeline.topics import Clusters, TopicJob, propose
from distributary.planning.topics import Planner

START = datetime(2026, 1, 1, tzinfo=UTC)
# Two crowds of receivers, each with five topics of its own, and a topic that all want.
CROWDS = {f"r{at}": [f"t{5 * (at % 2) + one}" for one in range(5)] for at in range(40)}
WANTED = [(receiver, topic) for receiver, topics in CROWDS.items() for topic in (*topics, "all")]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    later = [START + timedelta(minutes=at) for at in range(len(WANTED))]
    pq.write_table(
        pa.table(
            {
                "ts": pa.array(later, pa.timestamp("us", "UTC")),
                "receiver": [receiver for receiver, _ in WANTED],
                "flow": [topic for _, topic in WANTED],
                "action": ["subscribe"] * len(WANTED),
            }
        ),
        folder / "subscriptions.parquet",
    )
    names = [f"t{at}" for at in range(10)] + ["all"]
    published = [(START + timedelta(hours=at), name) for at in range(24) for name in names]
    pq.write_table(
        pa.table(
            {
                "ts": pa.array([ts for ts, _ in published], pa.timestamp("us", "UTC")),
                "flow": [name for _, name in published],
            }
        ),
        folder / "publications.parquet",
    )
    return folder


def job(logs: Path, out: Path, budget: int = 10_000, clusters: Clusters | None = None) -> TopicJob:
    return TopicJob(
        out,
        str(logs / "subscriptions.parquet"),
        str(logs / "publications.parquet"),
        budget,
        clusters=clusters,
        planner=Planner(subscriber_groups=(1, 2), topic_groups=(2,)),
    )


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The folder and the document of proposals with a budget for all."""
    out = tmp_path_factory.mktemp("proposals") / "out"
    return out, propose(spark, job(logs, out))


def told(table: Path, column: str) -> list[tuple[int, str]]:
    return [(row["proposal"], row[column]) for row in pq.read_table(table).to_pylist()]


def test_crowds_with_like_interests_are_offered_clusters(made: tuple[Path, dict[str, Any]]) -> None:
    out, document = made
    cost = document["operating_cost"]
    assert cost["now"] == cost["without_clusters"] > cost["saving"] > 0
    written = json.loads((out / "proposals.json").read_text())
    assert document == {**written, "folder": str(out)}
    assert document["subscriptions"]["read"] == len(WANTED)
    topics = told(out / "proposals.parquet", "topic")
    invited = told(out / "invitations.parquet", "receiver")
    assert {number for number, _ in topics} == set(range(len(document["proposals"])))
    # Nobody of a crowd is invited to a cluster with nothing for them.
    for number, receiver in invited:
        assert {name for at, name in topics if at == number} & {*CROWDS[receiver], "all"}


def test_the_saving_is_what_the_cost_model_says_once_all_have_moved(
    made: tuple[Path, dict[str, Any]],
) -> None:
    """The oracle adds up the price of the whole clustering, before and after."""
    out, document = made
    receivers, names = sorted(CROWDS), sorted({topic for _, topic in WANTED})
    state = Clustering(len(receivers), len(names))
    for receiver, topic in WANTED:
        who, what = receivers.index(receiver), names.index(topic)
        state.follow(who, what)
        state.want(who, what)
    rates = {row["flow"]: row["rate"] for row in pq.read_table(out / "rates").to_pylist()}
    frequency = pa.array([3600 * rates[name] for name in names]).to_numpy()
    prices = Planner().prices
    before = clustering_cost(state, frequency, prices).cost
    topics = told(out / "proposals.parquet", "topic")
    invited = told(out / "invitations.parquet", "receiver")
    for number in range(len(document["proposals"])):
        carried = [names.index(name) for at, name in topics if at == number]
        cluster = state.form(carried)
        members = [receivers.index(name) for at, name in invited if at == number]
        state.join(members, cluster)
        for topic in carried:
            state.unfollow(members, topic)
    after = clustering_cost(state, frequency, prices).cost
    assert document["operating_cost"]["now"] == pytest.approx(before)
    assert after < before


def test_no_more_moves_than_the_budget(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    document = propose(spark, job(logs, tmp_path / "out", budget=30))
    assert document["budget"] == 30
    assert document["moves"] <= 30


def test_clusters_that_are_there_are_started_from(
    spark: SparkSession, logs: Path, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, _ = made
    for name, column in (("proposals", "topic"), ("invitations", "receiver")):
        table = pq.read_table(out / f"{name}.parquet")
        pq.write_table(table.rename_columns(["cluster", column]), tmp_path / f"{column}.parquet")
    clusters = Clusters(tmp_path / "topic.parquet", tmp_path / "receiver.parquet")
    again = propose(spark, job(logs, tmp_path / "out", clusters=clusters))
    assert again["clusters"] > 0
    assert again["operating_cost"]["now"] < again["operating_cost"]["without_clusters"]


def test_members_of_a_cluster_without_topics_are_refused(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"cluster": [1], "topic": ["t0"]}), tmp_path / "topic.parquet")
    pq.write_table(pa.table({"cluster": [2], "receiver": ["r0"]}), tmp_path / "receiver.parquet")
    clusters = Clusters(tmp_path / "topic.parquet", tmp_path / "receiver.parquet")
    missing = replace(job(logs, tmp_path / "out", clusters=clusters), publications="not/there.csv")
    with pytest.raises(InputError, match="cluster 2 has members and no topics"):
        propose(spark, missing)  # before any log is read
    assert not (tmp_path / "out").exists()
