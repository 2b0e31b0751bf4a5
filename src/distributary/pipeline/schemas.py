"""The tables that travel between the steps of the pipeline: column names and Spark types.

Used log rows carry one more column than their schema says, `position`: where the row stood in
the input. It settles which of two rows of the same moment came later; its parts are null where
the input has no order (a table read by name).
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
    """The schema of a log's used rows: its own columns, and where each row stood."""
    return StructType([*schema.fields, StructField("position", POSITION)])


def quote_name(column: str) -> str:
    """A column's name as an expression that means it, whatever it is made of."""
    return "`" + column.replace("`", "``") + "`"
