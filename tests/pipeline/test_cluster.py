"""Executors as processes of their own, and one of them lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.pipeline.run import run
from tests.pipeline import cluster_job
from tests.pipeline.test_run import contents, logs

__all__ = ["logs"]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="finds executors through /proc"
)


@pytest.mark.slow
def test_a_lost_executor_changes_nothing_and_neither_does_the_kind_of_cluster(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(logs / f"{name}.parquet") for name in ("subscriptions", "publications")]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.cluster_job", *names, str(tmp_path / "cluster")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "killed" in ended.stdout
    for module, name in cluster_job.SMALL:
        monkeypatch.setattr(module, name, getattr(module, name))  # put back after
    cluster_job.small_steps()
    run(spark, cluster_job.job(*names, tmp_path / "local"))
    ours, theirs = contents(tmp_path / "cluster"), contents(tmp_path / "local")
    assert ours.keys() == theirs.keys()
    # Parquet's footers list encodings in the order of a Java set: by chance in each process.
    assert {
        name
        for name in ours
        if name != "manifest.json"
        and ours[name] != theirs[name]
        and not same_rows(tmp_path / "cluster" / name, tmp_path)
    } == set()
    assert contents(tmp_path / "cluster" / "plan") == contents(tmp_path / "local" / "plan")
    facts = [json.loads(files["manifest.json"]) for files in (ours, theirs)]
    steps = [[step["step"] for step in each.pop("stages")["steps"]] for each in facts]
    assert facts[0] == facts[1]
    assert steps[0] == steps[1]


def same_rows(file: Path, folder: Path) -> bool:
    other = folder / "local" / file.relative_to(folder / "cluster")
    one, two = (pq.ParquetFile(path).read() for path in (file, other))
    return bool(file.suffix == ".parquet" and one.equals(two))
