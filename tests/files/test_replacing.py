from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from distributary.errors import OutputError
from distributary.files import read_plan, write_interest, write_plan
from distributary.files.replacing import replace_file, replace_folder
from distributary.model import Interest, Plan

INTEREST = Interest.from_pairs([("a", "x")])


def plan_in_group(group: int) -> Plan:
    zero = np.zeros(1, np.int32)
    return Plan(("a",), ("x",), zero, zero, np.array([group], np.int32), zero, zero)


def things(folder: Path) -> list[str]:
    """Everything in a folder, temporary names included."""
    return sorted(path.name for path in folder.iterdir())


def test_a_plan_is_replaced_whole(tmp_path: Path) -> None:
    write_plan(plan_in_group(1), {"n": 1}, tmp_path / "plan", table_format="csv")
    write_plan(plan_in_group(2), {"n": 2}, tmp_path / "plan")
    back = read_plan(tmp_path / "plan", INTEREST)
    assert (back.plan, back.metadata) == (plan_in_group(2), {"n": 2})
    assert things(tmp_path) == ["plan"]
    assert len(things(tmp_path / "plan")) == 4


def test_an_empty_folder_and_a_missing_parent_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_plan(plan_in_group(1), {}, tmp_path / "empty")
    write_plan(plan_in_group(1), {}, tmp_path / "not" / "there")
    for folder in (tmp_path / "empty", tmp_path / "not" / "there"):
        assert read_plan(folder, INTEREST).plan == plan_in_group(1)


def test_a_link_to_a_plan_stays_a_link(tmp_path: Path) -> None:
    write_plan(plan_in_group(1), {}, tmp_path / "plan")
    (tmp_path / "latest").symlink_to("plan")
    write_plan(plan_in_group(2), {}, tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert read_plan(tmp_path / "plan", INTEREST).plan == plan_in_group(2)


def test_a_folder_that_is_not_a_plan_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="not a plan") as caught:
        write_plan(plan_in_group(1), {}, tmp_path)
    assert caught.value.path == str(tmp_path)
    assert things(tmp_path) == ["thesis.txt"]
    assert things(tmp_path.parent).count(tmp_path.name) == 1


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("years of work")
    with pytest.raises(OutputError, match="is a file"):
        write_plan(plan_in_group(1), {}, tmp_path / "plan")
    with pytest.raises(OutputError, match="cannot be written"):
        write_plan(plan_in_group(1), {}, tmp_path / "plan" / "inside")
    assert (tmp_path / "plan").read_text() == "years of work"
    assert things(tmp_path) == ["plan"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("moment", ["while writing", "at the last rename"])
def test_failing_midway_leaves_the_old_plan_whole(
    error: BaseException, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(plan_in_group(1), {}, tmp_path / "plan")
    whole = {path.name: path.read_bytes() for path in (tmp_path / "plan").iterdir()}

    def fail(path: Path, target: object, **_: object) -> None:
        if moment == "while writing" or path.name == "new":
            raise error
        os.rename(path, target)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text" if moment == "while writing" else "rename", fail)
    expected = OutputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_plan(plan_in_group(2), {}, tmp_path / "plan")
    if isinstance(caught.value, OutputError):
        assert str(caught.value).startswith(f"{tmp_path / 'plan'}: cannot be written: no space")
    assert things(tmp_path) == ["plan"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "plan").iterdir()} == whole


def test_an_old_folder_that_cannot_be_moved_back_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").write_text("years of work")

    def only_aside(path: Path, target: Path) -> None:
        if path.name != "target":
            raise OSError(5, "Input/output error")
        os.rename(path, target)

    monkeypatch.setattr(Path, "rename", only_aside)
    with (
        pytest.raises(OutputError),
        replace_folder(tmp_path / "target", lambda _: True, "plan") as new,
    ):
        (new / "new").touch()
    assert [path.read_text() for path in tmp_path.rglob("old") if path.is_file()] == [
        "years of work"
    ]


def test_a_file_that_fails_midway_keeps_its_old_content(tmp_path: Path) -> None:
    path = tmp_path / "interest.csv"
    path.write_text("old")

    def write_half() -> None:
        with replace_file(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert things(tmp_path) == ["interest.csv"]


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    write_interest(INTEREST, tmp_path / "interest.csv")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_table_does_not_replace_a_folder(tmp_path: Path) -> None:
    (tmp_path / "interest.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        write_interest(INTEREST, tmp_path / "interest.csv")


# --- what a killed writer leaves behind ----------------------------------------------------------

WRITE_HALF = """
import sys
from distributary.files.replacing import replace_file, replace_folder

kind, target = sys.argv[1:]
if kind == "file":
    with replace_file(target) as file:
        file.write(b"half")
        file.flush()
        print("half", flush=True)
        sys.stdin.read()
else:
    with replace_folder(target, lambda _: True, "plan") as new:
        (new / "half").touch()
        print("half", flush=True)
        sys.stdin.read()
"""


@contextmanager
def writer(kind: str, target: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has written half of something."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_HALF, kind, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "half\n"
            yield process
        finally:
            process.kill()


def write(kind: str, target: Path) -> None:
    if kind == "file":
        with replace_file(target) as file:
            file.write(b"whole")
    else:
        with replace_folder(target, lambda _: True, "plan") as new:
            (new / "whole").touch()


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("name", ["out", "ö" * 127, "[a]*?"])
def test_what_a_killed_writer_left_is_removed_when_the_same_output_is_written_again(
    tmp_path: Path, kind: str, name: str
) -> None:
    target, other = tmp_path / name, tmp_path / "other"
    with writer(kind, target) as first, writer(kind, other) as second:
        for process in (first, second):
            process.kill()
            process.wait()
    assert len(things(tmp_path)) == 2
    write(kind, target)
    left = [thing for thing in things(tmp_path) if thing != name]
    assert len(left) == 1, "the other output's is not ours to remove"
    write(kind, other)
    assert things(tmp_path) == sorted([name, "other"])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_somebody_is_writing_is_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    with writer(kind, target) as other:
        write(kind, target)
        assert len(things(tmp_path)) == 2
        other.communicate("")
        assert other.returncode == 0
    assert things(tmp_path) == ["out"]
    last = target.read_bytes() if kind == "file" else things(target)
    assert last == (b"half" if kind == "file" else ["half"])


def test_a_folder_whose_writer_was_killed_between_two_renames_is_put_back(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").touch()
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from distributary.files.replacing import replace_folder\n"
        "rename = Path.rename\n"
        "def die_at_the_second(path, to):\n"
        "    if path.name == 'new':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    rename(path, to)\n"
        "Path.rename = die_at_the_second\n"
        "with replace_folder(sys.argv[1], lambda _: True, 'plan') as new:\n"
        "    (new / 'new').touch()\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    seen = []

    def may_replace(folder: Path) -> bool:
        seen.extend(things(folder))
        return False

    with pytest.raises(OutputError), replace_folder(target, may_replace, "plan"):
        pytest.fail("there is an old folder to be asked about")
    assert seen == ["old"]
    assert things(tmp_path) == ["out"]
    assert things(target) == ["old"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_system_without_locks_will_do(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with writer(kind, tmp_path / "out"):
        write(kind, tmp_path / "out")
        assert len(things(tmp_path)) == 2
