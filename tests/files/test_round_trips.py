from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributary.errors import OutputError
from distributary.files import read_interest, read_rates, write_interest, write_rates
from distributary.files.csv import write_csv
from distributary.files.jsonl import write_jsonl
from distributary.files.parquet import write_parquet
from distributary.model import Interest, Rates
from tests.strategies import AWKWARD, interests, names, rates

FORMATS = ("parquet", "csv", "jsonl")
WRITERS = {"parquet": write_parquet, "csv": write_csv, "jsonl": write_jsonl}
EVERY_AWKWARD_NAME = Interest.from_pairs(zip(AWKWARD, reversed(AWKWARD), strict=True))

formats = pytest.mark.parametrize("kind", FORMATS)


@formats
@settings(deadline=None)
@given(interest=interests())
@example(interest=EVERY_AWKWARD_NAME)
def test_an_interest_comes_back_as_it_was_written(
    kind: str, folder: Path, interest: Interest
) -> None:
    path = folder / f"interest.{kind}"
    write_interest(interest, path)
    intake = read_interest(path)
    assert intake.value == interest
    assert (intake.rows, intake.duplicates) == (interest.pairs, 0)


@formats
@settings(deadline=None)
@given(table=rates())
def test_rates_come_back_to_the_last_bit(kind: str, folder: Path, table: Rates) -> None:
    path = folder / f"rates.{kind}"
    write_rates(table, path)
    assert read_rates(path).value == table


@formats
@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(names(), names()), min_size=1, max_size=12),
    extra=st.randoms(use_true_random=False),
)
def test_row_order_and_repeats_do_not_matter(
    kind: str, folder: Path, pairs: list[tuple[str, str]], extra: Random
) -> None:
    shuffled = pairs + extra.choices(pairs, k=3)
    extra.shuffle(shuffled)
    path = folder / f"shuffled.{kind}"
    _write_pairs(shuffled, path, kind)
    intake = read_interest(path)
    assert intake.value == Interest.from_pairs(pairs)
    assert (intake.rows, intake.duplicates) == (len(shuffled), len(shuffled) - len(set(pairs)))


@formats
def test_a_folder_of_parts_is_one_table(kind: str, tmp_path: Path) -> None:
    _write_pairs([("a", "x"), ("b", "y")], tmp_path / f"part-0.{kind}", kind)
    _write_pairs([("c", "x"), ("a", "x")], tmp_path / f"part-1.snappy.{kind}", kind)
    _write_pairs([], tmp_path / f"part-2.{kind}", kind)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / f".part-0.{kind}.crc").write_bytes(b"\0")
    intake = read_interest(tmp_path)
    assert intake.value == Interest.from_pairs([("a", "x"), ("b", "y"), ("c", "x")])
    assert (intake.rows, intake.duplicates) == (4, 1)


@pytest.mark.parametrize("name", ["t.pq", "t.PARQUET", "t.Csv", "t.ndjson", "t.json"])
def test_every_documented_extension_is_known(name: str, tmp_path: Path) -> None:
    interest = Interest.from_pairs([("a", "x")])
    write_interest(interest, tmp_path / name)
    assert read_interest(tmp_path / name).value == interest


def test_repeated_rates_collapse_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("flow,rate,size\nb,2,10\na,1,20\nb,2.0,1e1\n")
    intake = read_rates(path)
    assert (intake.rows, intake.duplicates) == (3, 1)
    assert intake.value == Rates(("a", "b"), np.array([1.0, 2.0]), np.array([20.0, 10.0]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.float32()),
        pa.array([1, 2], pa.float16()),
        pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(5, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_rates_of_any_number_type_become_doubles(column: pa.Array, tmp_path: Path) -> None:
    path = tmp_path / "rates.parquet"
    pq.write_table(pa.table({"flow": ["a", "b"], "rate": column}), path)
    assert read_rates(path).value == Rates.from_mapping({"a": 1.0, "b": 2.0})


@pytest.mark.parametrize(
    "arrow_type",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_names_of_any_string_type_are_read(arrow_type: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "interest.parquet"
    pairs = {"receiver": ["a", "b"], "flow": ["x", "y"]}
    pq.write_table(pa.table({name: pa.array(ids, arrow_type) for name, ids in pairs.items()}), path)
    assert read_interest(path).value == Interest.from_pairs([("a", "x"), ("b", "y")])


def test_a_parquet_dictionary_may_list_names_that_no_row_has(tmp_path: Path) -> None:
    path = tmp_path / "interest.parquet"
    flow = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["y", "", "x"]))
    pq.write_table(pa.table({"receiver": ["a", "b"], "flow": flow}), path)
    assert read_interest(path).value == Interest.from_pairs([("a", "x"), ("b", "y")])


@pytest.mark.parametrize(
    "text",
    [
        '{"receiver": "a", "flow": "x"}\r\n\r\n{"flow": "y", "receiver": "b"}',
        '\ufeff{"receiver": "a", "flow": "x", "more": {"deep": [1, null]}}\n'
        '  {"receiver": "b", "flow": "y", "more": 3}\n',
    ],
)
def test_json_lines_may_be_blank_indented_nested_and_marked(text: str, tmp_path: Path) -> None:
    path = tmp_path / "interest.jsonl"
    path.write_text(text, encoding="utf-8")
    assert read_interest(path).value == Interest.from_pairs([("a", "x"), ("b", "y")])


def test_csv_ids_are_never_taken_for_something_else(tmp_path: Path) -> None:
    path = tmp_path / "interest.csv"
    path.write_bytes(
        b'\xef\xbb\xbfflow,note,receiver\r\nNA,,1\r\n\r\nnull,"x,\ny",true\r\n1.0,z,01'
    )
    expected = [("1", "NA"), ("true", "null"), ("01", "1.0")]
    assert read_interest(path).value == Interest.from_pairs(expected)


@formats
def test_spark_and_pandas_see_plain_columns(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rates.{kind}"
    write_rates(Rates.from_mapping({"a": 1.5, "b": 2.0}), path)
    rows = [{"flow": "a", "rate": 1.5}, {"flow": "b", "rate": 2.0}]
    if kind == "parquet":
        assert pq.read_schema(path) == pa.schema({"flow": pa.string(), "rate": pa.float64()})
        assert pq.read_table(path).to_pylist() == rows
    elif kind == "csv":
        assert pyarrow.csv.read_csv(path).to_pylist() == rows
    else:
        assert [json.loads(line) for line in path.read_text().splitlines()] == rows


@formats
def test_half_a_surrogate_pair_is_refused_and_nothing_written(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"flow 'x\\ud800' is not Unicode"):
        write_interest(Interest.from_pairs([("a", "x\ud800")]), tmp_path / f"interest.{kind}")
    assert list(tmp_path.iterdir()) == []


def test_writing_needs_a_known_extension(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"'\.xls'.*\.parquet, \.pq, \.csv"):
        write_interest(Interest.from_pairs([("a", "x")]), tmp_path / "interest.xls")


def _write_pairs(pairs: list[tuple[str, str]], path: Path, kind: str) -> None:
    columns = {
        "receiver": pa.array([receiver for receiver, _ in pairs], pa.string()),
        "flow": pa.array([flow for _, flow in pairs], pa.string()),
    }
    encoded = {name: values.dictionary_encode() for name, values in columns.items()}
    with path.open("wb") as file:
        WRITERS[kind](pa.table(encoded), file)
