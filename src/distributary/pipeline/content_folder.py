"""What publishers and receivers of events need beside a plan: the folder `content` of a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.files import write_flow_filters
from distributary.model import Schema
from distributary.pipeline.content import Content, UsableFilters, name_flow

__all__ = ["write_content"]


def write_content(content: Content, folder: Path) -> DataFrame:
    """Write which flow stands for which filters; the interest in all flows is returned.

    Filters that no event of the log matches have one more flow together. So every filter has a
    flow, and an event that the log did not foresee reaches the filter's owners.
    """
    usable = content.filters
    flows = content.flows.toArrow().select(["flow", "filter", "own"])
    owners = usable.owners.distinct()
    silent = sorted(set(usable.texts).difference(flows["filter"].to_pylist()))
    interest = content.interest
    if silent and len(flows):
        name = name_flow(silent)
        rows = {"flow": [name] * len(silent), "filter": silent, "own": [True] * len(silent)}
        more = pa.table(rows, schema=flows.schema)
        flows = pa.concat_tables([flows, more])
        texts = owners.sparkSession.createDataFrame(pa.table({"filter": pa.array(silent)}))
        wanted = owners.join(F.broadcast(texts), "filter").select("receiver")
        interest = interest.unionByName(wanted.distinct().withColumn("flow", F.lit(name)))
    write_flow_filters(_choose_attributes(usable), flows, owners.toArrow(), folder)
    return interest


def _choose_attributes(usable: UsableFilters) -> Schema:
    """The attributes that events are published with: not the payload, unless a filter tests it."""
    attributes = usable.matcher.schema.attributes
    return Schema(
        tuple(
            each
            for each in attributes
            if each.name.lower() != "payload" or each.name in usable.attributes
        )
    )
