"""Who wants an event, inside a content broker: three ways, events per second and changes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from benchmarks.linked_hops import LinkedHops
from benchmarks.measure import Section
from distributary.content.hop_index import HopIndex
from distributary.content.messages import Name
from distributary.content.tables import MatchIndex
from distributary.model import Filter, Key, Schema
from distributary.workloads.content import ContentParams, content_world
from distributary.workloads.quotes import QUOTE_SCHEMA, Quotes, quote_events, quote_filters

SIZES = (1_000, 10_000, 100_000)
# The share of the subscriptions that are of local clients: a core broker, and an edge broker.
SHARES = (0.02, 0.25, 0.97)
LINKS, CLIENTS, EVENTS = 3, 100, 500
EVENT_EVERY = 32  # changes


class _Index(Protocol):
    def add(self, name: Name, filter: Filter, hop: str) -> None: ...

    def remove(self, name: Name, hop: str) -> None: ...


@dataclass(frozen=True)
class _Way:
    """An index, how it answers, and what its changes cost."""

    index: _Index
    find: Callable[[Sequence[Key | None], str], Iterable[str]]


def _ways(schema: Schema) -> dict[str, _Way]:
    linked = LinkedHops(schema, {f"link {at}" for at in range(LINKS)})
    counted, listed = HopIndex(schema), MatchIndex(schema)
    return {
        "links": _Way(linked, linked.find_hops),
        "counts": _Way(counted, counted.count_hops),
        "lists": _Way(listed, listed.find_hops),
    }


def broker_matching(sizes: Sequence[int] = SIZES) -> Section:
    """Events per second, and the cost of a subscription and an unsubscription."""
    rows = []
    for title, schema, make in _shapes():
        _warm_up(schema, make)
        for n in sizes:
            filters, events = make(n)
            for share in SHARES:
                hops = _hops(n, share)
                rows.append([title, f"{n:,}", f"{share:.0%}", *_row(schema, filters, hops, events)])
    return Section(
        "A broker's matching: who wants an event",
        f"One broker with {LINKS} links and {CLIENTS} local clients; {EVENTS} events that came by "
        "a link, one at a time, in events per second of CPU time, right after all subscriptions "
        f"came, {EVENT_EVERY} between two events. Links: link matching for the neighbours and a "
        "matcher for the clients; counts: one matcher for all, its matches counted by neighbour "
        "and client, as the broker does it; lists: one matcher, its matches listed, as the broker "
        "does it for selective pruning, which needs them. All three find the same (asserted). "
        "Then the CPU time of a "
        f"subscription and an unsubscription, with 1/{EVENT_EVERY} of an event, mean and longest, "
        "with links and with counts.",
        [
            "filters",
            "subscriptions",
            "local",
            "matches",
            "links",
            "counts",
            "lists",
            "links / counts",
            "links / lists",
            "links: subscribe, longest",
            "end, longest",
            "counts: subscribe, longest",
            "end, longest",
        ],
        rows,
    )


def _shapes() -> list[tuple[str, Schema, Callable[[int], tuple[list[Filter], list[_Keys]]]]]:
    world = content_world(ContentParams(20, 10, regions=1), np.random.default_rng(20))

    def make_quotes(n: int) -> tuple[list[Filter], list[_Keys]]:
        rng = np.random.default_rng(n)
        filters = quote_filters(Quotes(), n, rng)
        return filters, [
            QUOTE_SCHEMA.keys(row) for row in quote_events(Quotes(), EVENTS, rng).to_pylist()
        ]

    def make_world(n: int) -> tuple[list[Filter], list[_Keys]]:
        rng = np.random.default_rng(n)
        filters = world.filters(n, 0, rng)
        return filters, [world.schema.keys(row) for row in world.events(EVENTS, 0, rng).to_pylist()]

    return [
        ("stock quotes", QUOTE_SCHEMA, make_quotes),
        ("20 attributes x 10 values", world.schema, make_world),
    ]


_Keys = tuple[Key | None, ...]


def _hops(n: int, share: float) -> list[str]:
    rng = np.random.default_rng(7)
    local = rng.random(n) < share
    at = rng.integers(0, CLIENTS * LINKS, n)
    return [
        f"client {number % CLIENTS}" if is_local else f"link {number % LINKS}"
        for is_local, number in zip(local.tolist(), at.tolist(), strict=True)
    ]


def _row(
    schema: Schema, filters: list[Filter], hops: list[str], events: list[_Keys]
) -> tuple[str, ...]:
    ways = _ways(schema)
    added = {
        name: _measure_changes(
            way,
            events,
            (
                partial(way.index.add, Name("b", number), filter, hop)
                for number, (filter, hop) in enumerate(zip(filters, hops, strict=True))
            ),
        )
        for name, way in ways.items()
    }
    for keys in events:
        found = [set(way.find(keys, "link 0")) for way in ways.values()]
        assert found[0] == found[1] == found[2], f"{found} for {keys}"
    speeds = {name: _speed(way, events) for name, way in ways.items()}
    listed = ways["lists"].index
    assert isinstance(listed, MatchIndex)
    matches = np.mean([len(listed.match(keys, None)) for keys in events])
    gone = random.Random(1).sample(range(len(filters)), len(filters) // 2)
    ended = {
        name: _measure_changes(
            way, events, (partial(way.index.remove, Name("b", at), hops[at]) for at in gone)
        )
        for name, way in ways.items()
    }
    return (
        f"{matches:,.0f}",
        *(f"{speeds[name]:,.0f}" for name in ways),
        f"{speeds['links'] / speeds['counts']:.2f}",
        f"{speeds['links'] / speeds['lists']:.1f}",
        added["links"],
        ended["links"],
        added["counts"],
        ended["counts"],
    )


def _measure_changes(way: _Way, events: list[_Keys], changes: Iterable[Callable[[], None]]) -> str:
    """The mean CPU time of changes with an event after every 32 of them, and the longest wait."""
    longest = total = 0
    for number, change in enumerate(changes, 1):
        began = time.process_time_ns()
        change()
        if number % EVENT_EVERY == 0:
            way.find(events[number % len(events)], "link 0")
        took = time.process_time_ns() - began
        longest, total = max(longest, took), total + took
    return f"{total / number / 1e3:.0f} µs, {longest / 1e6:.1f} ms"


def _speed(way: _Way, events: list[_Keys]) -> float:
    times = []
    for _ in range(3):
        began = time.process_time()
        for keys in events:
            way.find(keys, "link 0")
        times.append(time.process_time() - began)
    return len(events) / sorted(times)[1]


def _warm_up(schema: Schema, make: Callable[[int], tuple[list[Filter], list[_Keys]]]) -> None:
    """Compile all kernels."""
    filters, events = make(200)
    _row(schema, filters, _hops(200, 0.5), events)


SECTIONS = {"broker_matching": broker_matching}
