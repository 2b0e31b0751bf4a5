"""A set of values of one attribute: the values that a test of a filter accepts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from distributary.model.event import Attribute, AttributeKind, Key, after, key_of

__all__ = ["Range", "Values"]

Range = tuple[Key, Key | None]


@dataclass(frozen=True, slots=True)
class Values:
    """Sorted, disjoint half-open ranges of keys, and whether the set contains the missing value.

    A range of text without an upper end has None there. Two sets of one kind are equal if and only
    if they hold the same values: `of` brings any ranges into normal form.
    """

    ranges: tuple[Range, ...]
    null: bool = False

    @classmethod
    def of(cls, ranges: Iterable[Range], kind: AttributeKind, *, null: bool = False) -> Self:
        """The union of any ranges: clipped to the axis, sorted, adjacent ranges joined."""
        joined: list[Range] = []
        for start, stop in sorted(ranges, key=lambda found: found[0]):
            low, high = max(start, kind.least), _earlier(stop, kind.end)
            if not _before(low, high):
                continue
            if joined and not _before(joined[-1][1], low):
                joined[-1] = (joined[-1][0], _later(joined[-1][1], high))
            else:
                joined.append((low, high))
        return cls(tuple(joined), null)

    @staticmethod
    def present(attribute: Attribute) -> Values:
        """Every value except the missing one: IS NOT NULL."""
        return _present(attribute)

    @staticmethod
    def all(attribute: Attribute) -> Values:
        """Every value and the missing one: what passes if there is no test."""
        return _all(attribute)

    def __contains__(self, key: Key | None) -> bool:
        if key is None:
            return self.null
        at = bisect_right(self.ranges, key, key=lambda found: found[0]) - 1
        return at >= 0 and _before(key, self.ranges[at][1])

    def __bool__(self) -> bool:
        return self.null or bool(self.ranges)

    def __and__(self, other: Values) -> Values:
        shared: list[Range] = []
        i = j = 0
        while i < len(self.ranges) and j < len(other.ranges):
            (low, high), (start, stop) = self.ranges[i], other.ranges[j]
            first, last = max(low, start), _earlier(high, stop)
            if _before(first, last):
                shared.append((first, last))
            if high == last:
                i += 1
            else:
                j += 1
        return Values(tuple(shared), self.null and other.null)

    def meets(self, other: Values) -> bool:
        """Whether some value is in both sets; the same as `bool(self & other)`, without the set."""
        if self.null and other.null:
            return True
        i = j = 0
        while i < len(self.ranges) and j < len(other.ranges):
            (low, high), (start, stop) = self.ranges[i], other.ranges[j]
            if not _before(low, stop):
                j += 1
            elif not _before(start, high):
                i += 1
            else:
                return True
        return False

    def union(self, other: Values, kind: AttributeKind) -> Values:
        """The union of both sets."""
        return Values.of((*self.ranges, *other.ranges), kind, null=self.null or other.null)

    def complement(self, attribute: Attribute) -> Values:
        """All values of the attribute, the missing one included, that are not in this set."""
        gaps: list[Range] = []
        low = attribute.kind.least
        for start, stop in self.ranges:
            gaps.append((low, start))
            low = stop
            if stop is None:
                break
        else:
            gaps.append((low, attribute.kind.end))
        outside = Values.of(gaps, attribute.kind, null=not self.null)
        return outside if attribute.domain is None else outside & Values.all(attribute)

    def within(self, other: Values) -> bool:
        """Whether this is a subset of the other set."""
        return self & other == self

    def points(self) -> tuple[Key, ...] | None:
        """The keys, if every range holds a single key; else None."""
        if all(high == after(low) for low, high in self.ranges):
            return tuple(low for low, _ in self.ranges)
        return None


@lru_cache(maxsize=1024)
def _present(attribute: Attribute) -> Values:
    kind = attribute.kind
    if attribute.domain is None:
        return Values(((kind.least, kind.end),))
    keys = (key_of(value, kind, attribute.scale) for value in attribute.domain)
    return Values.of(((key, after(key)) for key in keys if key is not None), kind)


@lru_cache(maxsize=1024)
def _all(attribute: Attribute) -> Values:
    return Values(_present(attribute).ranges, null=True)


def _before(key: Key, high: Key | None) -> bool:
    """Whether `key` is below the upper end `high`; a `key` of None is unbounded, so never below."""
    return key is not None and (high is None or bool(key < high))


def _later(a: Key | None, b: Key | None) -> Key | None:
    return None if a is None or b is None else max(a, b)


def _earlier(a: Key | None, b: Key | None) -> Key | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
