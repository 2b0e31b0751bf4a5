"""What the stream reads: whole files with all rows, also after a disk was full."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from distributary.control.nats import stream_files
from distributary.control.nats.stream_files import StreamFiles
from distributary.files import read_plan
from tests.control.nats.services import run
from tests.delivery.machines import simple_plan

ROOT = Path(__file__).parents[3]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [
        row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]


async def written(files: StreamFiles, folder: Path, rows: int) -> list[dict[str, Any]]:
    while len(found := read_rows(folder)) < rows:
        await asyncio.sleep(0.02)
    return found


def replay(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Who wants what after all rows, read in order."""
    wanted = set()
    for row in rows:
        pair = row["receiver"], row["flow"]
        (wanted.add if row["action"] == "subscribe" else wanted.discard)(pair)
    return wanted


def test_rows_are_written_once_and_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        began = time.time()
        files = StreamFiles(tmp_path / "s", counts_every=0.05, trouble=pytest.fail)
        files.begin()
        writing = asyncio.create_task(files.run())
        files.write_interest(1.0, [("r", "a", True), ("r", "b", True), ("r", "a", False)])
        files.write_counts([(5, "a", 2), (5, "b", 1), (5, "a", 3)])
        files.set_base(simple_plan([0, 1], [0, 1]))
        rows = await written(files, files.subscriptions, 2)
        assert [(row["flow"], row["action"]) for row in rows] == [
            ("b", "subscribe"),
            ("a", "unsubscribe"),
        ]
        counts = await written(files, files.publications, 2)
        assert {row["flow"]: row["count"] for row in counts} == {"a": 5, "b": 1}
        while files.behind_rows > 4:
            await asyncio.sleep(0.02)
        before = files.behind_s
        assert 0 < before <= time.time() - began
        await asyncio.sleep(0.05)
        files.note_read(1)  # the oldest one
        assert files.behind_rows == 2
        assert 0 <= files.behind_s <= time.time() - began
        files.note_read(2)
        assert (files.behind_rows, files.behind_s) == (0, 0.0)
        while not (files.base / "plan.json").exists():
            await asyncio.sleep(0.02)
        assert read_plan(files.base).plan.flows == ("f0", "f1")
        files.begin()  # the stream failed, and begins again: it gets all that is wanted
        rows = await written(files, files.subscriptions, 1)
        assert replay(rows) == {("r", "b")}
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing

    run(work())


def test_counts_that_there_is_no_room_for_are_dropped_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str | None]] = []
    files = StreamFiles(
        tmp_path,
        counts_every=1.0,
        trouble=lambda what, who, says: said.append((what, says)),
        most_counts=4,
    )
    files.write_counts([(5, "a", 1), (1, "a", 1), (3, "a", 1), (4, "a", 1)])
    assert not said
    files.write_counts([(2, "a", 1), (5, "a", 9)])
    ((what, says),) = said
    assert what == "counts dropped"
    assert says is not None
    assert says.startswith("2 counts of flows by second were dropped, since more than 4 waited")
    assert files.behind_rows == 3
    assert files._counts == {(3, "a"): 1, (4, "a"): 1, (5, "a"): 10}  # the newer ones
    files.write_counts([(6, "a", 1), (7, "a", 1)])
    assert said[1][1] is not None
    assert said[1][1].startswith("4 counts")  # in all
    files.write_counts([(7, "a", 1)])
    assert len(said) == 2
    monkeypatch.setattr(stream_files, "_SHOWN", -1.0)
    files.write_counts([(7, "a", 1)])
    assert said[2:] == [("counts dropped", None)]
    files.write_counts([(7, "a", 1)])
    assert len(said) == 3


def test_counts_that_no_stream_read_before_its_folder_is_emptied_are_told(tmp_path: Path) -> None:
    said: list[tuple[str, str | None]] = []

    async def work() -> None:
        files = StreamFiles(
            tmp_path / "s",
            counts_every=0.05,
            trouble=lambda what, who, says: said.append((what, says)),
        )
        files.begin()
        writing = asyncio.create_task(files.run())
        files.write_interest(1.0, [("r", "a", True)])
        files.write_counts([(5, "a", 2), (5, "b", 1), (6, "a", 3)])
        await written(files, files.publications, 3)
        while len(files._unread) < 2:
            await asyncio.sleep(0.02)
        files.begin()
        files.begin()
        writing.cancel()

    run(work())
    ((what, says),) = said
    assert what == "counts dropped"
    assert says is not None
    assert says.startswith(
        "3 counts of flows by second were dropped, which the stream had not read"
    )


def test_a_stream_that_does_not_read_finds_a_bounded_number_of_files(tmp_path: Path) -> None:
    said: list[tuple[str, str | None]] = []

    async def work() -> None:
        files = StreamFiles(
            tmp_path / "s",
            counts_every=0.01,
            trouble=lambda what, who, says: said.append((what, says)),
            most_files=5,
        )
        files.begin()
        writing = asyncio.create_task(files.run())
        for second in range(40):
            files.write_interest(second, [("r", "a", second % 2 == 0), ("r", f"f{second}", True)])
            files.write_counts([(second, "a", 1)])
            await asyncio.sleep(0.06)
        (told,) = said
        assert told[0] == "stream not reading"
        assert told[1] is not None
        assert " files wait for the stream, the oldest since 20" in told[1]
        assert len(files._unread) <= 6
        files.note_read(len(files._unread))
        rows = await written(files, files.subscriptions, 42)
        assert replay(rows) == {("r", f"f{second}") for second in range(40)}
        counts = await written(files, files.publications, 40)
        assert sum(row["count"] for row in counts) == 40
        assert said[1:] == [("stream not reading", None)]
        writing.cancel()

    run(work())


async def fill_and_free(folder: Path) -> None:
    """In a small file system: no row is lost while it is full, and an alarm says that it is."""
    said: list[str | None] = []
    files = StreamFiles(
        folder / "s", counts_every=0.05, trouble=lambda what, who, says: said.append(says)
    )
    files.begin()
    writing = asyncio.create_task(files.run())
    filler = folder / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4_096))
    sent: Counter[str] = Counter()
    for second in range(100):
        files.write_interest(second, [("r", f"flow {second}", True)])
        files.write_counts([(second, f"flow {second}", second + 1)])
        sent[f"flow {second}"] += second + 1
        await asyncio.sleep(0.01)
    while not said:
        await asyncio.sleep(0.02)
    assert said[0] is not None
    assert "no space left" in said[0]
    assert "free some space" in said[0]
    filler.unlink()
    while said[-1] is not None:
        await asyncio.sleep(0.02)
    counts = await written(files, files.publications, 100)
    assert Counter({row["flow"]: row["count"] for row in counts}) == sent
    assert len(replay(await written(files, files.subscriptions, 100))) == 100
    assert not list(folder.rglob("*.tmp"))
    writing.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")
def test_nothing_is_lost_on_a_full_disk(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.control.nats import test_stream_files"
    code += "; test_stream_files.run(test_stream_files.fill_and_free(Path(sys.argv[1])))"
    mount = 'mount -t tmpfs -o size=1m tmpfs "$1"; exec "$2" -c "$3" "$1"'
    words = ["sh", "-ec", mount, "sh", str(tmp_path), sys.executable, code]
    ran = subprocess.run(
        ["unshare", "-rm", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
