from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark import start_small_spark

from .object_store import ObjectStore, start_store


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_small_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def store(spark: SparkSession) -> ObjectStore:
    return start_store(spark)
