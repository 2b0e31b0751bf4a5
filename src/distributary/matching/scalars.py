"""Convert Arrow scalars to plain values."""

from __future__ import annotations

import pyarrow as pa

from distributary.model.event import Instant

__all__ = ["plain_value"]

_MILLISECONDS_PER_DAY = 86_400_000


def plain_value(value: object) -> object:
    """The value of an Arrow scalar, None if it is null; any other value unchanged.

    Times become an `Instant`, because Python's own types end with the year 9999.
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
