"""The attributes that conditions speak of, with the kinds that the constants beside them tell."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from sqlglot import exp

from distributary.errors import InputError
from distributary.matching.sql import constant_of, parsed
from distributary.model import Attribute, AttributeKind, Schema

__all__ = ["inferred_schema"]

_KINDS = {str: AttributeKind.TEXT, bool: AttributeKind.BOOLEAN}


def inferred_schema(texts: Iterable[str]) -> Schema:
    """A schema for filters that come without one, attributes in the order of their names.

    Compared with text an attribute is text, with a number a number, and so on; one that is only
    asked whether it is there is text. What does not parse tells nothing; two kinds for one
    attribute are an `InputError`.
    """
    kinds: dict[str, tuple[str, AttributeKind | None]] = {}
    for text in texts:
        try:
            tree = parsed(text)
        except InputError:
            continue
        for column in tree.find_all(exp.Column):
            _note(kinds, column.name, _kind_beside(column))
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
            remedy="name a table of events that tells its type",
        )


def _kind_beside(column: exp.Column) -> AttributeKind | None:
    """What the other operands of the test around a column are."""
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
