"""A filter's bounds: the smallest single box around it, as numbers that a loop can compare.

Every attribute has a lower and an upper end as 64-bit numbers, in the order of the keys; a missing
value comes first. Only the first bytes of a text count, so the ends of two long texts may be equal;
if only one of them is long, their order is right.

Bounds decide most queries. A filter whose bounds do not contain another's never covers it. If they
do, it covers it unless there is a *doubt*: the cover is more than a single box of single ranges
without residuals, or both have a long text for the same attribute.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distributary.model import Attribute, AttributeKind, Box, Filter, IntArray, Key, Schema, Values
from distributary.model.event import after
from distributary.model.filter import MOST_STEPS
from distributary.model.values import Range

__all__ = ["Bounds", "Point", "bounds_of", "doubt_of"]

Point = tuple[int, Key]

_FIRST = -(2**63)  # a missing value
_LAST = 2**63 - 1
_BYTES = 7  # of a text; the eighth byte is its length plus 2, which leaves room before all texts
# The bits of a word of doubts: one for each of the first attributes if it is a long text, and one
# for all the others; one that every filter has; one unless the filter is a box of single ranges.
_MANY = 60
_ANY = 1 << 61
_RAGGED = 1 << 62
# The most bounds to cache: a filter that spreads is looked up at every broker.
_MOST_KEPT = 1 << 17


class Bounds(NamedTuple):
    """What the cover index knows about a filter.

    `corner` has the lower end and `~` the upper end of each attribute, then the word of doubts of
    the filter as a row of the index. `points` has the attributes for which all its boxes ask for
    the same single value, with that value.
    """

    corner: IntArray
    points: tuple[Point, ...]
    long: int
    ragged: bool

    def inside(self) -> tuple[IntArray, int]:
        """Query and doubts for `rows_at_most`: find the boxes around this one."""
        return self.corner[:-1], self.long | _RAGGED

    def around(self) -> tuple[IntArray, int]:
        """Query and doubts for `rows_at_least`: find the boxes inside this one."""
        return self.corner[:-1], self.long | (_ANY if self.ragged else 0)

    def touching(self) -> tuple[IntArray, int]:
        """Query and doubts for `rows_at_most`: find the boxes that overlap this one."""
        query = np.empty(len(self.corner) - 1, np.int64)
        query[0::2] = ~self.corner[1:-1:2]
        query[1::2] = ~self.corner[0:-1:2]
        return query, self.long | _RAGGED | (_ANY if self.ragged else 0)


def doubt_of(at: int) -> int:
    """The doubt that does not apply if both filters ask for the same value of an attribute."""
    return 1 << at if at < _MANY else 0


_kept: dict[int, tuple[Filter, Bounds | None]] = {}


def bounds_of(filter: Filter) -> Bounds | None:
    """The bounds of a filter; None for an odd one, which only the model can compare.

    A filter is odd if it has no boxes, a test that no value of a domain or a value outside it
    passes, a number at the very start of the axis, or a decimal beyond 64 bits.
    """
    found = _kept.get(id(filter))
    if found is not None and found[0] is filter:
        return found[1]
    bounds = _bounds(filter)
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[id(filter)] = filter, bounds
    return bounds


def _bounds(filter: Filter) -> Bounds | None:
    schema, boxes = filter.schema, filter.boxes
    if not boxes or len(boxes) >= MOST_STEPS:
        return None
    long = 0
    corners = []
    for box in boxes:
        corner = list(_widest(schema))
        for at, values in box.tests:
            ends = _ends(values, schema.attributes[at])
            if ends is None:
                return None
            corner[2 * at], corner[2 * at + 1], is_long = ends
            long |= is_long << min(at, _MANY)
        corners.append(corner)
    lowest = (
        corners[0] if len(corners) == 1 else [min(found) for found in zip(*corners, strict=True)]
    )
    ragged = (
        len(boxes) > 1
        or bool(boxes[0].residuals)
        or any(len(values.ranges) + values.null > 1 for _, values in boxes[0].tests)
    )
    word = long | _ANY | (_RAGGED if ragged else 0)
    return Bounds(np.array([*lowest, word], np.int64), _points(boxes), long, ragged)


def _points(boxes: tuple[Box, ...]) -> tuple[Point, ...]:
    """The attributes and values of which all boxes ask for that value alone, in order."""
    first, *others = (
        [
            (at, values.ranges[0][0])
            for at, values in box.tests
            if len(values.ranges) == 1 and not values.null and _is_point(*values.ranges[0])
        ]
        for box in boxes
    )
    return tuple(point for point in first if all(point in other for other in others))


def _is_point(low: Key, high: Key | None) -> bool:
    return bool(high == after(low))


@lru_cache(maxsize=64)
def _widest(schema: Schema) -> tuple[int, ...]:
    """The corner of a box without tests."""
    corner: list[int] = []
    for attribute in schema.attributes:
        ranges = Values.all(attribute).ranges
        last = _upper(ranges[-1][1])[0] if ranges else _FIRST
        corner += (_FIRST, ~last)
    return tuple(corner)


def _ends(values: Values, attribute: Attribute) -> tuple[int, int, bool] | None:
    """The lower end, `~` the upper, and whether one is a long text; None for an odd test."""
    ranges = values.ranges
    if attribute.domain is not None and not (values and values.within(Values.all(attribute))):
        return None
    if not ranges:
        return (_FIRST, ~_FIRST, False) if values.null else None
    if attribute.kind is AttributeKind.DECIMAL and not _has_room(ranges, attribute.kind):
        return None
    lower, low_is_long = _lower(ranges[0][0])
    upper, high_is_long = _upper(ranges[-1][1])
    if (lower == _FIRST + 1 and ranges[0][0] == lower) or upper <= _FIRST + 1:
        return None  # a missing value takes the place of the very first number
    return _FIRST if values.null else lower, ~upper, low_is_long or high_is_long


def _has_room(ranges: tuple[Range, ...], kind: AttributeKind) -> bool:
    """Whether the ends fit into 64 bits, or are the ends of the axis."""
    ends = (ranges[0][0], ranges[-1][1])
    return all(
        end is None or end in (kind.least, kind.end) or _FIRST + 1 < end <= _LAST for end in ends
    )


def _lower(key: Key) -> tuple[int, bool]:
    return _text_number(key) if isinstance(key, str) else (max(key, _FIRST + 1), False)


def _upper(end: Key | None) -> tuple[int, bool]:
    """The last number before an end; for a long text its own, since others may share it."""
    if end is None:
        return _LAST, False
    if isinstance(end, str):
        number, is_long = _text_number(end)
        return number - (not is_long), is_long
    return min(end - 1, _LAST), False


def _text_number(text: str) -> tuple[int, bool]:
    """A number in the order of texts, from first bytes and length; and whether it is long."""
    data = text[: _BYTES + 1].encode("utf-8", "surrogatepass")
    size = min(len(data), _BYTES + 1)
    start = int.from_bytes(data[:_BYTES].ljust(_BYTES, b"\0"), "big")
    return (start << 8 | size + 2) + _FIRST, size > _BYTES
