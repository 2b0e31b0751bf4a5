"""Times, shares, sizes and moments as users write them."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from distributary.cli.quantities import ByteCount, Seconds, Share, parse_moment
from tests.cli.conftest import CommandLine

SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"": 1, "B": 1, "KB": 1000, "kib": 1024, "M": 10**6, "GiB": 2**30, "TB": 10**12}
GAPS = st.sampled_from(["", " "])


@given(st.integers(1, 10_000), GAPS, st.sampled_from(sorted(SECONDS)))
def test_a_time_is_a_number_of_seconds_that_shows_as_it_was_written(
    number: int, gap: str, unit: str
) -> None:
    text = f"{number}{gap}{unit}"
    seconds = Seconds(text)
    assert seconds == number * SECONDS[unit]
    assert str(seconds) == f"{seconds}" == text
    assert type(float(seconds)) is float


@given(st.integers(0, 100), GAPS)
def test_a_share_is_written_in_percent_or_as_a_fraction(percent: int, gap: str) -> None:
    assert Share(f"{percent}{gap}%") == Share(str(percent / 100)) == percent / 100


@given(st.integers(0, 10_000), GAPS, st.sampled_from(sorted(BYTES)))
def test_a_size_is_a_number_of_bytes(number: int, gap: str, unit: str) -> None:
    assert ByteCount(f"{number}{gap}{unit}") == number * BYTES[unit]


def test_a_quantity_is_copied_and_stored_as_the_number_it_is() -> None:
    for quantity in (Seconds("2m"), Share("1%"), ByteCount("4GiB")):
        for twin in (copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
            assert twin == quantity
            assert str(twin) == str(quantity)
        assert json.loads(json.dumps(quantity)) == quantity


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1w", "s", "nan", "inf", "1e9", "9" * 400])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a time"):
        Seconds(text)


@pytest.mark.parametrize("text", ["", "101%", "1.1", "-1%", "nan", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a share"):
        Share(text)


@pytest.mark.parametrize("text", ["", "GiB", "-1", "4XB", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a size"):
        ByteCount(text)


def test_a_moment_without_a_zone_is_in_utc() -> None:
    assert parse_moment("2025-03-03T09:30") == datetime(2025, 3, 3, 9, 30, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    assert parse_moment("2025-03-03T09:30+02:00") == datetime(2025, 3, 3, 9, 30, tzinfo=east)
    with pytest.raises(typer.BadParameter, match="ISO 8601"):
        parse_moment("yesterday")


def test_an_error_names_the_option_that_cannot_be_read(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    ran = cli("plan", *inputs, "--groups", "2", "--out", "plan", "--budget", "soon")
    assert ran.status == 2
    assert "Invalid value for '--budget': 'soon' is not a time" in ran.err
