"""Infer the attributes of conditions, and their kinds from the constants beside them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from sqlglot import exp

from distributary.errors import InputError
from distributary.matching.sql import parse_condition
from distributary.matching.sql_terms import constant_of
from distributary.model import Attribute, AttributeKind, Schema

__all__ = ["infer_schema"]

_KINDS = {str: AttributeKind.TEXT, bool: AttributeKind.BOOLEAN}


def infer_schema(texts: Iterable[str]) -> Schema:
    """Make a schema for filters that have none, with attributes in the order of their names.

    An attribute that is compared with text is text, with a number a number, and so on; one that is
    only tested for NULL is text. Attributes that are compared with each other are of one kind.
    Conditions that do not parse are ignored; two kinds for one attribute are an `InputError`.
    """
    kinds: dict[str, tuple[str, AttributeKind | None]] = {}
    pairs: set[tuple[str, str]] = set()
    for text in texts:
        try:
            tree = parse_condition(text)
        except InputError:
            continue
        for column in tree.find_all(exp.Column):
            _note(kinds, column.name, _kind_beside(column))
            pairs.update((column.name, other) for other in _columns_beside(column))
    for _ in kinds:  # a kind may pass along a chain of comparisons
        for name, other in sorted(pairs):
            _note(kinds, name, kinds[other.lower()][1])
    return Schema(
        tuple(
            Attribute(name, kind or AttributeKind.TEXT) for _, (name, kind) in sorted(kinds.items())
        )
    )


def _note(
    kinds: dict[str, tuple[str, AttributeKind | None]], name: str, kind: AttributeKind | None
) -> None:
    first, known = kinds.setdefault(name.lower(), (name, kind))
    if known is None:
        kinds[name.lower()] = (first, kind)
    elif kind is not None and kind is not known:
        raise InputError(
            f"attribute {name!r} is {known.value} in one condition and {kind.value} in another",
            value=name,
            remedy="give a table of events, which has its type",
        )


def _columns_beside(column: exp.Column) -> list[str]:
    """The attributes that a column is compared with."""
    around = column.parent
    if not isinstance(around, exp.Predicate):
        return []
    operands = around.iter_expressions()
    return [each.name for each in operands if isinstance(each, exp.Column) and each is not column]


def _kind_beside(column: exp.Column) -> AttributeKind | None:
    """The kind of the other operands in the test around a column."""
    around = column.parent
    if isinstance(around, exp.Is):
        return AttributeKind.BOOLEAN if isinstance(around.expression, exp.Boolean) else None
    if around is None or isinstance(around, exp.And | exp.Or | exp.Not | exp.Paren):
        return AttributeKind.BOOLEAN
    for other in around.iter_expressions():
        if other is not column:
            try:
                constant = constant_of(other)
            except InputError:
                continue
            number = isinstance(constant, Decimal | float)
            return _KINDS.get(
                type(constant), AttributeKind.FLOAT if number else AttributeKind.TIMESTAMP
            )
    return None
