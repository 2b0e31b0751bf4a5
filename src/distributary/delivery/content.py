"""Events with attributes as messages of a plan's flows, and back, without I/O.

`EventSorter` finds the flows of each event and makes its messages; `EventFilter` finds in these
messages the events that a receiver wants. A message is a JSON object with short keys, which
`docs/delivery.md` describes. It has the event's attributes as *keys* of the schema, so both ends
compare the same numbers whatever the attributes' types.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from distributary.delivery.content_routes import ContentRoutes, RouteKind
from distributary.errors import InputError
from distributary.files import FlowFilters
from distributary.matching import Matcher
from distributary.model import Attribute, AttributeKind, Filter, Key, Plan, Schema, plan_problems
from distributary.model.event import EXACT, key_of

__all__ = [
    "ContentCounts",
    "Event",
    "EventFilter",
    "EventMessage",
    "EventSorter",
    "FoundEvent",
    "MatchedEvent",
    "check_content",
    "read_digest",
]

_MOST_COMBINATIONS = 10_000  # different ones without a flow of their own that are counted


class Event(NamedTuple):
    """An event as it is read: its attributes and its payload, in the input's row `row`.

    With `is_text` all values are text, as in CSV.
    """

    row: int
    values: Mapping[str, object]
    payload: bytes
    ts: float | None = None
    is_text: bool = False


class MatchedEvent(NamedTuple):
    """An event with its keys and the filters that it matches."""

    event: Event
    keys: Sequence[Key | None]
    filters: frozenset[int]


class EventMessage(NamedTuple):
    """A message to publish for an event."""

    flow: str
    payload: bytes
    ts: float | None = None


class FoundEvent(NamedTuple):
    """An event that a receiver wants; `number` counts the publisher's events from 1."""

    flow: str
    sequence: int
    number: int
    payload: bytes


class _Envelope(msgspec.Struct, omit_defaults=True):
    t: str  # digest of the table of filters
    n: int
    k: list[int | str | None]
    p: str | None = None
    b: str | None = None  # a payload that is not UTF-8, in base64
    f: list[str] | None = None  # all flows, if there are several


class _Digest(msgspec.Struct):
    t: str


_decode_digest = msgspec.json.Decoder(_Digest).decode


@dataclass(slots=True)
class ContentCounts:
    """What became of events. `combinations` counts sets of filters without a flow of their own."""

    events: int = 0
    unwanted: int = 0
    bad: int = 0
    routed: Counter[RouteKind] = field(default_factory=Counter)
    messages: int = 0
    combinations: Counter[frozenset[str]] = field(default_factory=Counter)

    def add(self, other: ContentCounts) -> None:
        """Add the counts of another sorter."""
        self.events += other.events
        self.unwanted += other.unwanted
        self.bad += other.bad
        self.messages += other.messages
        self.routed += other.routed
        self.combinations += other.combinations

    @property
    def unforeseen(self) -> int:
        """Events that match a set of filters without a flow of its own."""
        return self.routed[RouteKind.COVERED] + self.routed[RouteKind.SEVERAL]


def check_content(table: FlowFilters, plan: Plan, *, path: str = "") -> None:
    """Check that a plan serves the receivers of a table of filters, else raise `InputError`."""
    interest = table.interest()
    reason = ""
    if interest.flows != plan.flows:
        other = sorted(set(interest.flows) ^ set(plan.flows))[0]
        reason = f"flow {other!r} is not in both"
    elif interest.receivers != plan.receivers:
        other = sorted(set(interest.receivers) ^ set(plan.receivers))[0]
        reason = f"receiver {other!r} is not in both"
    elif problems := plan_problems(plan, interest):
        reason = problems[0]
    if reason:
        raise InputError(
            f"does not belong to the plan: {reason}",
            path=path or None,
            remedy="name the folders `plan` and `content` of the same run",
        )


