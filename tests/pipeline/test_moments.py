"""Times of logs, beside Python's own reading of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampNTZType,
)

from distributary.errors import InputError
from distributary.pipeline.moments import Clock, check_clock, choose_unit, guess_unit
from distributary.pipeline.shapes import UNITS, LogShape, TimeUnit
from distributary.pipeline.times import to_micros, to_time

FIRST, LAST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "+05:30"]
BULK = 150
# Every example is a frame of many values, so that Spark is asked a few times only.
drawn = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


def read(spark: SparkSession, clock: Clock, values: Sequence[object]) -> list[int | None]:
    """The values as microseconds since 1970."""
    kind = clock.kind
    frame = spark.createDataFrame([(i, v) for i, v in enumerate(values)], f"i INT, v {_sql(kind)}")
    rows = frame.select("i", F.unix_micros(clock.parse(F.col("v"))).alias("us")).collect()
    return [row["us"] for row in sorted(rows)]


def _sql(kind: DataType) -> str:
    return kind.simpleString()


def plain_number(number: Decimal, unit: TimeUnit) -> int | None:
    """The plain twin: exact, cut to microseconds, within 1990 to 2100."""
    exact = Context(prec=200)
    micros = exact.divide(exact.multiply(number, Decimal(10**6)), Decimal(UNITS[unit]))
    whole = int(micros.to_integral_value(ROUND_FLOOR, exact))
    return whole if to_micros(FIRST) <= whole < to_micros(LAST) else None


def numbers(unit: TimeUnit) -> st.SearchStrategy[Decimal]:
    """Numbers in a unit: of its years, at their ends, of other units, negative, and any."""
    scale = UNITS[unit]
    ends = [to_micros(one) * scale // 10**6 + off for one in (FIRST, LAST) for off in (-1, 0, 1)]
    seconds = st.integers(to_micros(FIRST) // 10**6, to_micros(LAST) // 10**6)
    whole = st.builds(lambda s, rest: s * scale + rest, seconds, st.integers(0, scale - 1))
    fraction = st.text("0123456789", max_size=30)
    digits = st.builds(lambda n, f: Decimal(f"{n}.{f}" if f else n), whole, fraction)
    other = st.sampled_from([0, -1, 1, 10**10, 10**13, 10**16, 10**19 - 1, 2**63 - 1, -(2**63)])
    return digits | (other | st.sampled_from(ends)).map(Decimal)


@pytest.mark.parametrize("unit", list(UNITS))
def test_numbers_as_text_are_read_to_the_microsecond(spark: SparkSession, unit: TimeUnit) -> None:
    @settings(drawn, max_examples=4)
    @given(st.lists(numbers(unit), min_size=BULK, max_size=BULK))
    def check(given_numbers: list[Decimal]) -> None:
        texts = [format(number, "f") for number in given_numbers]
        clock = Clock(StringType(), unit)
        expected = [plain_number(number, unit) for number in given_numbers]
        assert read(spark, clock, texts) == expected
        spaced = [f" {text} " for text in texts]
        assert read(spark, clock, spaced) == expected

    check()


@pytest.mark.parametrize("unit", list(UNITS))
def test_numbers_of_every_type_are_read_as_they_are_written(
    spark: SparkSession, unit: TimeUnit
) -> None:
    @settings(drawn, max_examples=3)
    @given(st.lists(numbers(unit), min_size=BULK, max_size=BULK))
    def check(given_numbers: list[Decimal]) -> None:
        whole = [int(number) for number in given_numbers if -(2**63) <= number < 2**63]
        assert read(spark, Clock(LongType(), unit), whole) == [
            plain_number(Decimal(number), unit) for number in whole
        ]
        floats = [float(number) for number in given_numbers]
        for number, micros in zip(
            floats, read(spark, Clock(DoubleType(), unit), floats), strict=True
        ):
            # Beyond 2^53 the digits that Java and Python write of a number may differ.
            texts = [Decimal(repr(number)), *([Decimal(number)] if abs(number) > 2**53 else [])]
            assert micros in [plain_number(text, unit) for text in texts], number
        cut = [one.quantize(Decimal("1e-12"), ROUND_FLOOR, Context(60)) for one in given_numbers]
        assert read(spark, Clock(DecimalType(38, 12), unit), cut) == [
            plain_number(number, unit) for number in cut
        ]

    check()


def test_numbers_with_an_exponent_and_what_is_no_number(spark: SparkSession) -> None:
    texts = [
        "1.741000000123456999e9",
        "1741E6",
        "1e400",
        "12e",
        "0x10",
        "1_000",
        "NaN",
        "",
        "9" * 40,
    ]
    found = read(spark, Clock(StringType(), "s"), texts)
    assert found == [1_741_000_000_123_456, 1_741_000_000_000_000, *[None] * 7]
    assert read(spark, Clock(DoubleType(), "s"), [float("nan"), float("inf"), -1e300]) == [None] * 3


def test_a_log_of_numbers_may_have_iso_times_too(spark: SparkSession) -> None:
    found = read(spark, Clock(StringType(), "ms"), ["2025-03-03T09:00:00Z", "1741000000123"])
    assert found == [1_740_992_400_000_000, 1_741_000_000_123_000]


LOCAL = st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 31))


def around_changes(zone: str) -> list[datetime]:
    """Local times around every change of a zone's clock from 2023 to 2026."""
    if zone.startswith("+"):
        return []
    place, found = ZoneInfo(zone), []
    hour = datetime(2023, 1, 1, tzinfo=UTC)
    while hour.year < 2027:
        later = hour + timedelta(hours=1)
        if hour.astimezone(place).utcoffset() != later.astimezone(place).utcoffset():
            base = hour.astimezone(place).replace(tzinfo=None)
            found += [base + timedelta(minutes=15 * step) for step in range(-8, 13)]
        hour = later
    return found


