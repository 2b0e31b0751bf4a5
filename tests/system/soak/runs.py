"""Runs of publishers and receivers, as their diaries tell them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.system.soak.diary import Line

__all__ = ["Got", "PublisherRun", "ReceiverRun", "Sent", "Wish"]


class Sent(NamedTuple):
    """A message as its publisher wrote it down."""

    at: float
    number: int
    sequence: int | None  # among the messages of the flow that were taken; None: it was dropped


class PublisherRun:
    """A run of a publisher."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.name, self.run, self.incarnation = "", -1, 0
        self.ended_well, self.until = False, 0.0
        self.sent: dict[str, list[Sent]] = defaultdict(list)
        self.uncertain: tuple[str, int] | None = None  # perhaps it was never handed over
        taken: Counter[str] = Counter()
        for what, at, *facts in lines:
            self.until = at
            if what == "begin":
                self.name, self.run, self.incarnation = facts
            elif what == "sent":
                flow, number = facts
                taken[flow] += 1
                self.sent[flow].append(Sent(at, number, taken[flow]))
                self.uncertain = flow, number
            elif what == "dropped":
                flow, number = facts
                taken[flow] -= 1
                self.sent[flow][-1] = self.sent[flow][-1]._replace(sequence=None)
                assert self.sent[flow][-1].number == number
            elif what == "end":
                self.ended_well, self.uncertain = True, None

    def find(self, flow: str, number: int) -> Sent | None:
        """A message by its number, which begin at 1."""
        sent = self.sent.get(flow, [])
        return sent[number - 1] if 0 < number <= len(sent) else None


class Got(NamedTuple):
    """A message as a receiver got it."""

    at: float
    sequence: int
    run: int
    number: int


@dataclass(slots=True)
class Wish:
    """A time in which an application wanted a flow."""

    flow: str
    subscribed: float = math.inf  # when it was told so
    until: float = math.inf
    is_cut: bool = False  # by the application or by a kill: the last messages may be on their way
    got: list[Got] = field(default_factory=list)


class ReceiverRun:
    """A run of a receiver; what it cannot have got by its wishes is in `uninvited`."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.name, self.run = "", -1
        self.ended_well, self.until = False, 0.0
        self.wishes: dict[str, list[Wish]] = defaultdict(list)
        self.got: dict[str, list[Got]] = defaultdict(list)
        self.uninvited: list[str] = []
        self.missing: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.gaps: set[tuple[int, str | None]] = set()  # incarnation, flow (None: others besides)
        self.over: set[int] = set()  # incarnations
        self.unserved: dict[str, list[list[float]]] = defaultdict(list)  # from, to
        self._open: dict[str, Wish] = {}
        for what, at, *facts in lines:
            self.until = at
            handle = getattr(self, f"_on_{what}", None)
            if handle is not None:
                handle(at, *facts)
        for wish in self._open.values():
            wish.until, wish.is_cut = self.until, not self.ended_well

    @property
    def wanted(self) -> list[str]:
        """The flows that the application wants at the end."""
        return sorted(self._open)

    @property
    def is_subscribed(self) -> bool:
        """Whether the application was told so of all of them."""
        return all(wish.subscribed < math.inf for wish in self._open.values())

    def is_reported_missing(self, incarnation: int, flow: str, sequence: int) -> bool:
        """Whether a report says that this message is missing."""
        ranges = self.missing.get((flow, incarnation), [])
        return any(first <= sequence <= last for first, last in ranges)

    def has_gap(self, incarnation: int, flow: str) -> bool:
        """Whether packets of a run are lost in which the flow may have been."""
        return not self.gaps.isdisjoint({(incarnation, flow), (incarnation, None)})

    def _on_begin(self, at: float, name: str, run: int) -> None:
        self.name, self.run = name, run

    def _on_want(self, at: float, flows: list[str]) -> None:
        for flow in flows:
            self._open[flow] = wish = Wish(flow)
            self.wishes[flow].append(wish)

    def _on_leave(self, at: float, flows: list[str]) -> None:
        for flow in flows:
            self._open[flow].until, self._open[flow].is_cut = at, True

    def _on_left(self, at: float, flows: list[str]) -> None:
        for flow in flows:
            del self._open[flow]

    def _on_subscribed(self, at: float, flows: list[str]) -> None:
        for flow in flows:
            if flow in self._open:
                self._open[flow].subscribed = min(at, self._open[flow].subscribed)

    def _on_got(self, at: float, flow: str, *facts: int) -> None:
        got = Got(at, *facts)
        self.got[flow].append(got)
        if flow in self._open:
            self._open[flow].got.append(got)
        else:
            self.uninvited.append(f"{self.name}.{self.run} got {flow} {got} uninvited")

    def _on_unserved(self, at: float, flows: list[str]) -> None:
        for flow, times in self.unserved.items():
            if flow not in flows and times[-1][1] == math.inf:
                times[-1][1] = at
        for flow in flows:
            times = self.unserved[flow]
            if not times or times[-1][1] < math.inf:
                times.append([at, math.inf])

    def _on_missing(
        self, at: float, publisher: str, incarnation: int, flow: str, first: int, last: int
    ) -> None:
        self.missing[flow, incarnation].append((first, last))

    def _on_gap(
        self, at: float, publisher: str, incarnation: int, flows: list[str], more: int, *says: str
    ) -> None:
        self.gaps.update((incarnation, flow) for flow in flows)
        if more:
            self.gaps.add((incarnation, None))

    def _on_over(self, at: float, publisher: str, incarnation: int, *says: str) -> None:
        self.over.add(incarnation)

    def _on_end(self, at: float) -> None:
        self.ended_well = True
