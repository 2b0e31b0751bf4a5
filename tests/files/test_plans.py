from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.files import StoredPlan, read_plan, write_plan
from distributary.model import Interest, Plan, plan_problems
from tests.strategies import any_plans, interests

INTEREST = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("c", "z")])

# A valid plan for it, as somebody would write it by hand.
TABLES = {
    "plan.json": '{"format": 1, "algorithm": "by hand"}',
    "placements.csv": "flow,session\nx,0\ny,0\nz,1\n",
    "sessions.csv": "session,group\n0,0\n1,1\n",
    "subscriptions.csv": "receiver,session,group\na,0,0\nb,0,0\nc,1,1\n",
}


def stored(folder: Path, **changes: str | None) -> Path:
    """A plan folder of `TABLES`, some of them changed; None leaves one out."""
    for name, text in {**TABLES, **changes}.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def refused(folder: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_plan(folder, INTEREST)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("table_format", ["parquet", "csv", "jsonl"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_plan_comes_back_as_it_was_written(
    table_format: str, folder: Path, data: st.DataObject
) -> None:
    interest = data.draw(interests())
    plan = data.draw(any_plans(interest))
    metadata: dict[str, Any] = {"algorithm": "drawn", "seed": 1, "costs": {"work": 0.1}}
    write_plan(plan, metadata, folder / "plan", table_format=table_format)
    back = read_plan(folder / "plan", interest)
    assert back == StoredPlan(plan, metadata)


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path), INTEREST).plan
    for name, metadata in (("1", {"a": 1, "b": [2]}), ("2", {"b": [2], "a": 1})):
        write_plan(plan, metadata, tmp_path / name)
    for file in (tmp_path / "1").iterdir():
        assert file.read_bytes() == (tmp_path / "2" / file.name).read_bytes()


def test_a_plan_folder_looks_as_documented(tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path), INTEREST).plan
    write_plan(plan, {"seed": np.int64(7), "algorithm": "é"}, tmp_path / "plan")
    text = (tmp_path / "plan" / "plan.json").read_text()
    assert text == '{\n  "algorithm": "\\u00e9",\n  "format": 1,\n  "seed": 7\n}\n'
    schemas = {file.stem: pq.read_schema(file) for file in (tmp_path / "plan").glob("*.parquet")}
    session, group = ("session", pa.int32()), ("group", pa.int32())
    assert schemas == {
        "placements": pa.schema([("flow", pa.string()), session]),
        "sessions": pa.schema([session, group]),
        "subscriptions": pa.schema([("receiver", pa.string()), session, group]),
    }


def test_a_plan_written_by_hand_is_read(tmp_path: Path) -> None:
    back = read_plan(stored(tmp_path), INTEREST)
    assert back.metadata == {"algorithm": "by hand"}
    assert plan_problems(back.plan, INTEREST) == ()


def test_repeated_rows_and_their_order_do_not_matter(tmp_path: Path) -> None:
    expected = read_plan(stored(tmp_path), INTEREST).plan
    changed = {
        name: f"{text}{text.splitlines()[1]}\n" for name, text in TABLES.items() if "csv" in name
    }
    assert read_plan(stored(tmp_path, **changed), INTEREST).plan == expected


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"subscriptions.csv": "receiver,session,group\na,0,0\nc,1,1\n"}, "'b' misses flow 'y'"),
        ({"subscriptions.csv": "receiver,session,group\n"}, "wanted pairs are not served"),
        ({"placements.csv": "flow,session\nx,0\ny,0\n"}, "session 1 carries no flow"),
        ({"placements.csv": "flow,session\n"}, "wanted pairs are not served"),
        ({"placements.csv": ""}, "wanted pairs are not served"),
        ({"sessions.csv": "session,group\n0,0\n1,1\n2,3\n"}, "session 2 has no subscriber"),
        ({"sessions.csv": "session,group\n0,0\n1,1\n2,3\n"}, "group 2 holds no session"),
    ],
)
def test_a_plan_that_serves_badly_is_still_read(
    changes: dict[str, str], problem: str, tmp_path: Path
) -> None:
    back = read_plan(stored(tmp_path, **changes), INTEREST)
    assert any(problem in found for found in plan_problems(back.plan, INTEREST))


