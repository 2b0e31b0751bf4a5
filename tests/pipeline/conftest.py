from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from distributary.pipeline import buckets
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.stream import StreamJob, stream
from tests.spark import start_small_spark

from .object_store import ObjectStore, start_store
from .stream_logs import make_logs
from .stream_process import SMALL_SLICES, small_job


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_small_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def store(spark: SparkSession) -> ObjectStore:
    return start_store(spark)


@contextmanager
def _make_slices_small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_SLICES.items():
            patch.setattr(buckets, name, value)
        yield


@pytest.fixture
def small_slices() -> Iterator[None]:
    """So small that the few rows of a batch make merges of many slices."""
    with _make_slices_small():
        yield


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a stream of a few batches; streams write beside them."""
    folder = tmp_path_factory.mktemp("logs")
    make_logs(folder)
    return folder


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, logs: Path) -> tuple[StreamJob, LedgerState]:
    """A stream over `logs` that nothing disturbed."""
    job = small_job(logs, "undisturbed")
    with _make_slices_small():
        return job, stream(spark, job)


@pytest.fixture(scope="session")
def more_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough batches to stop 20 times, and enough of them with actions that those are merged."""
    folder = tmp_path_factory.mktemp("more-logs")
    make_logs(folder, files=10, subscription_files=8)
    return folder


@pytest.fixture(scope="session")
def more_undisturbed(spark: SparkSession, more_logs: Path) -> tuple[StreamJob, LedgerState]:
    """A stream over `more_logs` that nothing disturbed."""
    job = small_job(more_logs, "undisturbed")
    with _make_slices_small():
        return job, stream(spark, job)
