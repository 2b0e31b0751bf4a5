"""Splits long messages of subscribers into parts that a server accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from distributary.topics.messages import Answer, Join, More, News, Settled, Tell

__all__ = ["split_message"]

_AROUND_NAME = 5  # bytes, at most, for the length of a text
_AROUND_NEWS = 64  # bytes, at most, for the names and values of its other fields

T = TypeVar("T")


def split_message(message: Any, most: int) -> list[Any]:
    """Split a message into equivalent ones of about `most` bytes each; most need no split."""
    if not isinstance(message, Join | Settled | Tell | Answer):
        return [message]
    news = message.news if isinstance(message, Tell) else ()
    whole = sum(map(_size, message.needs)) + sum(map(_size, message.channels))
    if whole + sum(map(_size_of_news, news)) <= most:
        return [message]
    parts: list[Any] = [More(needs=part) for part in _split_items(message.needs, _size, most)]
    parts += [More(channels=part) for part in _split_items(message.channels, _size, most)]
    if isinstance(message, Answer):
        return [replace(message, needs=part.needs, channels=part.channels) for part in parts]
    # The first part replaces the earlier report; news come last, when the rest is known.
    first = replace(message, needs=(), channels=())
    if isinstance(first, Tell):
        first = replace(first, news=())
    parts += [More(news=part) for part in _split_items(news, _size_of_news, most)]
    return [first, *parts]


def _split_items(
    items: Sequence[T], size: Callable[[T], int], most: int
) -> Iterator[tuple[T, ...]]:
    part, total = list[T](), 0
    for item in items:
        if part and total + size(item) > most:
            yield tuple(part)
            part, total = [], 0
        part.append(item)
        total += size(item)
    if part:
        yield tuple(part)


def _size(name: str) -> int:
    return len(name.encode()) + _AROUND_NAME


def _size_of_news(news: News) -> int:
    return _size(news.topic.topic) + _AROUND_NEWS
