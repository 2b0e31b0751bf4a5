"""What a service was told, and so what each of its decisions must say: worked out the long way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from distributary.control.messages import (
    Decide,
    InterestChanged,
    PublisherReported,
)
from distributary.control.settings import ControlSettings
from distributary.control.status import Waste
from distributary.model import Plan
from tests.control.plans import make_plan, read_places, waste_of

_EARLY = 5  # seconds that a publisher's clock may be ahead


class Mirror:
    """The interest and the counts that a service has heard of, from its beginning."""

    def __init__(self, settings: ControlSettings, plan: Plan | None) -> None:
        self.settings = settings
        self.plan = plan  # the last one that it decided, or found
        self.wants: dict[str, frozenset[str]] = {}
        self._window = max(1, round(settings.rate_window))
        self._seconds: dict[int, Counter[str]] = {}
        self._first: int | None = None
        self._names: dict[tuple[str, str], dict[int, str]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._incarnations: dict[str, str] = {}
        self._unnamed: dict[str, list[tuple[int, int, int]]] = {}  # counts that wait for a name
        self.counted: Counter[tuple[int, str]] = Counter()

    def hear(self, now: float, message: Any) -> None:
        match message:
            case InterestChanged(name, record):
                self.wants.pop(name, None)
                if record is not None and record.flows:
                    self.wants[name] = frozenset(record.flows)
            case PublisherReported(name, report):
                key = name, report.incarnation
                if report.number <= self._numbers.get(key, -1):
                    return
                self._numbers[key] = report.number
                if self._incarnations.get(name) != report.incarnation:
                    self._incarnations[name] = report.incarnation
                    self._unnamed[name] = []
                names = self._names.setdefault(key, {})
                names.update(enumerate(report.names, report.first_name))
                waiting = self._unnamed[name]
                waiting += [
                    (report.first_second + after, flow, messages)
                    for after, flow, messages in report.counts
                ]
                for second, flow, messages in waiting:
                    if flow in names:
                        self._count(second, names[flow], messages, now)
                self._unnamed[name] = [each for each in waiting if each[1] not in names]
            case "tick":
                for second in [at for at in self._seconds if at < now - self._window]:
                    del self._seconds[second]

    def _count(self, second: int, flow: str, messages: int, now: float) -> None:
        self.counted[second, flow] += messages
        if now - self._window <= second <= now + _EARLY:
            self._first = second if self._first is None else min(self._first, second)
            self._seconds.setdefault(second, Counter())[flow] += messages

    # --- what follows from it ---------------------------------------------------------------------

    @property
    def wanted(self) -> set[str]:
        return {flow for flows in self.wants.values() for flow in flows}

    def weigh(self, flows: set[str]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for found in self._seconds.values():
            counts.update(found)
        return {flow: max(1, counts[flow]) for flow in flows}

    def span(self, now: float) -> Fraction:
        if self._first is None:
            return Fraction(1)
        return Fraction(min(self._window, max(1, math.floor(now) - self._first)))

    def price(self, plan: Plan, now: float) -> tuple[Fraction, Fraction, Fraction]:
        places = read_places(plan)
        weights = self.weigh(set(places))
        groups = plan.session_group.tolist()
        return waste_of(self.wants, places, groups, weights, self.span(now))

    def check(self, action: Decide, now: float) -> None:
        """Check a decision as soon as the machine has made it."""
        decision, plan = action.decision, action.plan
        assert plan is not None
        places = read_places(plan)
        missed = self.wanted - places.keys()
        assert places.keys() <= self.wanted
        assert not missed or self.settings.limits or self.settings.pins, f"{missed} are held back"
        assert _is_same(plan, make_plan(self.wants, places, plan.session_group.tolist()))
        priced = self.price(plan, now)
        assert decision.predicted is not None
        for exact, told in zip(priced, _list(decision.predicted), strict=True):
            assert told == _near(exact), f"predicted {told}, and it is {float(exact)}"
        if decision.kind != "placed" and decision.kind != "first":
            broken = list(self.list_broken(plan, now))
            assert not broken, broken
        if self.plan is not None and decision.kind == "planned":
            self._check_moves(decision.moves, plan, now)
        self.plan = plan

    def _check_moves(self, moves: int, plan: Plan, now: float) -> None:
        assert self.plan is not None
        before, after = read_places(self.plan), read_places(plan)
        most = self.settings.max_moves
        if most is None:
            most = max(1, int(0.02 * len(before)))
        assert count_moved(before, after) <= moves <= most
        if before.keys() == after.keys():
            assert _work(self.price(plan, now)) < _work(self.price(self.plan, now))

    def list_broken(self, plan: Plan, now: float) -> Iterator[str]:
        """Pins and limits of groups that a plan breaks, as far as schedules set any."""
        places, groups = read_places(plan), plan.session_group.tolist()
        for flow, group in self.settings.pins.items():
            if flow in places and groups[places[flow]] != group:
                yield f"{flow} is in group {groups[places[flow]]}, not {group}"
        most = read_members(self.settings.limits)
        if most is None:
            return
        for group in set(groups):
            carried = {flow for flow, at in places.items() if groups[at] == group}
            members = sum(bool(wanted & carried) for wanted in self.wants.values())
            if members > most:
                yield f"group {group} has {members} members, over {most}"


def read_members(limits: str) -> int | None:
    """The members of a group that the limits of a schedule allow."""
    return int(limits.rsplit("=", 1)[1]) if limits else None


def count_moved(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """The flows that move at least, whatever numbers sessions have: by trying all of them."""
    both = before.keys() & after.keys()
    sessions = sorted({*before.values(), *after.values()})
    found = sorted(set(after.values()))
    stay = max(
        sum(before[flow] == dict(zip(found, numbers, strict=True))[after[flow]] for flow in both)
        for numbers in permutations(sessions, len(found))
    )
    return len(both) - stay


def _is_same(one: Plan, other: Plan) -> bool:
    return (
        one.receivers == other.receivers
        and one.flows == other.flows
        and all(
            np.array_equal(getattr(one, name), getattr(other, name))
            for name in (
                "placement_flow",
                "placement_session",
                "session_group",
                "subscription_receiver",
                "subscription_session",
            )
        )
    )


def _list(waste: Waste) -> tuple[float, float, float]:
    return waste.wanted, waste.dropped_first, waste.dropped_second


def _near(value: Fraction) -> Any:
    return pytest.approx(float(value), rel=1e-9, abs=1e-9)


def _work(waste: tuple[Fraction, Fraction, Fraction]) -> Fraction:
    return waste[1] + 2 * waste[2]
