"""Events in the form in which a client sends them, against what the schema makes of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content.attributes import read_attributes
from distributary.content.codec import Codec
from distributary.content.event_form import LONGEST_PAYLOAD, LONGEST_TEXT, EventForm
from distributary.content.handshake import describe_schema
from distributary.content.protocol import Publish
from distributary.errors import InputError
from distributary.model import Attribute, AttributeKind, Schema

SCHEMA = Schema(
    (
        Attribute("Symbol", AttributeKind.TEXT),
        Attribute("size", AttributeKind.INTEGER),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("open", AttributeKind.BOOLEAN),
        Attribute("day", AttributeKind.DATE),
        Attribute("at", AttributeKind.TIMESTAMP),
        Attribute("fee", AttributeKind.DECIMAL, scale=2),
    )
)
FORM = EventForm(describe_schema(SCHEMA))


class Text(str):
    """Text of a type of its own."""


class Number(int):
    """A whole number of a type of its own."""


class Venue(StrEnum):
    """Text of a type that has a fixed number of values."""

    NYSE = "nyse"


moments = st.datetimes(
    timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=-30))])
)
whole = st.integers() | st.sampled_from([-(2**63), 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40])
VALUES = {
    "Symbol": st.text() | st.text().map(Text) | st.just(Venue.NYSE) | st.text().map(np.str_),
    "size": whole | whole.map(Number) | st.integers(-(2**31), 2**31 - 1).map(np.int32),
    "price": st.floats() | whole | st.decimals(allow_nan=False) | st.floats().map(np.float64),
    "open": st.booleans() | st.booleans().map(np.bool_),
    "day": st.dates(),
    "at": moments | st.dates() | st.integers(-(2**50), 2**50).map(lambda n: np.datetime64(n, "us")),
    "fee": st.integers(-(10**20), 10**20) | st.decimals(-(10**6), 10**6, places=2),
}
anything = st.one_of(*VALUES.values(), st.none(), st.binary(), st.lists(st.integers()))
events = st.fixed_dictionaries({}, optional=VALUES) | st.dictionaries(
    st.sampled_from([*VALUES]), anything
)


def carry(attributes: dict[str, Any]) -> tuple[Any, ...]:
    """The keys that a broker reads from what the client sends."""
    codec = Codec(SCHEMA)
    sent = codec.decode(codec.encode(Publish(1, FORM.check(attributes))))
    return read_attributes(sent.attributes, SCHEMA)


@given(events)
def test_a_broker_reads_what_the_schema_says_or_the_client_refuses(
    attributes: dict[str, Any],
) -> None:
    try:
        expected = SCHEMA.keys(attributes)
    except InputError:
        # A text may stand for a time or a decimal, so a broker takes some that the schema does not.
        if not any(isinstance(value, str) for value in attributes.values()):
            with pytest.raises(InputError):
                carry(attributes)
        return
    assert carry(attributes) == expected


def test_names_have_any_case_and_are_sent_as_the_schema_has_them() -> None:
    assert FORM.check({"SYMBOL": "IBM", "Size": 3}) == {"Symbol": "IBM", "size": 3}
    with pytest.raises(InputError, match="differ only in case"):
        FORM.check({"size": 1, "SIZE": 2})


@pytest.mark.parametrize(
    ("attributes", "payload", "words"),
    [
        ({"colour": 1}, b"", "there is no attribute 'colour', only Symbol, size"),
        ({"size": True}, b"", "'size' is True, not a whole number"),
        ({"fee": [1]}, b"", r"'fee' is \[1\]"),
        ({"Symbol": "\ud800"}, b"", "half of a surrogate pair"),
        ({"Symbol": "é" * (LONGEST_TEXT + 1)}, b"", "its text has 131,073 characters"),
        ({}, bytes(LONGEST_PAYLOAD + 1), "its payload has 1,048,577 bytes"),
    ],
)
def test_what_a_broker_would_refuse_is_refused_with_words(
    attributes: dict[str, Any], payload: bytes, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        FORM.check(attributes, payload)


def test_plain_values_are_sent_as_they_are() -> None:
    plain = {
        "Symbol": "IBM",
        "size": -(2**63),
        "price": 0.5,
        "open": False,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "fee": Decimal("1.25"),
    }
    assert FORM.check(plain) == plain