@pytest.mark.parametrize(
    ("name", "text", "row", "value", "words"),
    [
        ("placements", "flow,session\nx,0\nq,0\n", 2, "q", "'q' is wanted by nobody"),
        ("placements", "flow,session\nx,0\ny,2\n", 2, 2, "not listed in sessions.csv"),
        ("placements", "flow,session\nx,-1\n", 1, -1, "not listed in sessions.csv"),
        ("placements", "flow,session\nx,0.5\n", 1, "0.5", "whole number"),
        ("placements", "flow,session\nx,\n", 1, None, "session is missing"),
        ("placements", "flow,sess\nx,0\n", None, "session", "no column 'session'"),
        ("sessions", "session,group\n0,0\n2,1\n", 2, 2, "without gaps"),
        ("sessions", "session,group\n1,0\n2,1\n", 2, 2, "without gaps"),
        ("sessions", "session,group\n-1,0\n0,1\n", 1, -1, "without gaps"),
        ("sessions", "session,group\n0,0\n1,-1\n", 2, -1, "group -1"),
        ("sessions", "session,group\n0,0\n1,99999999\n", 2, 99999999, "out of range"),
        ("sessions", "session,group\n0,0\n1,1\n0,1\n", 3, 0, "group 0 in row 1"),
        ("sessions", "session,group\n", None, None, "holds no rows"),
        ("sessions", "session,group\n0,9999999999999999999\n", 1, "9" * 19, "whole number"),
        ("subscriptions", "receiver,session,group\nq,0,0\n", 1, "q", "'q' wants nothing"),
        ("subscriptions", "receiver,session,group\na,5,0\n", 1, 5, "not listed"),
        ("subscriptions", "receiver,session,group\na,0,0\nb,0,1\n", 2, 1, "in group 0, not 1"),
        ("subscriptions", "receiver,session\na,0\n", None, "group", "no column 'group'"),
    ],
)
def test_a_plan_table_that_fits_nothing_is_refused(
    name: str, text: str, row: int | None, value: object, words: str, tmp_path: Path
) -> None:
    error = refused(stored(tmp_path, **{f"{name}.csv": text}))
    assert (error.path, error.row, error.value) == (str(tmp_path / f"{name}.csv"), row, value)
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("{", None, "does not parse"),
        ("\ufeff\x00", None, "does not parse"),
        ("[1]", None, "not a JSON object"),
        ("{}", None, "has format None"),
        ('{"format": 2}', 2, "has format 2"),
        ('{"format": true}', True, "has format True"),
        ('{"format": "1"}', "1", "has format '1'"),
    ],
)
def test_a_bad_manifest_is_refused(text: str, value: object, words: str, tmp_path: Path) -> None:
    error = refused(stored(tmp_path, **{"plan.json": text}))
    assert (error.path, error.value) == (str(tmp_path / "plan.json"), value)
    assert words in str(error)


def test_a_folder_without_a_manifest_is_no_plan(tmp_path: Path) -> None:
    assert "no plan.json" in str(refused(stored(tmp_path, **{"plan.json": None})))


def test_a_plan_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing").path == str(tmp_path / "nothing")
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file").path == str(tmp_path / "file")


def test_each_table_must_be_there_once(tmp_path: Path) -> None:
    error = refused(stored(tmp_path, **{"sessions.csv": None}))
    assert (error.path, error.value) == (str(tmp_path), "sessions")
    stored(tmp_path, **{"sessions.jsonl": json.dumps({"session": 0, "group": 0})})
    assert "more than once" in str(refused(stored(tmp_path)))


def test_metadata_that_json_cannot_hold_is_the_callers_mistake(tmp_path: Path) -> None:
    plan: Plan = read_plan(stored(tmp_path), INTEREST).plan
    with pytest.raises(ValueError, match="JSON compliant"):
        write_plan(plan, {"cost": float("nan")}, tmp_path / "new")
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        write_plan(plan, {"cost": object()}, tmp_path / "new")
    with pytest.raises(ValueError, match="'parquet', 'csv', 'jsonl'"):
        write_plan(plan, {}, tmp_path / "new", table_format="xls")
    assert not (tmp_path / "new").exists()
