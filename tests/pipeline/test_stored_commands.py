"""The pipeline's commands with inputs and outputs on a store that renames no folders."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.in_process import call_main

from .object_store import ObjectStore, class_files
from .test_command import SIZE, SMALL
from .test_interrupts import Started, read_events

RUN: Any = import_module("distributary.pipeline.run")
DATABASE = "stored_commands"


@dataclass(frozen=True)
class Bucket:
    """A folder that is a bucket of the store as well, with logs in it and runs of them."""

    folder: Path

    def __str__(self) -> str:
        return f"objects://{self.folder}"

    def call(self, *words: str) -> tuple[int, str, str]:
        """A command; `@/x` stands for the URI of x in the bucket, `./x` for its path on disk."""
        whole = (w.replace("@/", f"{self}/").replace("./", f"{self.folder}/") for w in words)
        return call_main(("distributary", *whole), self.folder)

    def run(self, *words: str) -> dict[str, Any]:
        status, out, err = self.call("pipeline", "run", *WHAT, *words, "--json")
        assert status == 0, err
        return dict(json.loads(out))

    def find(self, name: str) -> Path:
        """The version in force of an output."""
        pointer = json.loads((self.folder / name / "CURRENT").read_text())
        return self.folder / name / "versions" / str(pointer["version"])


WHAT = (
    *("--subscriptions", "@/logs/subscriptions.parquet"),
    *("--publications", "file://./logs/publications.parquet", *SIZE),
)


@pytest.fixture(scope="module")
def bucket(
    spark: SparkSession, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    made = Bucket(tmp_path_factory.mktemp("bucket"))
    assert made.call("generate", "day", "--out", "logs", *SMALL)[0] == 0
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{made.folder}/warehouse'")
    made.run("--out", "file://./disk")
    made.run("--out", "@/run", "--out-table", f"{DATABASE}.floor")
    yield made
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


def test_a_store_gets_the_same_plan_and_tables_as_a_disk(bucket: Bucket) -> None:
    stored, disk = bucket.find("run"), bucket.folder / "disk"
    for path in sorted((disk / "plan").iterdir()):
        assert path.read_bytes() == (stored / "plan" / path.name).read_bytes()
    assert {path.name for path in stored.iterdir()} == {path.name for path in disk.iterdir()}
    for table in ("interest", "rates", "receivers", "groups", "quarantine"):
        one, other = (pq.read_table(folder / table) for folder in (stored, disk))
        assert one.equals(other), table
    assert not list(stored.rglob("_SUCCESS"))
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (stored, disk)]
    assert manifests[0]["run"] == stored.name
    for one in manifests:
        for name in ("stages", "run", "tables"):
            one.pop(name, None)
    assert manifests[0] == manifests[1]


def test_the_tables_of_a_catalog_are_those_of_the_folder(
    spark: SparkSession, bucket: Bucket
) -> None:
    stored = bucket.find("run")
    for name, path in (
        ("interest", "interest"),
        ("rates", "rates"),
        ("placements", "plan/placements.parquet"),
        ("sessions", "plan/sessions.parquet"),
        ("subscriptions", "plan/subscriptions.parquet"),
        ("replay_minutes", "replay/minutes.parquet"),
        ("replay_receivers", "replay/receivers.parquet"),
    ):
        table = spark.table(f"{DATABASE}.floor_{name}")
        folder = pq.read_table(stored / path, partitioning=None).to_pylist()
        known = [*folder[0]]
        rows = [row.asDict() for row in table.collect()]
        assert {row["run"] for row in rows} == {stored.name}
        as_text = sorted(str([row[column] for column in known]) for row in rows)
        if name != "replay_minutes":  # times come back without a zone
            assert as_text == sorted(str([row[column] for column in known]) for row in folder)
        assert len(as_text) == len(folder) > 0


@pytest.mark.slow
def test_replay_reads_a_plan_by_its_pointer_and_writes_to_both(
    spark: SparkSession, bucket: Bucket
) -> None:
    documents = []
    for plan, interest in (("@/run/plan", "@/run/interest"), ("./disk/plan", "./disk/interest")):
        status, out, err = bucket.call(
            "pipeline", "replay", plan, "--publications", "@/logs/publications.parquet",
            "--interest", interest, "--out", "@/replay", "--out-table", f"{DATABASE}.again",
            "--json",
        )  # fmt: skip
        assert (status, err) == (0, "")
        documents.append(json.loads(out))
        stored = bucket.find("replay")
        assert {path.name for path in stored.iterdir()} == {"minutes.parquet", "receivers.parquet"}
        assert documents[-1]["folder"].endswith(f"/replay/versions/{stored.name}")
        runs = {row["run"] for row in spark.table(f"{DATABASE}.again_replay_minutes").collect()}
        assert runs == {documents[-1]["run"]} == {stored.name}
    assert documents[0]["replay"] == documents[1]["replay"]


def test_a_run_starts_from_a_plan_by_its_pointer(bucket: Bucket) -> None:
    assert bucket.run("--out", "./next", "--from", "@/run")["diff"]["moved"] == 0
    status, _, err = bucket.call(
        "pipeline", "run", *WHAT, "--out", "@/first", "--max-moves", "3"
    )  # fmt: skip
    assert (status, "there is no previous plan" in err) == (1, True)
    assert not (bucket.folder / "first").exists()


def test_topics_writes_to_a_store(bucket: Bucket) -> None:
    status, out, err = bucket.call(
        "pipeline", "topics", *WHAT[:4], "--out", "@/topics", "--max-bad", "20%"
    )
    assert (status, err) == (0, "")
    stored = bucket.find("topics")
    assert f"topics/versions/{stored.name}" in out
    names = {path.name for path in stored.iterdir()}
    assert {"proposals.json", "proposals.parquet", "invitations.parquet", "interest"} <= names
    assert not list(stored.rglob("_SUCCESS"))


def test_commands_on_this_machine_read_a_copy_of_a_store(bucket: Bucket, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bucket.folder / "run", copy)
    tables = ("--interest", f"{copy}/interest", "--rates", f"{copy}/rates")
    for words in (
        ("evaluate", f"{copy}/plan", *tables),
        ("export", f"{copy}/plan", "--format", "csv", "--out", f"{tmp_path}/exported"),
    ):
        status, _, err = bucket.call(*words)
        assert (status, err) == (0, ""), words


def test_a_stream_is_refused_on_a_store(bucket: Bucket) -> None:
    words = ("--subscriptions", "@/logs", "--publications", "@/logs", "--groups", "3")
    status, out, err = bucket.call("pipeline", "stream", *words, "--out", "@/live")
    assert (status, out) == (1, "")
    assert "a stream keeps its state on a disk" in err
    assert err.count("\n") == 1
    assert not (bucket.folder / "live").exists()
    assert not (bucket.folder / "objects:").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--out", "@/forbidden/run"), "run: cannot be written: permission denied; check the cred"),
        (("--out", "@/read-only/run"), "run: cannot be written: permission denied; check the cred"),
        (("--out", "nosuch://x/run"), 'No FileSystem for scheme "nosuch"; check the URI, and'),
        (("--out", "@/new", "--from", "@/forbidden/plan"), "permission denied; check the cred"),
        (("--out", "@/new", "--from", "@/nothing/plan"), "no such file or folder; check the path"),
        (("--out", "@/new", "--from", "nosuch://x"), 'No FileSystem for scheme "nosuch"; check'),
        (("--out", "@/new", "--subscriptions", "@/forbidden/x"), "permission denied; check the c"),
        (("--out", "@/new", "--subscriptions", "nosuch://x/y"), 'scheme "nosuch"; check the path,'),
        (("--out", "@/new", "--subscriptions", "@/no.csv"), "no such file or folder; check the"),
        (("--out", "@/new", "--out-table", "nosuch.x"), "there is no database nosuch; create it"),
    ],
)
def test_a_place_that_cannot_be_used_gets_one_line(
    bucket: Bucket, words: tuple[str, ...], told: str
) -> None:
    status, out, err = bucket.call("pipeline", "run", *WHAT, *words)
    assert (status, out) == (1, "")
    assert told in err.replace("\n", " ")
    assert len(err.splitlines()) == 1
    assert "defect" not in err
    assert not list(bucket.folder.rglob("new/versions/*"))


def test_a_run_that_a_store_fails_gets_one_line(bucket: Bucket, store: ObjectStore) -> None:
    for changes in (0, 20, 55):  # `test_places` has all of them
        with store.kill_after(changes):
            status, _, err = bucket.call("pipeline", "run", *WHAT, "--out", "@/failed")
        assert status == 1
        assert "failed: " in err
        assert "killed before" in err
        assert "defect" not in err
        assert not (bucket.folder / "failed" / "CURRENT").exists()


def test_a_run_whose_beginnings_were_removed_fails(bucket: Bucket, monkeypatch: Any) -> None:
    def tidy_up(folder: Any) -> None:  # as another run does, a day later
        shutil.rmtree(bucket.folder / "slow" / "versions" / folder.run)

    monkeypatch.setattr(RUN, "tidy", tidy_up)
    status, _, err = bucket.call("pipeline", "run", *WHAT, "--out", "@/slow")
    assert status == 1
    assert "was removed by another run" in err
    assert not (bucket.folder / "slow" / "CURRENT").exists()


# --- processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return class_files(spark, tmp_path_factory.mktemp("classes"))


def begin(bucket: Bucket, folder: Path, classes: Path, *more: str) -> Started:
    """`pipeline run` into the store, in a process of its own."""
    folder.mkdir()
    shutil.copytree(bucket.folder / "logs", folder / "logs")
    return Started(
        *(folder, "run", "--out", f"objects://{folder.parent}/run", "--budget", "1s"),
        *("--conf", "spark.hadoop.fs.objects.impl=distributary.tests.ObjectStore"),
        *("--conf", f"spark.driver.extraClassPath={classes}", *more),
    )


def check_plan(bucket: Bucket, folder: str) -> None:
    """Check that an output on this disk is whole: its plan fits its interest and rates."""
    words = (f"{folder}/plan", "--interest", f"{folder}/interest", "--rates", f"{folder}/rates")
    status, _, err = bucket.call("evaluate", *words)
    assert (status, err) == (0, "")


STEPS = (
    *("opening the logs", "reading the publications", "writing the rates", "planning"),
    *("replaying the log", "writing tables of the plan", "writing the pages", "tidying up"),
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_or_interrupted_leaves_the_version_in_force(
    bucket: Bucket, tmp_path: Path, classes: Path, step: str, number: signal.Signals
) -> None:
    shutil.copytree(bucket.folder / "run", tmp_path / "run")
    (before,) = (tmp_path / "run" / "versions").iterdir()
    files = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
    command = begin(bucket, tmp_path / "here", classes)
    command.wait_for(lambda: step in {event.get("step") for event in read_events(tmp_path)})
    code, _, err = command.send(number)
    there = {path.name for path in (tmp_path / "run" / "versions").iterdir()}
    current = json.loads((tmp_path / "run" / "CURRENT").read_text())["version"]
    if number == signal.SIGINT:
        assert (code, err) == (130, "interrupted: nothing is left half-written\n")
        assert there == {before.name, current}
    else:
        assert code == -signal.SIGKILL
    if step not in STEPS[-2:]:  # where it may be faster than the signal
        assert current == before.name
    assert {path: path.read_bytes() for path in files} == files
    moved = Bucket(tmp_path)
    check_plan(moved, "./run")
    shutil.copytree(bucket.folder / "logs", tmp_path / "logs")
    assert moved.run("--out", "@/run")["run"] == moved.find("run").name
    check_plan(moved, "./run")


@pytest.mark.slow
def test_two_processes_at_once_both_end_and_one_of_them_is_in_force(
    bucket: Bucket, tmp_path: Path, classes: Path
) -> None:
    uri = f"objects://{tmp_path}/run"
    for each in "ab":
        (tmp_path / each).mkdir()
    two = [begin(bucket, tmp_path / each / "here", classes, "--out", uri) for each in "ab"]
    for each in two:
        out, err = each.process.communicate(timeout=300)
        assert each.process.returncode == 0, err
        assert "/versions/" in out
    pointer = json.loads((tmp_path / "run" / "CURRENT").read_text())
    made = {path.name for path in (tmp_path / "run" / "versions").iterdir()}
    assert pointer["version"] in made
    assert len(made) == 2
    for name in made:
        check_plan(bucket, f"{tmp_path}/run/versions/{name}")


@pytest.mark.slow
def test_two_runs_at_once_are_both_whole_and_the_last_is_in_force(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, made = RUN.tidy, list[str]()

    def let_another_finish(folder: Any) -> None:
        monkeypatch.setattr(RUN, "tidy", inner)
        made.append(bucket.run("--out", "@/both")["run"])
        inner(folder)

    monkeypatch.setattr(RUN, "tidy", let_another_finish)
    made.append(bucket.run("--out", "@/both")["run"])
    pointer = json.loads((bucket.folder / "both" / "CURRENT").read_text())
    assert [pointer["previous"], pointer["version"]] == made
    there = {path.name for path in (bucket.folder / "both" / "versions").iterdir()}
    assert there == set(made)
    for name in made:
        check_plan(bucket, f"./both/versions/{name}")