class EventSorter:
    """Finds the flows of events; `counts` says what became of them."""

    def __init__(self, table: FlowFilters, numbers: Iterator[int] | None = None) -> None:
        """Events are numbered from 1, or by `numbers`, which several sorters may share."""
        self._table = table
        self._numbers = count(1) if numbers is None else numbers
        self._digest = table.digest
        self._matcher = Matcher(table.schema, table.filters)
        self._routes = ContentRoutes(table)
        self._encode = msgspec.json.Encoder().encode
        tested = {at for each in table.filters for box in each.boxes for at in box.attributes}
        # An event that has none of these is a mistake, unless some filter matches it nevertheless.
        self._tested = [table.schema.attributes[at].name for at in sorted(tested)]
        if len(self._matcher.match({})):
            self._tested = []
        self.counts = ContentCounts()

    @property
    def digest(self) -> str:
        """The digest of the table of filters."""
        return self._digest

    def sort(
        self,
        events: Iterable[Event | InputError],
        on_bad: Callable[[InputError], None],
        *,
        path: str | None = None,
    ) -> list[EventMessage]:
        """The messages of a batch of events, in order.

        `on_bad` gets an `InputError` for each event that cannot be used; it may raise it.
        """
        found: list[EventMessage] = []
        for matched in self.match(events, on_bad, path=path):
            found += self.make_messages(matched)
        return found

    def match(
        self,
        events: Iterable[Event | InputError],
        on_bad: Callable[[InputError], None],
        *,
        path: str | None = None,
    ) -> list[MatchedEvent]:
        """Find the filters that each event of a batch matches; in place of an event may be why not.

        `on_bad` is as for `sort`.
        """
        usable: list[tuple[Event, list[object], tuple[Key | None, ...]]] = []
        for event in events:
            self.counts.events += 1
            if isinstance(event, InputError):
                self.counts.bad += 1
                on_bad(event)
                continue
            try:
                values = self._read_values(event)
                keys = tuple(
                    each.key(value)
                    for each, value in zip(self._table.schema.attributes, values, strict=True)
                )
            except InputError as error:
                self.counts.bad += 1
                on_bad(
                    InputError(
                        error.reason,
                        path=path,
                        row=event.row,
                        value=error.value,
                        remedy=error.remedy or "mend the event, or allow bad ones with --max-bad",
                    )
                )
            else:
                usable.append((event, values, keys))
        return [
            MatchedEvent(event, keys, filters)
            for (event, _, keys), filters in zip(usable, self._match(usable), strict=True)
        ]

    def take_back(self, matched: Sequence[MatchedEvent]) -> list[Event]:
        """The events of which no messages were made; another sorter matches and counts them."""
        self.counts.events -= len(matched)
        return [each.event for each in matched]

    def _read_values(self, event: Event) -> list[object]:
        """The values of the schema's attributes, in its order."""
        given = {name.lower(): value for name, value in event.values.items()}
        if len(given) < len(event.values):
            raise InputError("has two attributes whose names differ only in case")
        if self._tested and not any(name.lower() in given for name in self._tested):
            raise InputError(
                f"has none of the attributes that filters test: {', '.join(self._tested)}"
            )
        return [
            read_value(given.get(each.name.lower()), each, is_text=event.is_text)
            for each in self._table.schema.attributes
        ]

    def _match(self, usable: Sequence[tuple[Event, list[object], object]]) -> list[frozenset[int]]:
        """The filters that each event matches, found for all of them at once."""
        if not usable:
            return []
        columns = zip(*(values for _, values, _ in usable), strict=True)
        names = [each.name for each in self._table.schema.attributes]
        table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        matched: list[list[int]] = [[] for _ in usable]
        rows, numbers = self._matcher.match_table(table)
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            matched[row].append(number)
        return [frozenset(numbers) for numbers in matched]

    def make_messages(self, matched: MatchedEvent) -> list[EventMessage]:
        """Make the messages of an event, which gets the next number."""
        event, keys, filters = matched
        if not filters:
            self.counts.unwanted += 1
            return []
        kind, flows = self._routes.find(filters)
        self.counts.routed[kind] += 1
        if kind is not RouteKind.EXACT:
            self._count_combination(frozenset(self._table.texts[at] for at in filters))
        self.counts.messages += len(flows)
        envelope = _Envelope(
            self._digest,
            next(self._numbers),
            _encode_keys(keys, self._table.schema),
            f=list(flows) if len(flows) > 1 else None,
        )
        try:
            envelope.p = event.payload.decode()
        except UnicodeDecodeError:
            envelope.b = base64.b64encode(event.payload).decode()
        packed = self._encode(envelope)
        return [EventMessage(flow, packed, event.ts) for flow in flows]

    def _count_combination(self, texts: frozenset[str]) -> None:
        counts = self.counts.combinations
        if texts in counts or len(counts) < _MOST_COMBINATIONS:
            counts[texts] += 1


