from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark import start_small_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_small_spark()
    yield session
    session.stop()
