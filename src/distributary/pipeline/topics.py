"""Proposals of topics that should share a channel, from the logs that plans are made from.

Spark makes interest and rates from the logs, as for a plan. The driver then proposes clusters, with
full knowledge of the interest, within a budget of subscriptions that would have to change. Channels
adopt a proposal only if their own estimate agrees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from distributary.cost.topics import clustering_cost, unclustered_cost
from distributary.errors import InputError
from distributary.files import read_interest, read_rates
from distributary.files.columns import Column, ColumnKind
from distributary.files.tables import FileTable, read_table
from distributary.model import FloatArray, Interest, Rates
from distributary.model.topics import Clustering
from distributary.pipeline.folders import fill_folder
from distributary.pipeline.ingest import TimeWindow
from distributary.pipeline.inputs import prepare_inputs
from distributary.pipeline.job import Job
from distributary.pipeline.places import resolve_output
from distributary.pipeline.shapes import LogShapes
from distributary.pipeline.steps import say
from distributary.pipeline.stores import Place, copy_to_local
from distributary.pipeline.writing import tidy, write_arrow, write_json
from distributary.planning import Request
from distributary.planning.topics import Planner, Proposal, proposals

__all__ = ["Clusters", "TopicJob", "propose"]

MANIFEST = "proposals.json"
# The driver holds the interest in dense arrays: a few bytes per receiver and topic.
MOST_CELLS = 100_000_000

CLUSTERS = (Column("cluster", ColumnKind.NUMBER), Column("topic", ColumnKind.TEXT))
MEMBERS = (Column("cluster", ColumnKind.NUMBER), Column("receiver", ColumnKind.TEXT))


@dataclass(frozen=True, slots=True)
class Clusters:
    """The files of the present clusters: (cluster, topic) and (cluster, receiver)."""

    topics: Path
    members: Path


@dataclass(frozen=True, slots=True)
class TopicJob:
    """What to propose clusters from; `interval` is how often a channel is maintained."""

    out: Path | str
    subscriptions: str
    publications: str
    budget: int
    interval: timedelta = timedelta(hours=1)
    clusters: Clusters | None = None
    window: TimeWindow = field(default_factory=TimeWindow)
    max_bad: float = 1.0
    planner: Planner = field(default_factory=Planner)
    shapes: LogShapes = field(default_factory=LogShapes)


def propose(spark: SparkSession, job: TopicJob) -> dict[str, Any]:
    """Write interest, rates and proposals into a folder; return what they would save."""
    logs = Job(
        out=job.out,
        publications=job.publications,
        request=Request(groups=1),
        subscriptions=job.subscriptions,
        window=job.window,
        max_bad=job.max_bad,
        shapes=job.shapes,
    )
    present = _read_clusters(job.clusters)  # first, as what is wrong with them is soon found
    place = resolve_output(spark, job.out)
    with fill_folder(spark, place, _is_ours, "proposals") as folder:
        told = prepare_inputs(spark, logs, folder).facts
        say(spark, "proposing clusters")
        with copy_to_local(folder.tables / "interest") as copy:
            interest = read_interest(copy).value
        with copy_to_local(folder.tables / "rates") as copy:
            rates = _scale_rates(read_rates(copy).value, job.interval)
        _check_size(interest)
        clustering = _build_clustering(interest, present)
        found = proposals(interest, rates, clustering, job.budget, job.planner)
        say(spark, "writing the proposals")
        _write_proposals(found, interest, folder.local)
        document = {**told, **_describe_proposals(found, interest, rates, clustering, job)}
        tidy(folder)
        write_json(folder.local / MANIFEST, document)
    say(spark, None)
    return {**document, "folder": str(folder.final)}


def _is_ours(folder: Place) -> bool:
    return (folder / MANIFEST).is_file()


def _check_size(interest: Interest) -> None:
    cells = len(interest.receivers) * len(interest.flows)
    if cells > MOST_CELLS:
        raise InputError(
            f"{len(interest.receivers):,} receivers x {len(interest.flows):,} topics are more than "
            f"the {MOST_CELLS:,} cells that proposals are made from; leave out topics that few want"
        )


def _scale_rates(rates: Rates, interval: timedelta) -> Rates:
    return Rates(rates.flows, rates.rate * interval.total_seconds())


# --- the present clusters -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Present:
    """The names of the topics and members of each cluster."""

    topics: dict[int, set[str]] = field(default_factory=dict)
    members: dict[int, set[str]] = field(default_factory=dict)


def _read_clusters(clusters: Clusters | None) -> _Present:
    if clusters is None:
        return _Present()
    topics = _group_by_cluster(read_table(clusters.topics, CLUSTERS), "topic")
    members = _group_by_cluster(read_table(clusters.members, MEMBERS), "receiver")
    if unknown := sorted(members.keys() - topics.keys()):
        raise InputError(
            f"cluster {unknown[0]} has members and no topics",
            path=str(clusters.topics),
            value=unknown[0],
            remedy=f"add its topics, or take it out of {clusters.members}",
        )
    return _Present(topics, members)


def _group_by_cluster(table: FileTable, column: str) -> dict[int, set[str]]:
    names, codes = table.names(column)
    found: dict[int, set[str]] = {}
    for cluster, code in zip(table.numbers("cluster").tolist(), codes.tolist(), strict=True):
        found.setdefault(cluster, set()).add(names[code])
    return found


def _build_clustering(interest: Interest, present: _Present) -> Clustering:
    """The present channels: members on their clusters, and on topics' own channels for the rest."""
    state = Clustering(len(interest.receivers), len(interest.flows))
    _form_clusters(state, interest, present)
    wants = np.zeros(state.wants.shape, bool)
    wants[interest.flow_receivers, interest.pair_flows()] = True
    for topic in range(state.n_topics):
        who = np.flatnonzero(wants[:, topic])
        state.follow(who[state.copies[who, topic] == 0], topic)
        state.want(who, topic)
    return state


