"""An event as a row of an Arrow table has it: its scalars as values that have keys."""

from __future__ import annotations

import pyarrow as pa

from distributary.model.event import Instant

__all__ = ["plain_value"]

_MILLISECONDS_PER_DAY = 86_400_000


def plain_value(value: object) -> object:
    """What a scalar of Arrow stands for, None if it is missing; any other value as it is.

    Times become an `Instant`: Python's own end with the year 9999 and at microseconds.
    """
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid:
        return None
    match value:
        case pa.DictionaryScalar():
            return plain_value(value.value)
        case pa.TimestampScalar():
            return Instant(value.value, value.type.unit)
        case pa.Date32Scalar():
            return Instant(value.value, "D")
        case pa.Date64Scalar():
            days, rest = divmod(value.value, _MILLISECONDS_PER_DAY)
            return Instant(value.value, "ms") if rest else Instant(days, "D")
    return value.as_py()
