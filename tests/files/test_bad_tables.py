from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distributary.errors import InputError
from distributary.files import read_interest, read_rates, write_interest
from distributary.model import Interest

LONG = "x" * 5000


def refused(read: object, path: Path) -> InputError:
    """The error that reading raises, once it is known to fit on a line of a terminal."""
    with pytest.raises(InputError) as caught:
        read(path)  # type: ignore[operator]
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 400 + len(str(path))
    assert caught.value.remedy
    return caught.value


CSV_INTEREST = {
    "no field": (b"receiver,flow\na,x\nb\n", 2, ["b"], "has 1 of 2 fields"),
    "a field too many": (b"receiver,flow\n\na,x\nb,y,z\n", 2, ["b", "y", "z"], "3 of 2 fields"),
    "an open quote": (b'receiver,flow\na,x\n"b,y\n', 2, '"b,y', "a quote is not closed"),
    "text after a quote": (b'receiver,flow\n"a"b,x\n', 1, '"a"b,x', "quote is not closed or not"),
    "an empty id": (b'receiver,flow\na,x\n"",y\n', 2, "", "receiver is empty"),
    "an empty id after line ends": (b'receiver,flow\n"a\n\nb",x\nc,\n', 2, "", "flow is empty"),
    "not UTF-8": (b"receiver,flow\na,x\nb,\xe9\n", 2, b"\xe9", "not UTF-8"),
    "not UTF-8 in the header": (b"receiver\xe9,flow\na,x\n", None, b"\xe9", "not UTF-8"),
    "UTF-16": ("receiver,flow\na,x\n".encode("utf-16"), None, b"\xff", "not UTF-8"),
    "no such column": (b"receiver;flow\na;x\n", None, "receiver", "only 'receiver;flow'"),
    "a column twice": (b"receiver,flow,flow\na,x,y\n", None, "flow", "'flow' twice"),
    "nothing": (b"", None, None, "holds no rows"),
    "blank lines": (b"\n\n", None, None, "holds no rows"),
    "a header": (b"receiver,flow\n", None, None, "holds no rows"),
    "a header without line end": (b"receiver,flow", None, None, "holds no rows"),
    "a long wrong row": (f"receiver,flow\n{LONG}\n".encode(), 1, [LONG], "5,002 characters"),
}

CSV_RATES = {
    "a word": (b"flow,rate\na,1\nb,abc\n", 2, "abc", "rate is 'abc'"),
    "a boolean": (b"flow,rate\na,true\n", 1, "true", "rate is 'true'"),
    "an empty rate": (b"flow,rate\na,1\nb,\n", 2, None, "rate is missing"),
    "zero": (b"flow,rate\na,1\nb,0\n", 2, 0.0, "rate is 0.0"),
    "negative": (b"flow,rate\na,-1.5\n", 1, -1.5, "rate is -1.5"),
    "infinite": (b"flow,rate\na,1e999\n", 1, float("inf"), "rate is inf"),
    "NaN": (b"flow,rate\na,NaN\n", 1, None, "rate is nan"),
    "a size of zero": (b"flow,rate,size\na,1,5\nb,1,0\n", 2, 0.0, "size is 0.0"),
    "a size left out": (b"flow,rate,size\na,1,5\nb,1,\n", 2, None, "size is missing"),
    "two rates": (b"flow,rate\na,1\nb,2\na,3\n", 3, "a", "rate 3.0 here but 1.0 in row 1"),
    "two sizes": (b"flow,rate,size\na,1,2\na,1,3\n", 2, "a", "size 3.0 here but 2.0 in row 1"),
    "an empty flow": (b"flow,rate\n,1\n", 1, "", "flow is empty"),
}

