"""Schedules in which receivers subscribe and unsubscribe at any moment, and a judge of them.

Faults, crashes and plan changes come as in `schedules.py`. The judge knows what applications did:
when a flow was subscribed and unsubscribed, when `Subscribed` was reported, and what was published.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from distributary.delivery import Gap, Missing, Subscribed, Unserved
from distributary.delivery.simulation import Subscribe, Unsubscribe
from tests.delivery.schedules import END, MENDED, Era, Life, World, covers

NEVER = float("inf")
PATIENCE = 2.0  # in which a receiver is to learn that a flow is not carried any more


@dataclass
class Interval:
    """A time in which an application wanted a flow."""

    begin: float
    firm: float  # from when on nothing may be lost
    end: float = NEVER


class InterestWorld(World):
    """A world in which interest changes."""

    def play(self) -> None:
        rng = np.random.default_rng([17, self.seed])
        self.asked: defaultdict[int, list[tuple[float, str, bool]]] = defaultdict(list)
        flows = sorted({flow for flows in self.schedule.wanted.values() for flow in flows})
        for _ in range(int(rng.integers(1, 30))):
            name, flow = str(rng.choice(sorted(self.schedule.wanted))), str(rng.choice(flows))
            change = partial(self.change_interest, name, flow, bool(rng.random() < 0.6))
            self.simulation.clock.at(float(rng.uniform(0.0, MENDED + 1.0)), change)
        super().play()

    def change_interest(self, name: str, flow: str, wanted: bool) -> None:
        now = self.simulation.clock.now
        if not self.lives[name] or self.lives[name][-1].end != NEVER:
            return
        self.asked[id(self.lives[name][-1])].append((now, flow, wanted))
        self.post(now, name, Subscribe((flow,)) if wanted else Unsubscribe((flow,)))

    def intervals(self, name: str, life: Life, flow: str) -> list[Interval]:
        """When a life wanted a flow; the first one holds from the first message on."""
        found: list[Interval] = []
        if flow in self.schedule.wanted[name]:
            found.append(Interval(life.start, NEVER))
        for time, asked, wanted in self.asked[id(life)]:
            if asked != flow:
                continue
            open_now = bool(found) and found[-1].end == NEVER
            if wanted and not open_now:
                found.append(Interval(time, self.firm_after(life, flow, time)))
            elif not wanted and open_now:
                found[-1].end = time
        return found

    def firm_after(self, life: Life, flow: str, time: float) -> float:
        return min(
            (
                at
                for at, note in life.notes
                if isinstance(note, Subscribed) and flow in note.flows and at >= time
            ),
            default=NEVER,
        )


class InterestJudge:
    """Looks at what came of a schedule with changing interest."""

    def __init__(self, world: InterestWorld) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()

    def check(self) -> Counter[str]:
        for name, lives in self.world.lives.items():
            for life in lives:
                self.check_life(name, life)
        return self.counts

    def check_life(self, name: str, life: Life) -> None:
        got: defaultdict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        for time, node, _, _, message in self.world.simulation.record.delivered:
            if node == name and life.start <= time < life.end:
                incarnation = self.world.incarnation_of(message.flow, message.payload)
                got[incarnation, message.flow].append((time, message.sequence))
        flows = {flow for _, flow in got} | set(self.world.schedule.wanted[name])
        for flow in sorted(flows | {flow for _, flow, _ in self.world.asked[id(life)]}):
            intervals = self.world.intervals(name, life, flow)
            for era in self.world.eras:
                self.check_flow(f"{name} {flow}", life, era, flow, intervals, got)

    def check_flow(
        self,
        what: str,
        life: Life,
        era: Era,
        flow: str,
        intervals: list[Interval],
        got: dict[tuple[int, str], list[tuple[float, int]]],
    ) -> None:
        found = got.get((era.incarnation, flow), [])
        numbers = [number for _, number in found]
        assert all(a < b for a, b in pairwise(numbers)), f"{what}: order or doubled {numbers}"
        for time, number in found:
            wanted = any(each.begin <= time <= each.end for each in intervals)
            assert wanted, f"{what}: {number} at {time}, wanted {intervals}"
            self.counts["delivered"] += 1
        missing = {
            number
            for _, note in life.notes
            if isinstance(note, Missing)
            and (note.incarnation, note.flow) == (era.incarnation, flow)
            for number in range(note.first, note.last + 1)
        }
        assert not missing & set(numbers), f"{what}: {missing} reported and delivered"
        offered = [
            at
            for (found_flow, _), at in zip(era.node.taken, era.node.taken_at, strict=True)
            if found_flow == flow
        ]
        for interval in intervals:
            came = [number for at, number in found if interval.begin <= at <= interval.end]
            self.check_interval(what, life, era, interval, came, missing, offered, flow)

    def check_interval(
        self,
        what: str,
        life: Life,
        era: Era,
        interval: Interval,
        came: list[int],
        missing: set[int],
        offered: list[float],
        flow: str,
    ) -> None:
        last = max(came, default=0)
        for number, at in enumerate(offered[: max(0, last - 1)], 1):
            firm = interval.firm <= at or (came and min(came) < number)
            if firm and number not in came and number not in missing:
                told = self.is_reported(life, era, flow, number)
                assert told, f"{what}: {number} of {at} is lost in {interval}: {came}"
                self.counts["in gaps"] += 1
            self.counts["firm"] += bool(firm)
        to_the_end = life.end == NEVER and interval.end == NEVER and era is self.world.eras[-1]
        if to_the_end and flow not in life.machine.unserved:
            assert last == len(offered), f"{what}: {last} came last of {len(offered)} {interval}"
            self.counts["to the end"] += 1
            if interval.firm < END:
                self.counts["subscribed"] += 1

    def is_reported(self, life: Life, era: Era, flow: str, number: int) -> bool:
        """Whether its packets were reported as given up, or the flow as not carried by the plan."""
        payload = [found for name, found in era.node.taken if name == flow][number - 1]
        times = [
            at
            for (name, _), at in zip(era.node.taken, era.node.taken_at, strict=True)
            if name == flow
        ]
        places = self.world.sent.places[era.incarnation, payload]
        gaps = [note for _, note in life.notes if isinstance(note, Gap)]
        if any(covers(gap, place) and flow in gap.flows for gap in gaps for place in places):
            return True
        return self.is_unserved(life, flow, times[number - 1])

    def is_unserved(self, life: Life, flow: str, time: float) -> bool:
        """Whether the flow was reported as unserved then, or soon after."""
        notes = [(at, note) for at, note in life.notes if isinstance(note, Unserved)]
        ends = [*(at for at, _ in notes[1:]), NEVER][: len(notes)]
        return any(
            flow in note.flows and at <= time + PATIENCE and end >= time
            for (at, note), end in zip(notes, ends, strict=True)
        )


def run_interest_schedule(seed: int) -> Counter[str]:
    """Play a schedule with changing interest and judge it."""
    world = InterestWorld(seed)
    try:
        world.play()
        return InterestJudge(world).check()
    except Exception as error:
        raise AssertionError(
            f"schedule {seed}: {error}\nagain: python -c 'from tests.delivery.interest_schedules "
            f"import run_interest_schedule; run_interest_schedule({seed})'"
        ) from error
