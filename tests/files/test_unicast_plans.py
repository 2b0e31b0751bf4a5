from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.files import StoredPlan, read_plan, read_previous, write_plan
from distributary.model import plan_problems
from tests.files.test_plans import INTEREST, refused, stored
from tests.strategies import any_plans, interests

# z goes to c by unicast; x and y share the only session.
CHANGES = {
    "placements.csv": "flow,session\nx,0\ny,0\n",
    "sessions.csv": "session,group\n0,0\n",
    "subscriptions.csv": "receiver,session,group\na,0,0\nb,0,0\n",
    "unicast.csv": "receiver,flow\nc,z\n",
}


@pytest.mark.parametrize("table_format", ["parquet", "csv", "jsonl"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_unicast_pairs_come_back_as_they_were_written(
    table_format: str, folder: Path, data: st.DataObject
) -> None:
    interest = data.draw(interests())
    plan = data.draw(any_plans(interest))
    pair = st.tuples(st.integers(0, len(plan.receivers) - 1), st.integers(0, len(plan.flows) - 1))
    receiver, flow = np.array(sorted(data.draw(st.sets(pair))), np.int32).reshape(-1, 2).T
    plan = replace(plan, unicast_receiver=receiver, unicast_flow=flow)
    write_plan(plan, {}, folder / "plan", table_format=table_format)
    assert read_plan(folder / "plan", interest) == StoredPlan(plan, {})
    written = {path.stem for path in (folder / "plan").iterdir()}
    assert ("unicast" in written) == (len(flow) > 0)


def test_the_table_looks_as_documented(tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path, **CHANGES), INTEREST).plan
    assert plan_problems(plan, INTEREST) == ()
    write_plan(plan, {}, tmp_path / "plan")
    schema = pq.read_schema(tmp_path / "plan" / "unicast.parquet")
    assert schema == pa.schema([("receiver", pa.string()), ("flow", pa.string())])


def test_a_plan_without_unicast_leaves_no_table_of_one_that_had_it(tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path, **CHANGES), INTEREST).plan
    nobody = np.empty(0, np.int32)
    alone = replace(plan, unicast_receiver=nobody, unicast_flow=nobody)
    write_plan(alone, {}, tmp_path / "never")
    write_plan(plan, {}, tmp_path / "once")
    write_plan(alone, {}, tmp_path / "once")
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("never", "once")
    ]
    assert files[0] == files[1]
    assert sorted(files[0]) == [
        "placements.parquet", "plan.json", "sessions.parquet", "subscriptions.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["receiver,flow\nc,z\nc,z\n", "flow,more,receiver\nz,1,c\n"])
def test_repeated_rows_and_other_columns_do_not_matter(text: str, tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path, **CHANGES | {"unicast.csv": text}), INTEREST).plan
    assert (plan.unicast_receiver.tolist(), plan.unicast_flow.tolist()) == ([2], [2])


@pytest.mark.parametrize("text", ["receiver,flow\n", ""])
def test_an_empty_table_is_no_unicast(text: str, tmp_path: Path) -> None:
    plan = read_plan(stored(tmp_path, **CHANGES | {"unicast.csv": text}), INTEREST).plan
    assert plan.unicast_flows == 0


@pytest.mark.parametrize(
    ("text", "row", "value", "words"),
    [
        ("receiver,flow\nc,z\nq,z\n", 2, "q", "'q' wants nothing"),
        ("receiver,flow\nc,q\n", 1, "q", "'q' is wanted by nobody"),
        ("receiver,flow\nc,\n", 1, "", "flow"),
        ("receiver,session\nc,0\n", None, "flow", "no column 'flow'"),
    ],
)
def test_a_unicast_table_that_fits_nothing_is_refused(
    text: str, row: int | None, value: object, words: str, tmp_path: Path
) -> None:
    error = refused(stored(tmp_path, **CHANGES | {"unicast.csv": text}))
    assert (error.path, error.row, error.value) == (str(tmp_path / "unicast.csv"), row, value)
    assert words in str(error)


def test_the_table_may_be_there_only_once(tmp_path: Path) -> None:
    folder = stored(tmp_path, **CHANGES, **{"unicast.jsonl": '{"receiver":"c","flow":"z"}\n'})
    with pytest.raises(InputError, match="'unicast' more than once"):
        read_plan(folder, INTEREST)


def test_flows_sent_by_unicast_are_new_to_whoever_starts_from_the_plan(tmp_path: Path) -> None:
    assert read_previous(stored(tmp_path, **CHANGES)).session_of == {"x": 0, "y": 0}


def test_a_previous_plan_says_where_each_receiver_got_a_flow_of_several_places(
    tmp_path: Path,
) -> None:
    changes = {
        "placements.csv": "flow,session\nx,0\nx,1\ny,0\n",
        "sessions.csv": "session,group\n0,0\n1,0\n",
        "subscriptions.csv": "receiver,session,group\na,0,0\nb,1,0\nd,0,0\nd,1,0\n",
        "unicast.csv": "receiver,flow\nc,x\n",
    }
    previous = read_previous(stored(tmp_path, **changes))
    assert previous.session_of == {"y": 0}
    assert previous.several == {"x": frozenset({-1, 0, 1})}
    assert [previous.place_of("x", name) for name in "abcde"] == [0, 1, -1, 0, None]