JSON_INTEREST = {
    "broken": (b'{"receiver":"a","flow":"x"}\n{"receiver":"b",\n', 2, None, "does not parse"),
    "broken after a blank": (b'{"receiver":"a","flow":"x"}\n\n{"re\n', 2, '{"re', "line 3 does"),
    "a bare null": (b'{"receiver":"a","flow":"x"}\nnull\n', 2, "null", "does not parse"),
    "a first bare null": (b"null\n", 1, "null", "does not parse"),
    "two on a line": (b'{"receiver":"a","flow":"x"}{}\n', 1, None, "Extra data"),
    "a null between": (b'{"receiver":"a","flow":"x"} null {}\n', 1, None, "Extra data"),
    "an array": (b'[{"receiver":"a","flow":"x"}]\n', 1, None, "not an object"),
    "over two lines": (b'{"receiver":"a",\n"flow":"x"}\n', 1, None, "does not parse"),
    "a number": (b'{"receiver":"a","flow":"x"}\n{"receiver":"b","flow":5}\n', 2, 5, "flow is 5"),
    "a list": (b'{"receiver":["a"],"flow":"x"}\n', 1, ["a"], "receiver is ['a']"),
    "null": (b'{"receiver":"a","flow":"x"}\n{"receiver":null,"flow":"x"}\n', 2, None, "missing"),
    "no key": (b'{"receiver":"a","flow":"x"}\n{"flow":"x"}\n', 2, None, "receiver is missing"),
    "an empty id": (b'{"receiver":"a","flow":""}\n', 1, "", "flow is empty"),
    "no such column": (b'{"Receiver":"a","flow":"x"}\n', None, "receiver", "only 'Receiver', 'fl"),
    "a key twice": (b'{"receiver":"a","flow":"x","flow":"y"}\n', 1, None, "twice"),
    "half a surrogate pair": (b'{"receiver":"\\ud800","flow":"x"}', 1, "\ud800", "not Unicode"),
    "not UTF-8": (b'{"receiver":"a","flow":"\xe9"}\n', 1, b"\xe9", "flow b'\\xe9' is not Unicode"),
    "deep": (b'{"receiver":"a","flow":' + b"[" * 99999 + b"\n", 1, None, "does not parse"),
    "nothing": (b"", None, None, "holds no rows"),
    "blank lines": (b"\n \n", None, None, "holds no rows"),
}

JSON_RATES = {
    "a string": (b'{"flow":"a","rate":1}\n{"flow":"b","rate":"1"}\n', 2, "1", "rate is '1'"),
    "a boolean": (b'{"flow":"a","rate":true}\n', 1, True, "rate is True"),
    "too large": (b'{"flow":"a","rate":1e999}\n', 1, float("inf"), "rate is inf"),
    "NaN": (b'{"flow":"a","rate":NaN}\n', 1, None, "rate is nan"),
    "zero": (b'{"flow":"a","rate":0}\n', 1, 0.0, "rate is 0.0"),
    "null": (b'{"flow":"a","rate":1}\n{"flow":"b","rate":null}\n', 2, None, "rate is missing"),
    "a size left out": (b'{"flow":"a","rate":1,"size":2}\n{"flow":"b","rate":1}\n', 2, None, "siz"),
}


