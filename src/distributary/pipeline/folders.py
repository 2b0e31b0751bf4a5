"""Folders that Spark fills, whole or not at all, and errors about disks that cannot take them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from distributary.files import replace_folder
from distributary.files.faults import output_fault, summarize_error
from distributary.pipeline.sources import full_message
from distributary.pipeline.undisturbed import stay_undisturbed

__all__ = ["fill_folder", "report_write_faults"]

_UNWRITABLE = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied"
    r"|Not a directory|Mkdirs failed to create|Input/output error"
)
_REMEDY = (
    "make room or check the place, also Spark's own (--conf spark.local.dir=FOLDER), "
    "or name another"
)
_PAUSE_S, _LONGEST_S = 0.05, 10.0


@contextmanager
def fill_folder(
    spark: SparkSession,
    path: str | os.PathLike[str],
    may_replace: Callable[[Path], bool],
    kind: str,
) -> Iterator[Path]:
    """A `replace_folder` for what Spark writes: it is removed only after Spark's tasks end."""
    with replace_folder(path, may_replace, kind) as folder, report_write_faults(path):
        try:
            yield folder
        except BaseException:
            stay_undisturbed()
            _await_tasks(spark)
            raise


@contextmanager
def report_write_faults(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of Spark or the system about a full or forbidden disk into an `OutputError`."""
    try:
        yield
    except OSError as error:
        raise output_fault(path, f"cannot be written: {summarize_error(error)}", _REMEDY) from error
    except (PySparkException, Py4JError) as error:
        found = _UNWRITABLE.search(full_message(error))
        if found is None:
            raise
        raise output_fault(path, f"cannot be written: {found[0].lower()}", _REMEDY) from error


def _await_tasks(spark: SparkSession) -> None:
    """Cancel Spark's jobs and wait for their tasks: a killed task still writes for a moment."""
    with suppress(Py4JError, PySparkException):
        spark.sparkContext.cancelAllJobs()
        store = spark.sparkContext._jsc.sc().statusStore()
        last = time.monotonic() + _LONGEST_S
        while time.monotonic() < last:
            executors = store.executorList(True)
            if not any(executors.apply(i).activeTasks() for i in range(executors.size())):
                return
            time.sleep(_PAUSE_S)