class EventFilter:
    """Finds the events that match any of some filters in the messages of flows.

    `foreign` counts messages that are not events of this table of filters.
    """

    def __init__(self, table: FlowFilters, filters: Iterable[Filter], flows: Iterable[str]) -> None:
        self._schema = table.schema
        self._digest = table.digest
        self._matcher = Matcher(table.schema, filters)
        self._flows = frozenset(flows)
        self._decode = msgspec.json.Decoder(_Envelope).decode
        self.foreign = 0

    def find(self, flow: str, sequence: int, message: bytes) -> FoundEvent | None:
        """The event in a message; None if it is not wanted, or comes in another flow too."""
        try:
            envelope = self._decode(message)
            payload = _decode_payload(envelope)
            keys = _decode_keys(envelope.k, self._schema) if envelope.t == self._digest else None
        except ValueError:
            keys = None
        if keys is None:
            self.foreign += 1
            return None
        if envelope.f is not None and flow != next(
            (each for each in envelope.f if each in self._flows), flow
        ):
            return None
        if not len(self._matcher.match_keys(keys)):
            return None
        return FoundEvent(flow, sequence, envelope.n, payload)


def read_digest(message: bytes) -> str | None:
    """The digest of the table of filters that a message was made by; None if it is no event."""
    try:
        return _decode_digest(message).t
    except ValueError:
        return None


def read_value(value: object, attribute: Attribute, *, is_text: bool = False) -> object:
    """The value that an attribute has in JSON or, with `is_text`, in CSV; raises `InputError`."""
    if value is None:
        return None
    try:
        return _convert_value(value, attribute, is_text)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        raise InputError(
            f"attribute {attribute.name!r} is {value!r}, not {attribute.kind.value}", value=value
        ) from None


def _convert_value(value: Any, attribute: Attribute, is_text: bool) -> object:
    match attribute.kind:
        case AttributeKind.INTEGER if is_text:
            return int(value)
        case AttributeKind.FLOAT if is_text or (
            isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        ):
            return float(value)
        case AttributeKind.DECIMAL if is_text or not isinstance(value, bool | str):
            key = key_of(Decimal(str(value)), attribute.kind, attribute.scale)
            # With the digits of its column, so that a batch of them is one.
            return value if key is None else Decimal(key).scaleb(-attribute.scale, EXACT)
        case AttributeKind.TEXT if isinstance(value, str):
            value.encode()  # half a surrogate pair is no text
        case AttributeKind.BOOLEAN if is_text:
            return {"true": True, "false": False}.get(value.lower(), value)
        case AttributeKind.DATE if isinstance(value, str):
            return date.fromisoformat(value)
        case AttributeKind.TIMESTAMP:
            return _read_moment(value)
    return value


def _read_moment(value: Any) -> object:
    """A point in time as UTC without a zone; numbers are seconds since 1970."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = datetime.fromtimestamp(value, UTC)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def _encode_keys(keys: Sequence[Key | None], schema: Schema) -> list[int | str | None]:
    """Keys as JSON has them; those of decimals may be beyond 64 bits, and become text."""
    kinds = (each.kind for each in schema.attributes)
    return [
        str(key) if key is not None and kind is AttributeKind.DECIMAL else key
        for key, kind in zip(keys, kinds, strict=True)
    ]


def _decode_keys(keys: Sequence[int | str | None], schema: Schema) -> list[Key | None]:
    """Keys of the kinds that the schema's attributes have, else a `ValueError`."""
    found: list[Key | None] = []
    for key, each in zip(keys, schema.attributes, strict=True):
        if key is not None and isinstance(key, str) != (
            each.kind in (AttributeKind.TEXT, AttributeKind.DECIMAL)
        ):
            raise ValueError("a key of another kind")
        decimal = key is not None and each.kind is AttributeKind.DECIMAL
        found.append(int(key) if decimal and key is not None else key)
    return found


def _decode_payload(envelope: _Envelope) -> bytes:
    if envelope.p is not None:
        return envelope.p.encode()
    if envelope.b is None:
        raise ValueError("no payload")
    return base64.b64decode(envelope.b, validate=True)