@pytest.mark.parametrize(
    ("read", "name", "content", "row", "value", "words"),
    [
        pytest.param(read, name, *case, id=f"{name}: {kind}")
        for read, name, cases in (
            (read_interest, "interest.csv", CSV_INTEREST),
            (read_rates, "rates.csv", CSV_RATES),
            (read_interest, "interest.jsonl", JSON_INTEREST),
            (read_rates, "rates.jsonl", JSON_RATES),
        )
        for kind, case in cases.items()
    ],
)
def test_bad_text_is_refused_by_path_row_and_value(
    read: object,
    name: str,
    content: bytes,
    row: int | None,
    value: object,
    words: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = refused(read, path)
    assert (error.path, error.row) == (str(path), row)
    assert words in str(error)
    if value is not None:
        assert error.value == value


FLOWS = pa.array(["a", "b"])


@pytest.mark.parametrize(
    ("columns", "row", "value", "words"),
    [
        ({"flow": pa.array([1, 2]), "rate": [1.0, 2.0]}, None, "int64", "'flow' holds int64"),
        ({"flow": pa.array([b"a", b"b"]), "rate": [1.0, 2.0]}, None, "binary", "must be a string"),
        ({"flow": FLOWS, "rate": ["1", "2"]}, None, "string", "'rate' holds string"),
        ({"flow": FLOWS, "rate": [True, True]}, None, "bool", "'rate' holds bool"),
        ({"flow": FLOWS, "rate": [{"x": 1.0}] * 2}, None, "struct<x: double>", "holds struct"),
        ({"flow": FLOWS, "rates": [1.0, 2.0]}, None, "rate", "only 'flow', 'rates'"),
        ({"flow": pa.array(["a", None]), "rate": [1.0, 2.0]}, 2, None, "flow is missing"),
        ({"flow": pa.array(["a", ""]), "rate": [1.0, 2.0]}, 2, "", "flow is empty"),
        ({"flow": FLOWS, "rate": [1.0, None]}, 2, None, "rate is missing"),
        ({"flow": FLOWS, "rate": [1.0, -0.0]}, 2, 0.0, "rate is -0.0"),
        ({"flow": FLOWS, "rate": [1, -2]}, 2, -2.0, "rate is -2.0"),
        ({"flow": FLOWS, "rate": [float("nan"), 1.0]}, 1, None, "rate is nan"),
        ({"flow": FLOWS, "rate": [1.0, float("inf")]}, 2, float("inf"), "rate is inf"),
        ({"flow": FLOWS, "rate": [1.0, 2.0], "size": ["1", "2"]}, None, "string", "'size'"),
        ({"flow": FLOWS, "rate": [1.0, 2.0], "size": [1, -5]}, 2, -5.0, "size is -5.0"),
        ({"flow": pa.array(["a", "a"]), "rate": [1.0, 2.0]}, 2, "a", "1.0 in row 1"),
        ({"flow": FLOWS[:0], "rate": pa.array([], pa.float64())}, None, None, "holds no rows"),
    ],
)
def test_bad_parquet_columns_are_refused_by_path_row_and_value(
    columns: dict[str, object], row: int | None, value: object, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rates.parquet"
    pq.write_table(pa.table(columns), path)
    error = refused(read_rates, path)
    assert (error.path, error.row) == (str(path), row)
    assert words in str(error)
    if value is not None:
        assert error.value == value


def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.parquet"
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"flow": broken, "rate": [1.0, 2.0]}), path)
    error = refused(read_rates, path)
    assert (error.row, error.value) == (2, b"\xff\xfe")


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_parquet_file_is_refused(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "interest.parquet"
    write_interest(
        Interest.from_pairs((f"r{i}", f"f{j}") for i in range(50) for j in range(9)), path
    )
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert refused(read_interest, path).path == str(path)


def test_a_flipped_bit_in_our_own_parquet_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "interest.parquet"
    write_interest(
        Interest.from_pairs((f"r{i}", f"f{j}") for i in range(50) for j in range(9)), path
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 8] ^= 1
    path.write_bytes(data)
    assert "not a whole Parquet file" in str(refused(read_interest, path))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    error = refused(read_interest, tmp_path / "nothing.parquet")
    assert error.path == str(tmp_path / "nothing.parquet")
    assert "no such file" in error.reason


@pytest.mark.parametrize("name", ["interest.xlsx", "interest"])
def test_an_unknown_extension_is_refused_with_those_accepted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("receiver,flow\na,x\n")
    error = refused(read_interest, tmp_path / name)
    assert ".parquet, .pq, .csv, .jsonl, .ndjson, .json" in error.remedy


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_we_may_not_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "interest.csv"
    path.write_text("receiver,flow\na,x\n")
    path.chmod(0)
    assert "permission denied" in refused(read_interest, path).reason


def test_a_path_with_a_line_end_still_makes_one_line(tmp_path: Path) -> None:
    refused(read_interest, tmp_path / "a\nb.csv")
    refused(read_interest, tmp_path / "a\0b.csv")


class TestFoldersOfParts:
    def test_rows_count_within_their_part(self, tmp_path: Path) -> None:
        (tmp_path / "part-0.csv").write_text("receiver,flow\na,x\nb,x\n")
        (tmp_path / "part-1.csv").write_text("receiver,flow\nc,x\n,y\n")
        error = refused(read_interest, tmp_path)
        assert (error.path, error.row) == (str(tmp_path / "part-1.csv"), 2)

    def test_two_rates_in_two_parts_name_both(self, tmp_path: Path) -> None:
        (tmp_path / "part-0.csv").write_text("flow,rate\na,1\nb,1\n")
        (tmp_path / "part-1.jsonl").write_text('{"flow": "c", "rate": 1}\n{"flow": "b", "rate": 2}')
        error = refused(read_rates, tmp_path)
        assert (error.path, error.row, error.value) == (str(tmp_path / "part-1.jsonl"), 2, "b")
        assert f"{tmp_path / 'part-0.csv'}, row 2" in error.reason

    def test_all_parts_must_have_the_same_columns(self, tmp_path: Path) -> None:
        (tmp_path / "part-0.csv").write_text("flow,rate,size\na,1,1\n")
        (tmp_path / "part-1.csv").write_text("flow,rate\nb,1\n")
        error = refused(read_rates, tmp_path)
        assert (error.path, error.value) == (str(tmp_path / "part-1.csv"), "size")

    def test_a_folder_without_parts_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "_SUCCESS").touch()
        assert "without part files" in refused(read_interest, tmp_path).reason

    def test_parts_without_rows_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "part-0.csv").touch()
        (tmp_path / "part-1.jsonl").touch()
        assert "holds no rows" in refused(read_interest, tmp_path).reason

    def test_folders_inside_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "day=1").mkdir()
        assert refused(read_interest, tmp_path).path == str(tmp_path / "day=1")
