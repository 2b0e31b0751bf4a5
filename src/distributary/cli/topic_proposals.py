"""`distributary pipeline topics`: clusters of topics, proposed from logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distributary.cli.console import print_json, results
from distributary.cli.log_shapes import ShapeOptions
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    SEARCH,
    Json,
    OutFolder,
    ProgressFile,
    Publications,
    SparkOptions,
    duration_option,
    option,
    share_option,
)
from distributary.cli.quantities import Seconds, Share
from distributary.cli.stages import View, call_on_spark

if TYPE_CHECKING:
    from distributary.pipeline.topics import Clusters

__all__ = ["pipeline_topics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLogs(ShapeOptions):
    """The logs to propose clusters from, and the clusters there are."""

    subscriptions: Annotated[
        str, option("Subscription log: a file, a folder, or a table in Spark's catalogue.", INPUT)
    ]
    publications: Publications
    clusters: Annotated[
        Path | None, option("Table of today's clusters, with columns cluster, topic.", INPUT)
    ] = None
    members: Annotated[
        Path | None, option("Table of their members, with columns cluster, receiver.", INPUT)
    ] = None
    max_bad: Annotated[
        Share, share_option("Fail if more than this share of a log cannot be used.", INPUT)
    ] = Share("1%")

    def name_clusters(self) -> Clusters | None:
        """Name the tables of the clusters there are, if any."""
        from distributary.pipeline.topics import Clusters

        if (self.clusters is None) != (self.members is None):
            raise typer.BadParameter("give both --clusters and --members, or neither")
        if self.clusters is None or self.members is None:
            return None
        return Clusters(self.clusters, self.members)


@takes_groups
def pipeline_topics(
    logs: TopicLogs,
    spark: SparkOptions,
    out: OutFolder,
    budget: Annotated[
        int,
        option(
            "Maximum number of subscriptions that all proposals together change.", LIMITS, min=0
        ),
    ] = 1_000,
    interval: Annotated[
        Seconds,
        duration_option(
            "How often a channel is maintained, such as 30m; costs are per interval.", SEARCH
        ),
    ] = Seconds("1h"),
    as_document: Json = False,
    events: ProgressFile = None,
) -> None:
    """Propose clusters of topics that should share a channel, from logs."""
    from distributary.pipeline.topics import TopicJob, propose

    job = TopicJob(
        out,
        logs.subscriptions,
        logs.publications,
        budget,
        timedelta(seconds=interval),
        logs.name_clusters(),
        max_bad=float(logs.max_bad),
        shapes=logs.read_shapes(),
    )
    document = call_on_spark(spark, View(events), lambda running, _: propose(running, job))
    folder = document.pop("folder")
    if as_document:
        print_json(document)
        return
    cost = document["operating_cost"]
    results.print(
        f"{len(document['proposals']):,} clusters of {document['topics']:,} topics would save "
        f"{cost['saving']:,.0f} of {cost['now']:,.0f} messages per interval for "
        f"{document['moves']:,} changed subscriptions: {folder}",
        markup=False,
    )
