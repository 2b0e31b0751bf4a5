from __future__ import annotations

import re

import pytest
from hypothesis import given

from distributary.export import escape_name, unescape_name
from tests.strategies import names

# One token of a NATS subject, part of a DDS topic, and nothing to escape in XML or JSON.
TOKEN = re.compile(r"[A-Za-z0-9_~-]*(%[0-9A-F]{2}[A-Za-z0-9_~-]*)*", re.ASCII)


@given(names())
def test_any_name_becomes_a_token_and_comes_back(name: str) -> None:
    escaped = escape_name(name)
    assert escaped
    assert TOKEN.fullmatch(escaped)
    assert unescape_name(escaped) == name


@given(names(), names())
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (escape_name(one) == escape_name(other)) == (one == other)


def test_plain_names_stay_as_they_are_and_dots_do_not() -> None:
    assert escape_name("EUR-USD_1~m") == "EUR-USD_1~m"
    assert escape_name("BRK.B") == "BRK%2EB"
    assert escape_name("é *>%") == "%C3%A9%20%2A%3E%25"


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        escape_name("")
