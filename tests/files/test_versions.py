"""Readers on this machine's disk follow the pointer of an output that has versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from distributary.errors import InputError
from distributary.files import read_interest, read_plan, read_stored_terms
from distributary.files.versions import follow_pointer
from tests.in_process import call_main

from .test_plans import INTEREST, stored

OLD, NEW = "20260101T000000Z-00000001", "20260102T000000Z-00000002"


def add_version(out: Path, name: str, algorithm: str) -> None:
    """Write a version and put it in force."""
    plan = out / "versions" / name / "plan"
    plan.mkdir(parents=True)
    stored(plan, **{"plan.json": json.dumps({"format": 1, "algorithm": algorithm})})
    table = plan.parent / "interest" / "part-00000.csv"
    table.parent.mkdir()
    table.write_text("receiver,flow\na,x\na,y\nb,y\nc,z\n")
    document = {"format": 1, "version": name, "files": 5, "written": "", "previous": None}
    (out / "CURRENT").write_text(json.dumps(document) + "\n")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    add_version(tmp_path / "run", OLD, "old")
    add_version(tmp_path / "run", NEW, "new")
    return tmp_path / "run"


def test_readers_find_the_version_in_force(out: Path) -> None:
    assert read_plan(out / "plan").metadata["algorithm"] == "new"
    assert NEW in str(read_stored_terms(out / "plan").path)
    assert read_interest(out / "interest").value == INTEREST
    assert follow_pointer(out) == out / "versions" / NEW
    assert follow_pointer(out / "plan" / "plan.json").is_file()


def test_a_version_that_is_named_is_the_one_that_is_read(out: Path) -> None:
    plan = out / "versions" / OLD / "plan"
    assert read_plan(plan).metadata["algorithm"] == "old"
    assert follow_pointer(plan / "nothing") == plan / "nothing"


def test_paths_without_a_pointer_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "run" / "plan").mkdir(parents=True)
    for path in (tmp_path / "run" / "plan", tmp_path / "none" / "plan", Path("."), Path("no/no")):
        assert follow_pointer(path) == path


def test_a_version_that_is_gone_or_copied_in_part_gets_one_line(out: Path) -> None:
    (out / "versions" / NEW / "plan" / "placements.csv").unlink()
    with pytest.raises(InputError, match=rf"CURRENT: names version {NEW}, which has 4 of its 5 "):
        read_plan(out / "plan")
    shutil.rmtree(out / "versions" / NEW)
    with pytest.raises(InputError, match=rf"which is gone; copy it again, .* or name .*{OLD}"):
        read_interest(out / "interest")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_pointer_gets_one_line(out: Path, text: bytes) -> None:
    (out / "CURRENT").write_bytes(text)
    with pytest.raises(InputError, match=r"CURRENT: is damaged.*; remove it and run") as caught:
        read_plan(out / "plan")
    assert "\n" not in str(caught.value)


def test_commands_follow_it(out: Path) -> None:
    (out.parent / "rates.csv").write_text("flow,rate\nx,1\ny,1\nz,1\n")
    words = ("evaluate", "run/plan", "--interest", "run/interest", "--rates", "rates.csv")
    status, printed, err = call_main(("distributary", *words), out.parent)
    assert (status, err) == (0, "the plan was made from other interest or rates than these\n")
    assert "3 flows to 3 receivers" in printed


@pytest.mark.parametrize("uri", ["s3a://bucket/run/plan", "file:///run/plan"])
def test_a_uri_gets_one_line(out: Path, uri: str) -> None:
    words = ("evaluate", uri, "--interest", "run/interest", "--rates", "run/rates")
    status, _, err = call_main(("distributary", *words), out.parent)
    assert status == 1
    assert "only `pipeline` commands read from other places than this machine's disk; copy" in err
