"""The tables that travel between the steps of the pipeline: column names and Spark types.

Used rows of a log have one more column than their schema: `position`, the row's place in the input.
It decides which of two rows with the same time is later; its parts are null if the input has no
order (a table read by name).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = [
    "FILTERS",
    "INTEREST",
    "PLACEMENTS",
    "PLAN_SUBSCRIPTIONS",
    "POSITION",
    "PUBLICATIONS",
    "QUARANTINE",
    "RATES",
    "SESSIONS",
    "SUBSCRIBE",
    "SUBSCRIPTIONS",
    "UNICAST",
    "UNSUBSCRIBE",
    "quote_name",
    "with_position",
]

SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"


def _table(optional: tuple[str, ...] = (), /, **columns: DataType) -> StructType:
    return StructType(
        [StructField(name, kind, nullable=name in optional) for name, kind in columns.items()]
    )


_TEXT, _TIME, _WHOLE, _LONG, _AMOUNT = (
    StringType(),
    TimestampType(),
    IntegerType(),
    LongType(),
    DoubleType(),
)

SUBSCRIPTIONS: Final = _table(ts=_TIME, receiver=_TEXT, flow=_TEXT, action=_TEXT)
PUBLICATIONS: Final = _table(("size",), ts=_TIME, flow=_TEXT, size=_WHOLE)
FILTERS: Final = _table(receiver=_TEXT, filter=_TEXT)
INTEREST: Final = _table(receiver=_TEXT, flow=_TEXT)
RATES: Final = _table(("size", "peak"), flow=_TEXT, rate=_AMOUNT, size=_AMOUNT, peak=_AMOUNT)
QUARANTINE: Final = _table(("file", "raw"), log=_TEXT, file=_TEXT, reason=_TEXT, raw=_TEXT)

# A plan: the tables of its folder.
PLACEMENTS: Final = _table(flow=_TEXT, session=_WHOLE)
SESSIONS: Final = _table(session=_WHOLE, group=_WHOLE)
PLAN_SUBSCRIPTIONS: Final = _table(receiver=_TEXT, session=_WHOLE, group=_WHOLE)
UNICAST: Final = _table(receiver=_TEXT, flow=_TEXT)

POSITION: Final = _table(("file", "block", "line"), file=_TEXT, block=_LONG, line=_LONG)


def with_position(schema: StructType) -> StructType:
    """The schema of a log's used rows: its own columns and the position."""
    return StructType([*schema.fields, StructField("position", POSITION)])


def quote_name(column: str) -> str:
    """A column's name quoted for use in expressions."""
    return "`" + column.replace("`", "``") + "`"
