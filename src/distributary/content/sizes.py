"""How many bytes messages between brokers take at most, so that a packet fits into a frame.

The bounds are those of `codec.py`, without encoding anything: texts count as if every character
took four bytes.
"""

from __future__ import annotations

from distributary.content.messages import (
    AdvertiseStatement,
    Barrier,
    Name,
    Packed,
    Publication,
    SubscribeStatement,
    UnsubscribeStatement,
)
from distributary.content.resync import HeardDigests, Known, StaleStatements, ToldBuckets
from distributary.machines.actions import Message
from distributary.model import Filter, Key

__all__ = ["measure_filter", "measure_message"]

_NUMBER = 9  # bytes; also of a list's or a text's length, and of what encloses it
_AROUND = 8 * _NUMBER  # the numbers of a message that has no parts


def measure_message(message: Message) -> int:
    """The bytes that a message takes in a packet, or more."""
    match message:
        case Publication(event, advertisement):
            texts = _measure_text(event.publisher) + len(event.payload) + 2 * _AROUND
            return texts + _measure_name(advertisement) + sum(map(_measure_key, event.keys))
        case SubscribeStatement(name, filter) | AdvertiseStatement(name, filter):
            return _AROUND + _measure_name(name) + measure_filter(filter)
        case UnsubscribeStatement(name, prune):
            names = (name, *(each for each, _ in prune or ()))
            return _AROUND + sum(_measure_name(each) + 2 * _NUMBER for each in names)
        case Packed(statements):
            return _AROUND + sum(map(measure_message, statements))
        case ToldBuckets(buckets, known):
            return _AROUND + _NUMBER * len(buckets) + _measure_known(known)
        case StaleStatements(known):
            return _AROUND + _measure_known(known)
        case HeardDigests(digests):
            return _AROUND + _NUMBER * len(digests)
        case Barrier(name, advertisements, replaces):
            names = (name, *advertisements, *([] if replaces is None else [replaces]))
            return _AROUND + sum(map(_measure_name, names))
    other = getattr(message, "name", None)
    return _AROUND + (_measure_name(other) if isinstance(other, Name) else 0)


def measure_filter(filter: Filter) -> int:
    """The bytes that a filter takes, or more."""
    size = _NUMBER
    for box in filter.boxes:
        size += 4 * _NUMBER
        for _, values in box.tests:
            size += 4 * _NUMBER
            size += sum(_NUMBER + _measure_key(a) + _measure_key(b) for a, b in values.ranges)
        for residual in box.residuals:
            size += 4 * _NUMBER + _measure_text(getattr(residual, "pattern", ""))
            size += _measure_text(getattr(residual, "sign", ""))
    return size


def _measure_known(known: Known) -> int:
    every = (*known.advertisements.items(), *known.subscriptions.items())
    return sum(_NUMBER + _measure_name(name) + measure_filter(filter) for name, filter in every)


def _measure_name(name: Name) -> int:
    return 3 * _NUMBER + _measure_text(name.broker)


def _measure_text(text: str) -> int:
    return _NUMBER + 4 * len(text)


def _measure_key(key: Key | None) -> int:
    if isinstance(key, str):
        return _measure_text(key)
    return _NUMBER if key is None or -(2**63) <= key < 2**63 else _NUMBER + key.bit_length() // 4