def _form_clusters(state: Clustering, interest: Interest, present: _Present) -> None:
    """Form the clusters, without topics that nobody wants any more and receivers that are gone."""
    topic_at = {name: at for at, name in enumerate(interest.flows)}
    receiver_at = {name: at for at, name in enumerate(interest.receivers)}
    for cluster in sorted(present.topics):
        carried = present.topics[cluster] & topic_at.keys()
        number = state.form(sorted(topic_at[name] for name in carried))
        members = present.members.get(cluster, set()) & receiver_at.keys()
        state.join(sorted(receiver_at[name] for name in members), number)


# --- what came of it ------------------------------------------------------------------------------


def _write_proposals(found: list[Proposal], interest: Interest, folder: Path) -> None:
    def table(column: str, rows: list[tuple[int, str]]) -> pa.Table:
        return pa.table(
            {
                "proposal": pa.array([number for number, _ in rows], pa.int64()),
                column: pa.array([name for _, name in rows], pa.string()),
            }
        )

    topics = [(at, interest.flows[t]) for at, one in enumerate(found) for t in one.topics]
    invited = [(at, interest.receivers[r]) for at, one in enumerate(found) for r in one.invited]
    write_arrow(table("topic", topics), folder / "proposals.parquet")
    write_arrow(table("receiver", invited), folder / "invitations.parquet")


def _describe_proposals(
    found: list[Proposal], interest: Interest, rates: Rates, clustering: Clustering, job: TopicJob
) -> dict[str, Any]:
    place = {name: at for at, name in enumerate(rates.flows)}
    frequency: FloatArray = rates.rate[[place[name] for name in interest.flows]]
    prices = job.planner.prices
    now = clustering_cost(clustering, frequency, prices)
    plain = sum(unclustered_cost(clustering.wants.sum(axis=0), frequency, prices))
    return {
        "topics": len(interest.flows),
        "receivers": len(interest.receivers),
        "clusters": len(clustering.clusters),
        "operating_cost": {
            "without_clusters": plain,
            "now": now.cost,
            "saving": sum(one.saving for one in found),
        },
        "budget": job.budget,
        "moves": sum(one.moves for one in found),
        "proposals": [
            {
                "topics": len(one.topics),
                "invited": len(one.invited),
                "saving": one.saving,
                "moves": one.moves,
            }
            for one in found
        ],
    }
