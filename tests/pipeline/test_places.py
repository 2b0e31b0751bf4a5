"""Output on file systems other than this machine's disk: whole or not at all, on all of them."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.errors import InputError, OutputError
from distributary.files import replacing
from distributary.pipeline.folders import OutputFolder, fill_folder, rounds_folder
from distributary.pipeline.places import resolve_output
from distributary.pipeline.sources import resolve_source
from distributary.pipeline.stores import Place, StorePath, copy_to_local, resolve_place
from distributary.pipeline.versions import Pointers
from distributary.pipeline.writing import stage_frame, tidy, write_json

from .object_store import ObjectStore
from .power import lose_power, note_syncs

ODD = "odd name#%41[1]{x}ü"


@pytest.fixture
def hdfs(spark: SparkSession, tmp_path: Path) -> str:
    """A file system whose folders can be renamed: Hadoop's own `viewfs` over a local folder."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "disk").mkdir()
    name = tmp_path.name.replace("_", "-")  # Hadoop keeps the mounts of a name that it has seen
    conf.set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{tmp_path}/disk")
    return f"viewfs://{name}/data"


def is_ours(folder: Place) -> bool:
    return (folder / "made.json").is_file()


def fill(
    spark: SparkSession, out: Place, number: int, end: type[BaseException] | None = None
) -> OutputFolder:
    """A small run: a table that Spark writes, one that is thrown away, and the driver's files."""
    before = look(spark, out) if end else None
    with fill_folder(spark, out, is_ours, "test output") as folder:
        stage_frame(spark.range(number), folder.stage / "scratch")
        stage_frame(spark.range(number).coalesce(1), folder.tables / "numbers")
        (folder.local / "plan").mkdir()
        write_json(folder.local / "plan" / "plan.json", {"number": number})
        tidy(folder)
        write_json(folder.local / "made.json", {"number": number})
        if end is not None:
            assert look(spark, out) == before  # a reader during a write
            raise end
    return folder


def look(spark: SparkSession, out: Place) -> int | None:
    """What a reader finds: the number of the run, the same in all parts; None if nothing."""
    place = Pointers().follow(out)
    if not place.exists() or (place == out and not (out / "made.json").is_file()):
        return None
    with copy_to_local(place) as copy:
        names = {str(p.relative_to(copy)) for p in copy.rglob("*") if p.is_file()}
        assert {"made.json", "plan/plan.json"} < names, names
        told = json.loads((copy / "made.json").read_text())["number"]
        assert json.loads((copy / "plan" / "plan.json").read_text())["number"] == told
        assert pq.read_table(copy / "numbers").num_rows == told
    return int(told)


def versions(folder: Path) -> set[str]:
    found = folder / "versions"
    return {path.name for path in found.iterdir()} if found.is_dir() else set()