def in_zone(local: datetime, zone: str) -> int:
    """The plain twin: Python's reading of a local time."""
    if zone.startswith("+"):
        return to_micros(datetime.fromisoformat(f"{local.isoformat()}{zone}"))
    return to_micros(local.replace(tzinfo=ZoneInfo(zone), fold=0))


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_read_as_python_reads_them(spark: SparkSession, zone: str) -> None:
    @settings(drawn, max_examples=2)
    @given(st.lists(LOCAL, min_size=40, max_size=40))
    def check(drawn: list[datetime]) -> None:
        local = drawn + around_changes(zone)
        expected = [in_zone(one, zone) for one in local]
        iso = [one.isoformat(sep) for one, sep in zip(local, "T " * len(local), strict=False)]
        assert read(spark, Clock(StringType(), zone=zone), iso) == expected
        comma = [one.replace(".", ",") for one in iso]
        assert read(spark, Clock(StringType(), zone=zone), comma) == expected
        assert read(spark, Clock(TimestampNTZType(), zone=zone), local) == expected
        pattern = "dd.MM.yyyy HH:mm:ss.SSSSSS"
        texts = [one.strftime("%d.%m.%Y %H:%M:%S.%f") for one in local]
        assert read(spark, Clock(StringType(), zone=zone, pattern=pattern), texts) == expected
        days = [one.date() for one in local]
        assert read(spark, Clock(DateType(), zone=zone), days) == [
            in_zone(datetime(day.year, day.month, day.day), zone) for day in days
        ]

    check()


def test_a_time_that_names_its_zone_keeps_it(spark: SparkSession) -> None:
    texts = ["2025-07-01T12:00:00Z", "2025-07-01 12:00:00.5 +02:00", "2025-07-01T12:00+0200"]
    moments = ["2025-07-01T12:00:00Z", "2025-07-01T10:00:00.5Z", "2025-07-01T10:00:00Z"]
    clock = Clock(StringType(), zone="Asia/Tokyo")
    assert read(spark, clock, texts) == [to_micros(datetime.fromisoformat(m)) for m in moments]
    web = Clock(StringType(), zone="Asia/Tokyo", pattern="dd/MMM/yyyy:HH:mm:ss Z")
    expected = to_micros(datetime(2025, 3, 3, 7, tzinfo=UTC))
    assert read(spark, web, ["03/Mar/2025:09:00:00 +0200", "x"]) == [expected, None]
    quoted = Clock(StringType(), zone="Asia/Tokyo", pattern="yyyy-MM-dd'Z'HH:mm:ss")
    expected = to_micros(datetime(2025, 3, 3, 0, tzinfo=UTC))
    assert read(spark, quoted, ["2025-03-03Z09:00:00"]) == [expected]


def plain_look(text: str) -> str | None:
    """The plain twin of `guess_unit`, of plain numbers."""
    for unit in UNITS:
        if plain_number(Decimal(text), unit) is not None:
            return unit
    return "number"


def test_the_unit_is_what_most_of_the_first_rows_have(spark: SparkSession) -> None:
    @settings(drawn, max_examples=3)
    @given(st.lists(st.one_of(*map(numbers, UNITS)), min_size=BULK, max_size=BULK))
    def check(given_numbers: list[Decimal]) -> None:
        texts = [format(number, "f") for number in given_numbers]
        frame = spark.createDataFrame([(text,) for text in texts], "v STRING")
        found = frame.select(guess_unit(F.col("v"), StringType()).alias("look")).collect()
        assert Counter(row["look"] for row in found) == Counter(map(plain_look, texts))

    check()


def test_only_a_majority_settles_the_unit() -> None:
    assert choose_unit({"iso": 5, "ms": 5}) is None
    assert choose_unit({"iso": 4, "ms": 5, "s": 3}) == "ms"
    assert choose_unit({"s": 5, "ns": 5}) == "s"
    assert choose_unit({"text": 9, "number": 20}) is None
    assert choose_unit({}) is None


@pytest.mark.parametrize("shape", [LogShape(time_format="QQQQQ what"), LogShape(time_format="b")])
def test_a_pattern_that_spark_does_not_know_is_said_in_one_line(
    spark: SparkSession, shape: LogShape
) -> None:
    with pytest.raises(InputError, match="is not a pattern of times") as caught:
        check_clock(spark, shape)
    assert "\n" not in str(caught.value)


def test_a_day_is_a_time(spark: SparkSession) -> None:
    found = read(spark, Clock(DateType()), [date(2024, 1, 1)])
    assert found == [to_micros(datetime(2024, 1, 1, tzinfo=UTC))]
    assert to_time(found[0] or 0).year == 2024
