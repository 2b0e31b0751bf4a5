"""Filters: the set of events that a subscriber wants, as a union of boxes.

A *box* is a conjunction: for each attribute that it tests, a set of values that must contain the
event's value. A *filter* is a union of boxes, the alternatives of an OR. Every Boolean combination
of tests on single attributes has this form: under SQL's three-valued logic a test on a missing
value is neither true nor false, and neither is its NOT, so NOT can be pushed down to the tests, and
each test, negated or not, is a set of values of its attribute.

A comparison of two attributes, or a general text pattern, is not such a test. It is a *residual* of
the box, checked for the events that pass its tests. Two residuals are known to be equal or taken to
be unrelated: where a proof would have to look into them, `covers` says no and `intersects` yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from distributary.model.event import Key, Schema
from distributary.model.residual import Residual
from distributary.model.values import Values

__all__ = ["Box", "Filter", "covers", "equivalent", "intersects", "join_boxes"]

Test = tuple[int, Values]

# Deciding whether one union of boxes covers another is hard. After this many steps the search gives
# up and answers "not covered", which is safe: such a filter is kept.
MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Box:
    """Tests by attribute index; no test is empty and none accepts every value.

    `residuals` are sorted, and the tests require that none of their attributes is missing.
    """

    tests: tuple[Test, ...]
    residuals: tuple[Residual, ...] = ()

    @classmethod
    def of(
        cls, tests: Iterable[Test], schema: Schema, residuals: Iterable[Residual] = ()
    ) -> Self | None:
        """The conjunction of tests, several per attribute allowed; None if no event passes."""
        allowed: dict[int, Values] = {}
        for at, values in tests:
            allowed[at] = allowed[at] & values if at in allowed else values
        if not all(allowed.values()):
            return None
        return cls(
            tuple(
                (at, values)
                for at, values in sorted(allowed.items())
                if values != Values.all(schema.attributes[at])
            ),
            tuple(sorted(set(residuals), key=lambda each: each.order())) if residuals else (),
        )

    @property
    def attributes(self) -> set[int]:
        """The attributes that the box looks at."""
        needed = {at for each in self.residuals for at in each.attributes}
        return needed.union(at for at, _ in self.tests)

    def matches(self, keys: Sequence[Key | None]) -> bool:
        """Whether an event passes every test, and every residual holds for it."""
        return all(keys[at] in values for at, values in self.tests) and all(
            each.matches(keys) for each in self.residuals
        )

    def within(self, other: Box) -> bool:
        """Whether every event of this box is known to be in the other one."""
        mine = dict(self.tests)
        return self.implies_residuals(other) and all(
            at in mine and mine[at].within(values) for at, values in other.tests
        )

    def implies_residuals(self, other: Box) -> bool:
        """Whether each residual of the other box is one of this box too."""
        return not other.residuals or set(other.residuals) <= set(self.residuals)

    def meets(self, other: Box) -> bool:
        """Whether some event passes the tests of both."""
        mine = dict(self.tests)
        return all(at not in mine or mine[at].meets(values) for at, values in other.tests)

    def order(self) -> tuple[object, ...]:
        """A key for a total order of boxes of one schema, the same on every machine."""
        tests = tuple(
            (
                at,
                values.null,
                tuple((low, high is None, high or low) for low, high in values.ranges),
            )
            for at, values in self.tests
        )
        return tests, tuple(each.order() for each in self.residuals)


@dataclass(frozen=True, slots=True)
class Filter:
    """A union of boxes in normal form: no box contains another and no two can be joined into one.

    Without boxes the filter matches nothing; one box without tests matches everything.
    """

    schema: Schema
    boxes: tuple[Box, ...]

    @classmethod
    def of(cls, boxes: Iterable[Box], schema: Schema) -> Self:
        """Bring boxes into normal form."""
        return cls(schema, tuple(sorted(_merge_boxes(set(boxes), schema), key=Box.order)))

    @classmethod
    def everything(cls, schema: Schema) -> Self:
        """The filter that every event matches."""
        return cls(schema, (Box(()),))

    def matches(self, keys: Sequence[Key | None]) -> bool:
        """Whether the filter matches an event, given as the keys of its schema."""
        return any(box.matches(keys) for box in self.boxes)

    @property
    def has_residuals(self) -> bool:
        """Whether some box has a residual."""
        return any(box.residuals for box in self.boxes)

    def drop_residuals(self) -> Filter:
        """The filter of the tests alone, which matches at least the same events."""
        if not self.has_residuals:
            return self
        return Filter.of((Box(box.tests) for box in self.boxes), self.schema)


def intersects(one: Filter, other: Filter) -> bool:
    """Whether some event matches both.

    False is always correct. True is correct unless a residual lets no common event through.
    """
    return any(a.meets(b) for a in one.boxes for b in other.boxes)


def covers(one: Filter, other: Filter) -> bool:
    """Whether every event that matches `other` matches `one`.

    True is always correct. False is correct unless the search for a proof exceeded `MOST_STEPS` or
    would have to look into residuals.
    """
    steps = _StepBudget(MOST_STEPS)
    return all(_is_covered(box, one.boxes, one.schema, steps) for box in other.boxes)


def equivalent(one: Filter, other: Filter) -> bool:
    """Whether both filters match the same events, however they are written."""
    return one.boxes == other.boxes or (covers(one, other) and covers(other, one))


# --- normal form ---------------------------------------------------------------------------------


def join_boxes(boxes: Iterable[Box], schema: Schema) -> set[Box]:
    """Join boxes that differ in one attribute only; the events stay the same.

    One pass over the attributes, in time proportional to the number of boxes.
    """
    joined = set(boxes)
    for at in range(len(schema)):
        joined = _join_along(at, joined, schema)
    return joined


def _merge_boxes(boxes: set[Box], schema: Schema) -> list[Box]:
    """Join boxes that differ in one attribute only, and drop those within another."""
    kept = list(join_boxes(boxes, schema))
    changed = len(kept) > 1
    while changed:
        kept = _drop_covered(kept)
        before = len(kept)
        kept = list(join_boxes(kept, schema))
        changed = len(kept) < before
    return kept


def _drop_covered(boxes: list[Box]) -> list[Box]:
    """The boxes that are not within another."""
    inside = _as_bits(boxes)
    outside = [~bits for bits in inside]
    return [
        box
        for row, (box, bits) in enumerate(zip(boxes, inside, strict=True))
        if all(bits & other for at, other in enumerate(outside) if at != row)
    ]


def _as_bits(boxes: list[Box]) -> list[int]:
    """Each box as a set of bits, such that one is within another if and only if its bits are.

    Each attribute that some box tests has a bit for each stretch between two neighbouring ends of
    ranges, one for the missing value and one for boxes without a test. Each residual has one for
    boxes without it.
    """
    found = [0] * len(boxes)
    tests = [dict(box.tests) for box in boxes]
    first = 0
    for at in sorted({at for box in tests for at in box}):
        ends = {end for box in tests if at in box for each in box[at].ranges for end in each}
        inner = sorted(end for end in ends if end is not None)
        place: dict[Key | None, int] = {end: first + 2 + k for k, end in enumerate(inner)}
        end = place[None] = first + 2 + len(inner)  # None: a text without an upper end
        for row, box in enumerate(tests):
            if at not in box:
                found[row] |= (1 << end) - (1 << first)
                continue
            found[row] |= box[at].null << (first + 1)
            for low, high in box[at].ranges:
                found[row] |= (1 << place[high]) - (1 << place[low])
        first = end
    for residual in {each for box in boxes for each in box.residuals}:
        for row, whole in enumerate(boxes):
            found[row] |= (residual not in whole.residuals) << first
        first += 1
    return found


def _join_along(at: int, boxes: set[Box], schema: Schema) -> set[Box]:
    """Join the boxes that differ only in their test of the attribute at `at`."""
    alike: dict[Box, list[Values | None]] = {}
    for box in boxes:
        rest = Box(tuple(test for test in box.tests if test[0] != at), box.residuals)
        alike.setdefault(rest, []).append(dict(box.tests).get(at))
    joined = set()
    for rest, found in alike.items():
        if None in found:
            joined.add(rest)
            continue
        given = [values for values in found if values is not None]
        union = Values.of(
            (each for values in given for each in values.ranges),
            schema.attributes[at].kind,
            null=any(values.null for values in given),
        )
        one = Box.of((*rest.tests, (at, union)), schema, rest.residuals)
        assert one is not None
        joined.add(one)
    return joined


# --- covering ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _StepBudget:
    """The steps that a search for cover may still take."""

    left: int


def _is_covered(box: Box, boxes: Sequence[Box], schema: Schema, steps: _StepBudget) -> bool:
    """Whether `boxes` cover `box`: cut away what the first one covers and recurse on the rest."""
    steps.left -= 1
    if steps.left < 0:
        return False
    near = [other for other in boxes if box.implies_residuals(other) and box.meets(other)]
    if any(box.within(other) for other in near):
        return True
    if not near:
        return False
    first, rest = near[0], near[1:]
    return all(_is_covered(piece, rest, schema, steps) for piece in _outside(box, first, schema))


def _outside(box: Box, other: Box, schema: Schema) -> Iterable[Box]:
    """The part of `box` outside `other`, as disjoint boxes."""
    inside: list[Test] = list(box.tests)
    for at, values in other.tests:
        outside = values.complement(schema.attributes[at])
        piece = Box.of((*inside, (at, outside)), schema, box.residuals)
        if piece is not None:
            yield piece
        inside.append((at, values))
