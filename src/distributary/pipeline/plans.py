"""A plan as Spark reads it: the tables of its folder as frames.

Flooding and unicast, which a plan is measured against, are plans as well, so they can be replayed
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from distributary.errors import InputError
from distributary.model import Plan
from distributary.pipeline.schemas import PLACEMENTS, PLAN_SUBSCRIPTIONS, SESSIONS, UNICAST
from distributary.pipeline.stores import LITERAL_PATHS, Place

__all__ = ["PlanTables", "flooding", "plan_tables", "read_plan_tables", "unicast"]


@dataclass(frozen=True, slots=True, eq=False)
class PlanTables:
    """The tables of one plan, without repeated rows.

    Whoever makes or reads a plan checks that the group of a subscription is its session's and that
    `sessions` lists every session. `unicast` has the pairs of receiver and flow sent by unicast.
    """

    placements: DataFrame
    sessions: DataFrame
    subscriptions: DataFrame
    unicast: DataFrame

    @property
    def placed(self) -> DataFrame:
        """Where each flow is carried: flow, session, group."""
        return self.placements.join(self.sessions, "session").select("flow", "session", "group")

    @property
    def memberships(self) -> DataFrame:
        """Who joins which group: receiver, group."""
        joined = self.subscriptions.select("receiver", "session").join(self.sessions, "session")
        return joined.select("receiver", "group").distinct()


def plan_tables(spark: SparkSession, plan: Plan) -> PlanTables:
    """The tables of a plan in memory."""
    receivers, flows = pa.array(plan.receivers, pa.string()), pa.array(plan.flows, pa.string())
    session = pa.array(range(plan.n_sessions), pa.int32())
    group = pa.array(plan.session_group, pa.int32())
    heard = pa.array(plan.subscription_session, pa.int32())
    placements = {
        "flow": flows.take(pa.array(plan.placement_flow)),
        "session": pa.array(plan.placement_session, pa.int32()),
    }
    subscriptions = {
        "receiver": receivers.take(pa.array(plan.subscription_receiver)),
        "session": heard,
        "group": group.take(heard),
    }
    pairs = {
        "receiver": receivers.take(pa.array(plan.unicast_receiver)),
        "flow": flows.take(pa.array(plan.unicast_flow)),
    }
    return PlanTables(
        spark.createDataFrame(pa.table(placements), PLACEMENTS),
        spark.createDataFrame(pa.table({"session": session, "group": group}), SESSIONS),
        spark.createDataFrame(pa.table(subscriptions), PLAN_SUBSCRIPTIONS),
        spark.createDataFrame(pa.table(pairs), UNICAST),
    )


def flooding(interest: DataFrame) -> PlanTables:
    """The plan that sends every wanted flow to every receiver: one session, one group."""
    spark = interest.sparkSession
    only = F.lit(0)
    return PlanTables(
        interest.select("flow").distinct().withColumn("session", only),
        spark.createDataFrame([(0, 0)], SESSIONS),
        interest.select("receiver").distinct().withColumns({"session": only, "group": only}),
        spark.createDataFrame([], UNICAST),
    )


def unicast(interest: DataFrame) -> PlanTables:
    """The plan that sends each receiver exactly what it wants, by unicast."""
    spark = interest.sparkSession
    return PlanTables(
        spark.createDataFrame([], PLACEMENTS),
        spark.createDataFrame([], SESSIONS),
        spark.createDataFrame([], PLAN_SUBSCRIPTIONS),
        interest.select("receiver", "flow"),
    )


def read_plan_tables(spark: SparkSession, folder: Place) -> PlanTables:
    """The tables of a plan folder, in any format; the table of unicast pairs may be missing."""
    return PlanTables(
        _read_plan_table(spark, folder, "placements", PLACEMENTS),
        _read_plan_table(spark, folder, "sessions", SESSIONS),
        _read_plan_table(spark, folder, "subscriptions", PLAN_SUBSCRIPTIONS),
        _read_plan_table(spark, folder, "unicast", UNICAST, may_lack=True),
    )


def _read_plan_table(
    spark: SparkSession, folder: Place, name: str, schema: StructType, *, may_lack: bool = False
) -> DataFrame:
    columns = [F.col(field.name).cast(field.dataType) for field in schema.fields]
    reader = spark.read.options(**LITERAL_PATHS)
    found: Iterable[Place] = folder.glob(f"{name}.*")
    for path in sorted(found, key=str):
        if path.suffix == ".parquet":
            return reader.parquet(str(path)).select(*columns)
        if path.suffix == ".csv":
            return reader.csv(str(path), header=True).select(*columns)
        return reader.json(str(path)).select(*columns)
    if may_lack:
        return spark.createDataFrame([], schema)
    raise InputError(f"the plan has no {name}", path=str(folder), remedy="plan again")
