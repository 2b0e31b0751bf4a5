"""The settings of a Spark for tests: frames of a few rows, queries that run once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from distributary.pipeline.spark import spark_session

__all__ = ["MASTER", "SETTINGS", "start_small_spark"]

MASTER = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "2",
    # A task that only joins the parts costs more than what it joins.
    "spark.sql.shuffle.partitions": "1",
    # By default a page of an aggregation is 32 MiB, and Java collects garbage all the time.
    "spark.buffer.pageSize": "1m",
    # Compiling a query takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Java as well: its thorough compiler takes more time than it saves here. With one compiler its
    # room for code is small, and it would throw code away and compile it again.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
        "-XX:+UseSerialGC -Xms1g -Xmn640m -XX:MetaspaceSize=256m"
    ),
}
# PySpark asks for these at nearly every call, and Java looks for each in some ten packages.
_OFTEN_USED = ("PythonUtils", "PythonSQLUtils", "functions")


def start_small_spark() -> SparkSession:
    session = spark_session(MASTER, SETTINGS, name="tests")
    view = session.sparkContext._jvm
    for name in _OFTEN_USED:
        setattr(view, name, getattr(view, name))
    return session
