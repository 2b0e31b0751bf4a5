"""The schema of events that brokers route: a JSON object with the kind of each attribute."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributary.errors import InputError
from distributary.files.faults import input_fault, show_value, summarize_error
from distributary.model import Attribute, AttributeKind, Schema

__all__ = ["SCHEMA_KINDS", "read_schema"]

SCHEMA_KINDS: Mapping[str, AttributeKind] = {
    "string": AttributeKind.TEXT,
    "int": AttributeKind.INTEGER,
    "double": AttributeKind.FLOAT,
    "boolean": AttributeKind.BOOLEAN,
    "timestamp": AttributeKind.TIMESTAMP,
}
_EXAMPLE = 'write it as {"symbol": "string", "price": "double"}'
_LONGEST_FILE = 1 << 20
_LONGEST_NAME = 200
_MOST_ATTRIBUTES = 1_000


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Read a schema; the order of the attributes counts, and must be the same for all brokers."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise input_fault(
            path, f"cannot be read: {summarize_error(error)}", remedy="check the path"
        ) from None
    if len(data) > _LONGEST_FILE:
        raise input_fault(path, f"is larger than {_LONGEST_FILE:,} bytes", remedy=_EXAMPLE)
    try:
        pairs = json.loads(data, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise input_fault(
            path, f"does not parse as JSON: {summarize_error(error)}", remedy=_EXAMPLE
        ) from None
    if not isinstance(pairs, _Pairs) or not pairs:
        raise input_fault(path, "is not a JSON object with attributes", remedy=_EXAMPLE)
    if len(pairs) > _MOST_ATTRIBUTES:
        raise input_fault(
            path,
            f"has {len(pairs):,} attributes, more than {_MOST_ATTRIBUTES:,}",
            remedy="leave out those that no filter tests",
        )
    return Schema(tuple(_check(path, pairs)))


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON in which names may repeat."""


def _check(path: str | os.PathLike[str], pairs: _Pairs) -> list[Attribute]:
    found: dict[str, Attribute] = {}
    for name, kind in pairs:
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise _fault(path, name, f"has no name of 1 to {_LONGEST_NAME} printable characters")
        if name.lower() in found:
            raise _fault(path, name, "is there twice: upper and lower case are the same")
        if not isinstance(kind, str) or kind not in SCHEMA_KINDS:
            kinds = ", ".join(SCHEMA_KINDS)
            raise _fault(path, name, f"is {show_value(kind)}, not one of {kinds}")
        found[name.lower()] = Attribute(name, SCHEMA_KINDS[kind])
    return [*found.values()]


def _fault(path: str | os.PathLike[str], name: str, reason: str) -> InputError:
    return input_fault(path, f"attribute {show_value(name)} {reason}", value=name, remedy=_EXAMPLE)