@pytest.mark.parametrize("name", ["out", ODD])
def test_a_store_keeps_the_version_in_force_and_the_one_before(
    spark: SparkSession, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/{name}")
    assert isinstance(out, StorePath)
    runs = []
    for number in (3, 5, 7, 9):
        runs.append(fill(spark, out, number).run)
        assert look(spark, out) == number
        assert versions(tmp_path / name) == set(runs[-2:])
    pointer = json.loads((tmp_path / name / "CURRENT").read_text())
    assert (pointer["version"], pointer["previous"]) == (runs[-1], runs[-2])
    assert (tmp_path / name / "CURRENT").read_text().count("\n") == 1
    kept = tmp_path / name / "versions" / runs[-1]
    assert pointer["files"] == sum(path.is_file() for path in kept.rglob("*"))
    assert not list(kept.rglob("_SUCCESS"))
    assert not (kept / ".work").exists()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_a_run_that_is_killed_at_any_change_is_not_seen(
    spark: SparkSession, store: ObjectStore, tmp_path: Path, step: int
) -> None:
    """Readers see the old version until the pointer is written, and the new one from then on."""
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    before = store.changes
    fill(spark, out, 3)
    needed = store.changes - before
    seen, number = [], 3
    for changes in sorted({*range(0, needed, step), *range(needed - 3, needed + 2)}):
        with store.kill_after(changes), suppress(Exception):
            fill(spark, out, number + 1)
        found = look(spark, out)
        assert found in (number, number + 1)
        seen.append(found == number + 1)
        number = found
    assert seen == sorted(seen)
    assert {*seen} == {False, True}
    fill(spark, out, 2)  # what was left behind does no harm
    assert look(spark, out) == 2


def test_two_runs_at_once_are_both_whole_and_the_last_is_in_force(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    fill(spark, out, 3)
    with fill_folder(spark, out, is_ours, "test output") as slow:
        stage_frame(spark.range(7).coalesce(1), slow.tables / "numbers")
        quick = fill(spark, out, 5)
        assert look(spark, out) == 5
        (slow.local / "plan").mkdir()
        write_json(slow.local / "plan" / "plan.json", {"number": 7})
        tidy(slow)
        write_json(slow.local / "made.json", {"number": 7})
    assert look(spark, out) == 7
    assert versions(tmp_path / "out") == {quick.run, slow.run}
    pointer = json.loads((tmp_path / "out" / "CURRENT").read_text())
    assert (pointer["previous"], pointer["version"]) == (quick.run, slow.run)


def test_a_run_that_fails_or_is_interrupted_leaves_nothing(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    first = fill(spark, out, 3)
    for end in (KeyboardInterrupt, ZeroDivisionError):
        with pytest.raises(end):
            fill(spark, out, 5, end)
        assert versions(tmp_path / "out") == {first.run}
    assert look(spark, out) == 3


def test_what_killed_runs_left_is_removed_a_day_later(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    fill(spark, out, 3)
    left = {
        name: tmp_path / "out" / "versions" / name
        for name in ("20200101T000000Z-00000000", "20200101T000000Z-00000001", "mine")
    }
    for folder in left.values():
        folder.mkdir()
        (folder / "file").write_text("x")
    old = time.time() - 25 * 3600
    os.utime(left["20200101T000000Z-00000000"] / "file", (old, old))
    os.utime(left["mine"] / "file", (old, old))
    fill(spark, out, 4)
    there = versions(tmp_path / "out")
    assert "20200101T000000Z-00000000" not in there  # nobody has written there for a day
    assert {"20200101T000000Z-00000001", "mine"} < there  # may be alive; not a version


def test_a_version_that_is_gone_gets_one_line(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    first, second = fill(spark, out, 3), fill(spark, out, 4)
    numbers = tmp_path / "out" / "versions" / second.run / "numbers"
    shutil.rmtree(numbers)
    with pytest.raises(InputError, match=f"{second.run}, which has 2 of its 3 files; copy"):
        look(spark, out)
    shutil.rmtree(numbers.parent)
    with pytest.raises(InputError, match=f"which is gone; .* or name .*{first.run} instead"):
        Pointers().follow(out / "plan")
    fill(spark, out, 5)  # a run into the folder mends it
    assert look(spark, out) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 1, "version": "../x", "files": 1, "written": ""}',
        '{"format": 1, "version": 3}',
        "\ufeff\x00",
    ],
)
def test_a_damaged_pointer_is_refused_and_kept(
    spark: SparkSession, store: ObjectStore, tmp_path: Path, text: str
) -> None:
    (tmp_path / "out" / "versions").mkdir(parents=True)
    (tmp_path / "out" / "CURRENT").write_text(text)
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    with pytest.raises(InputError, match=r"CURRENT: is damaged.*; remove it and run"):
        Pointers().follow(out / "plan")
    with pytest.raises(InputError, match="is damaged"):
        fill(spark, out, 3)
    assert (tmp_path / "out" / "CURRENT").read_text() == text


def test_other_things_are_never_replaced(
    spark: SparkSession, store: ObjectStore, hdfs: str, tmp_path: Path
) -> None:
    for root, disk in ((f"objects://{tmp_path}", tmp_path), (hdfs, tmp_path / "disk")):
        (disk / "full").mkdir()
        (disk / "full" / "thesis.txt").write_text("x")
        (disk / "file").write_text("x")
        with pytest.raises(OutputError, match="other things in it, not a test output"):
            fill(spark, resolve_output(spark, f"{root}/full"), 3)
        with pytest.raises(OutputError, match="is a file"):
            fill(spark, resolve_output(spark, f"{root}/file"), 3)
        (disk / "empty").mkdir()
        fill(spark, resolve_output(spark, f"{root}/empty"), 3)
        with (
            pytest.raises(OutputError, match="not a replay"),
            fill_folder(spark, resolve_output(spark, f"{root}/empty"), lambda _: False, "replay"),
        ):
            pass
        assert (disk / "full" / "thesis.txt").read_text() == "x"


def test_where_folders_can_be_renamed_there_are_no_versions(
    spark: SparkSession, hdfs: str, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"{hdfs}/{ODD}")
    assert isinstance(out, StorePath)
    for number in (3, 5):
        assert fill(spark, out, number).final == out
        assert look(spark, out) == number
    with pytest.raises(ZeroDivisionError):
        fill(spark, out, 7, ZeroDivisionError)
    assert look(spark, out) == 5
    assert [path.name for path in (tmp_path / "disk").iterdir() if path.suffix != ".crc"] == [ODD]


def test_a_folder_that_was_moved_aside_comes_back(
    spark: SparkSession, hdfs: str, tmp_path: Path
) -> None:
    """As after a kill between the two renames."""
    out = resolve_output(spark, f"{hdfs}/out")
    aside = tmp_path / "disk" / str(fill(spark, out, 5).tables).split("/")[-2]
    aside.mkdir()
    (tmp_path / "disk" / "out").rename(aside / "old")
    with suppress(ZeroDivisionError), fill_folder(spark, out, is_ours, "test output"):
        assert look(spark, out) == 5
        raise ZeroDivisionError
    assert look(spark, out) == 5


def test_a_folder_is_never_moved_into_one_that_is_there(
    spark: SparkSession, hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two runs end at the same moment, and each sees that the place is free."""
    monkeypatch.setattr(StorePath, "exists", lambda self: False)
    for name in ("new", "out"):
        (tmp_path / "disk" / name).mkdir()
    with pytest.raises(OSError, match="exists"):
        StorePath(f"{hdfs}/new", spark).rename(StorePath(f"{hdfs}/out", spark))
    assert (tmp_path / "disk" / "new").is_dir()
    assert not list((tmp_path / "disk" / "out").iterdir())


@pytest.mark.parametrize("start", ["file:", "file://", "file://localhost", "FILE:", ""])
def test_a_file_uri_is_a_local_path(spark: SparkSession, tmp_path: Path, start: str) -> None:
    assert resolve_place(spark, f"{start}{tmp_path}/{ODD}") == tmp_path / ODD


def test_relative_paths_and_names_with_colons_are_local(spark: SparkSession) -> None:
    for text in ("out", "./s3a:/x", "a:b", "x/y:z"):
        assert resolve_place(spark, text) == Path(text)


@pytest.mark.parametrize("uri", ["nosuch://bucket/out", "hdfs:///nowhere", "s3a://bucket/out"])
def test_a_file_system_that_spark_lacks_gets_one_line(spark: SparkSession, uri: str) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: .*; check the URI") as caught:
        resolve_output(spark, uri)
    assert "\n" not in str(caught.value)


def test_local_folders_with_odd_names_are_filled(spark: SparkSession, tmp_path: Path) -> None:
    for number in (3, 4):
        fill(spark, tmp_path / ODD, number)
        assert look(spark, tmp_path / ODD) == number
    assert [path.name for path in tmp_path.iterdir()] == [ODD]


def test_a_local_folder_is_on_the_disk_before_it_takes_its_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder that loses what was not synced, right before it is renamed, nothing is lost."""
    synced, swap, place = note_syncs(monkeypatch), replacing._swap, tmp_path / "out"

    def lose_power_before(new: Path, target: Path, aside: Path) -> None:
        lose_power(new, synced)
        swap(new, target, aside)

    monkeypatch.setattr(replacing, "_swap", lose_power_before)
    for number in (3, 4):
        fill(spark, place, number)
        assert look(spark, place) == number
    assert tmp_path.stat().st_ino in synced  # where the names are


def test_inputs_are_found_through_a_pointer(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    uri = f"objects://{tmp_path}/out"
    folder = fill(spark, resolve_output(spark, uri), 3)
    for asked in (uri, f"file:{tmp_path}/out", f"{tmp_path}/out"):  # also a copy on disk
        (file,) = resolve_source(spark, f"{asked}/numbers").files
        assert f"/versions/{folder.run}/numbers/part-" in file
    with pytest.raises(InputError, match="no such file or folder"):
        resolve_source(spark, f"{uri}/nothing")


def test_one_command_reads_one_version(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    first = fill(spark, out, 3)
    pointers = Pointers()
    one = pointers.follow(out / "plan")
    fill(spark, out, 4)
    assert str(pointers.follow(out / "numbers")).endswith(f"{first.run}/numbers")
    assert str(one).endswith(f"{first.run}/plan")
    assert str(Pointers().follow(out / "plan")) != str(one)


def test_rounds_are_kept_where_executors_see_them(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    out = resolve_output(spark, f"objects://{tmp_path}/out")
    assert rounds_folder(tmp_path / "out") == tmp_path / ".out.rounds"
    assert rounds_folder(out) is None
    shared = {rounds_folder(place, tmp_path) for place in (out, tmp_path / "out", out)}
    assert len(shared) == 2
    assert {path.parent for path in shared if path is not None} == {tmp_path}
