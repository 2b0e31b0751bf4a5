"""Good and bad rows of any table: each is used, a duplicate, or put aside with its reason."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.files import BadTablesError, read_demand, read_pins
from distributary.model import Interest
from tests.strategies import names

PAIRS = st.tuples(names() | st.sampled_from(["", None]), names() | st.just(""))
NUMBERS = st.sampled_from([0.0, -1.0, None, float("nan"), float("inf")]) | st.floats(0.5, 9)


def write(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerows([columns, *rows])
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows]
        path.write_text("".join(lines))
    else:
        arrays = {
            name: pa.array(
                [row[i] for row in rows], pa.float64() if name == "rate" else pa.string()
            )
            for i, name in enumerate(columns)
        }
        pq.write_table(pa.table(arrays), path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@given(pairs=st.lists(PAIRS, min_size=1), rates=st.lists(st.tuples(names(), NUMBERS), min_size=1))
def test_rows_read_are_rows_used_repeated_and_put_aside(
    kind: str, folder: Path, pairs: list[tuple[str | None, str]], rates: list[tuple[str, Any]]
) -> None:
    interest, rated = folder / f"interest.{kind}", folder / f"rates.{kind}"
    write(interest, ("receiver", "flow"), pairs)
    write(rated, ("flow", "rate"), rates)
    good = {(receiver, flow) for receiver, flow in pairs if receiver and flow}
    usable = [rate is not None and 0 < rate < float("inf") for _, rate in rates]
    if not good or not any(usable):
        with pytest.raises(BadTablesError):
            read_demand(interest, rated, max_bad=1, floor=1.0)
        return
    found = read_demand(interest, rated, max_bad=1, floor=1.0)
    assert found.interest.value == Interest.from_pairs(good)
    assert found.interest.rows == len(pairs)
    assert found.interest.used == len(good)
    bad = Counter("no receiver" if not r else "no flow" for r, f in pairs if not (r and f))
    assert found.interest.reasons == dict(bad)
    assert found.rates.rows == len(rates)
    conflicts = sum(
        number for reason, number in found.rates.reasons.items() if "earlier row" in reason
    )
    assert len(found.rates.bad) - conflicts == len(rates) - sum(usable)
    first = {
        flow: rate for (flow, rate), fine in reversed(list(zip(rates, usable, strict=True))) if fine
    }
    assert found.rates.used == len(first)
    value = found.rates.value
    known = dict(zip(value.flows, value.rate.tolist(), strict=True))
    assert known == dict.fromkeys(found.interest.value.flows, 1.0) | first
    for row in found.bad:
        assert row.raw
        assert row.path in (interest, rated)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_bad_rows_of_parts_are_named_by_part_and_row(kind: str, tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    write(tmp_path / f"i/0.{kind}", ("receiver", "flow"), [("ann", "a"), ("", "b"), ("bob", "b")])
    write(tmp_path / f"i/1.{kind}", ("receiver", "flow"), [("", "a"), ("cyd", "c")])
    (tmp_path / "r").mkdir()
    write(tmp_path / f"r/0.{kind}", ("flow", "rate"), [("a", 0.0), ("a", 1.0), ("b", 2.0)])
    write(tmp_path / f"r/1.{kind}", ("flow", "rate"), [("b", 3.0), ("c", 2.0), ("a", 9.0)])
    found = read_demand(tmp_path / "i", tmp_path / "r", max_bad=0.6)
    places = [(row.path.name, row.row) for row in found.bad]
    assert places == [
        (f"0.{kind}", 2), (f"1.{kind}", 1), (f"0.{kind}", 1), (f"1.{kind}", 1), (f"1.{kind}", 3)
    ]  # fmt: skip
    assert found.demand.rate.tolist() == [1.0, 2.0, 2.0]


def test_every_table_tells_all_its_kinds_of_faults_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pins.csv"
    path.write_text("flow,group\na,1\n,2\nb,x\nc,1.5\nd\n,9\n")
    with pytest.raises(InputError) as caught:
        read_pins(path)
    said = str(caught.value)
    assert f"{path}, row 2: flow is empty (and 1 more row like it)" in said
    assert "row 3: group is 'x' (and 1 more row like it)" in said
    assert "row 5: has 1 of 2 fields" in said
    assert (caught.value.row, caught.value.value) == (2, "")


def test_a_stray_quote_costs_one_row_and_not_the_rest_of_the_file(tmp_path: Path) -> None:
    interest, rates = tmp_path / "interest.csv", tmp_path / "rates.csv"
    rows = "".join(f"r{number},f\n" for number in range(200))
    interest.write_text(f'receiver,flow\n"ann,f\n{rows}bob,"f"x\n"cy\nd",f\n')
    rates.write_text("flow,rate\nf,1\n")
    found = read_demand(interest, rates, max_bad=0.1)
    assert [(row.row, row.raw) for row in found.bad] == [(1, '"ann,f'), (202, 'bob,"f"x')]
    assert "cy\nd" in found.interest.value.receivers
    assert found.interest.rows == 203
