"""Schemas of brokers: every kind, and one line about everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributary.errors import InputError
from distributary.files.schemas import read_schema
from distributary.model import Attribute, AttributeKind


def test_a_schema_has_its_attributes_in_order_and_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    kinds = {"symbol": "string", "size": "int", "price": "double", "Open": "boolean"}
    path.write_text(json.dumps({**kinds, "at ü": "timestamp"}))
    assert read_schema(path).attributes == (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("size", AttributeKind.INTEGER),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("Open", AttributeKind.BOOLEAN),
        Attribute("at ü", AttributeKind.TIMESTAMP),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "does not parse as JSON"),
        (b"\xff", "does not parse as JSON"),
        (b'{"a": "int"', "does not parse as JSON"),
        (b"[" * 100_000, "does not parse as JSON"),
        (b"[]", "is not a JSON object with attributes"),
        (b"{}", "is not a JSON object with attributes"),
        (b'"int"', "is not a JSON object with attributes"),
        (b'{"a": "text"}', "attribute 'a' is 'text', not one of string, int, double"),
        (b'{"a": ["int"]}', r"attribute 'a' is \['int'\], not one of"),
        (b'{"a": {"b": "int"}}', "attribute 'a' is .* not one of"),
        (b'{"a": null}', "attribute 'a' is None, not one of"),
        (b'{"a": "int", "A": "int"}', "attribute 'A' is there twice"),
        (b'{"a": "int", "a": "int"}', "attribute 'a' is there twice"),
        (b'{"": "int"}', "attribute '' has no name"),
        (b'{"a\\nb": "int"}', "has no name"),
        (json.dumps({f"a{n}": "int" for n in range(1_001)}).encode(), "has 1,001 attributes"),
        (b" " * ((1 << 20) + 1), "is larger than"),
    ],
)
def test_a_bad_schema_is_refused_in_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=words) as refused:
        read_schema(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_missing_schema_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: no such file"):
        read_schema(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read: is a directory"):
        read_schema(tmp_path)
