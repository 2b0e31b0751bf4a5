"""Schedules with several publishers: crashes, returns, hand-overs and contested claims.

Every message is offered to all publishers; those that have its flow take it. Packets are lost, late
and doubled, parts of the network are cut off, and plans and interest change. Then everything is
mended, and one last message of each flow is offered. The judge knows what applications did, and
what each receiver delivered and reported, in its order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distributary.delivery import (
    Back,
    Contested,
    Gap,
    Gone,
    HandedOver,
    Left,
    Messages,
    Missing,
    MulticastAction,
    ReceiverMachine,
    ReceiverParams,
    Restarted,
    SenderMachine,
    SenderParams,
    Unserved,
)
from distributary.delivery.simulation import (
    ClaimFlows,
    Faults,
    MessageOffer,
    MulticastNetwork,
    PlanChange,
    ReceiverNode,
    ReleaseFlows,
    SenderNode,
    Subscribe,
    Unsubscribe,
)
from distributary.machines import Action
from distributary.machines.virtual import Link, Simulation
from tests.delivery.plans import move_flows, random_plan

TRAFFIC = 6.0  # seconds in which messages are offered
MENDED = 7.0  # when all faults end
LAST = 16.0  # when the last messages are offered
END = 24.0
NEVER = float("inf")


class OfferedSender(SenderNode):
    """A publisher in one incarnation; `taken` has its messages, with the flow's position each."""

    start: float
    end: float
    times: list[float]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        if isinstance(message, MessageOffer) and not self.machine.sends(message.flow):
            return []
        actions = super().on_message(sender, message, now)
        self.times += [now] * (len(self.taken) - len(self.times))
        return actions

    def on_timer(self, name: str, now: float) -> list[Action]:
        actions = super().on_timer(name, now)
        self.times += [now] * (len(self.taken) - len(self.times))
        return actions


class LoggedReceiver(ReceiverNode):
    """One life of a receiver, and all that it did, in its order."""

    start: float
    end: float
    log: list[tuple[float, object]]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        if isinstance(message, Subscribe | Unsubscribe):
            self.log.append((now, message))
        return super().on_message(sender, message, now)

    def _perform(self, actions: list[MulticastAction], now: float) -> list[Action]:
        for action in actions:
            events = action if isinstance(action, Messages) else [action]
            self.log += [(now, event) for event in events]
        return super()._perform(actions, now)


@dataclass(frozen=True)
class Taken:
    """Which incarnation took a message, and the message's position among those of its flow."""

    publisher: str
    incarnation: int
    position: int


class PublisherWorld:
    """A schedule being played."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = np.random.default_rng([29, seed])
        chance = rng.random
        self.names = [f"p{i}" for i in range(int(rng.integers(2, 4)))]
        self.flows = [f"f{i}" for i in range(int(rng.integers(2, 7)))]
        receivers = [f"r{i}" for i in range(int(rng.integers(1, 4)))]
        self.wanted = {
            r: [f for f in self.flows if chance() < 0.7] or self.flows[:1] for r in receivers
        }
        self.plan = random_plan(self.wanted, rng)
        self.calm = bool(chance() < 0.3)  # nothing is lost, nobody crashes
        loss = 0.0 if self.calm else float(chance() * 0.2)
        link = Link(0.001, float(chance() * 0.005), loss, bool(chance() < 0.5))
        faults = Faults(
            burst=0.02 if chance() < 0.3 and not self.calm else 0.0,
            relief=0.3,
            doubled=float(chance() * 0.1),
        )
        self.network = MulticastNetwork(link, faults, rng)
        self.simulation = Simulation(self.network)
        self.sender_params = SenderParams(
            messages_per_packet=int(rng.integers(1, 4)),
            max_age=0.002,
            rate=1e6,
            burst=3e3,
            grace=float(rng.choice([0.1, 0.3])),
            linger=2.0,
            claim_wait=2.0,
        )
        self.receiver_params = ReceiverParams(silent_after=2.0, longest_wait=0.2)
        self.key = b"a key of some bytes" if chance() < 0.5 else None
        self.batch = 0.003 if chance() < 0.5 else 0.0
        self.eras: dict[str, list[OfferedSender]] = {name: [] for name in self.names}
        self.lives: dict[str, list[LoggedReceiver]] = {name: [] for name in receivers}
        self.has: dict[str, set[str]] = {name: set() for name in self.names}  # as applications say
        for flow in self.flows:
            self.has[str(rng.choice(self.names))].add(flow)
            if chance() < 0.15:
                self.has[str(rng.choice(self.names))].add(flow)
        self.disturbed = False  # whether anything happened that repairs cannot mend

    # --- playing ----------------------------------------------------------------------------------

    def play(self) -> None:
        rng, at = self.rng, self.simulation.clock.at
        times = partial(rng.uniform, 0.1, MENDED - 0.5)
        for name in self.names:
            at(0.0 if rng.random() < 0.6 else float(rng.uniform(0, 3)), partial(self.start, name))
        for name in self.lives:
            begin = 0.0 if rng.random() < 0.7 else float(rng.uniform(0.0, 4.0))
            at(begin, partial(self.start_receiver, name))
        for _ in range(int(rng.integers(0, 6))):
            at(float(times()), self.hand_over)
        for _ in range(int(rng.integers(0, 2))):
            at(float(times()), self.grab)
        for _ in range(int(rng.integers(0, 5))):
            at(float(times()), self.change_interest)
        for _ in range(int(rng.integers(0, 3))):
            at(float(times()), self.change_plan)
        if rng.random() < 0.4:
            at(float(times()), self.leave)
        if not self.calm:
            self.draw_trouble()
        at(MENDED, self.mend)
        self.offer_all()
        ends: list[float] = []
        at(END - 0.1, lambda: ends.append(self.simulation.clock.now))
        self.simulation.run(until=END, max_events=400_000)
        assert ends, "events without end"

    def draw_trouble(self) -> None:
        rng, at = self.rng, self.simulation.clock.at
        for _ in range(int(rng.integers(0, 3))):
            at(float(rng.uniform(0.1, MENDED - 0.5)), self.crash)
        for _ in range(int(rng.integers(0, 2))):
            at(float(rng.uniform(0.1, MENDED - 0.5)), self.crash_receiver)
        for _ in range(int(rng.integers(0, 2))):
            begin = float(rng.uniform(0.1, MENDED - 0.5))
            nodes = [*self.names, *self.lives]
            name, length = str(rng.choice(nodes)), float(rng.choice([0.3, 3.5]))
            at(begin, partial(self.cut, name))
            at(min(begin + length, MENDED), partial(self.network.heal, name))

    def cut(self, name: str) -> None:
        self.disturbed = True
        self.network.cut(name, [name])

    def offer_all(self) -> None:
        rng = self.rng
        for number in range(int(rng.integers(50, 250))):
            flow, time = str(rng.choice(self.flows)), float(rng.uniform(0.0, TRAFFIC))
            self.simulation.clock.at(time, partial(self.offer, flow, number))
        for number, flow in enumerate(self.flows):
            self.simulation.clock.at(LAST, partial(self.offer, flow, 1_000 + number))

    def offer(self, flow: str, number: int) -> None:
        for name in self.names:
            if self.is_up(name):
                payload = f"{flow} {number} {name} {len(self.eras[name])}".encode()
                self.post(name, MessageOffer(flow, payload))

    def post(self, to: str, message: object) -> None:
        self.simulation.post(self.simulation.clock.now, to, message, sender="caller")

    def mend(self) -> None:
        self.network.faults = Faults()
        self.network._default = Link(0.001)
        for name in self.names:
            if not self.is_up(name):
                self.start(name)

    def is_up(self, name: str) -> bool:
        return bool(self.eras[name]) and self.eras[name][-1].end == NEVER

    def start(self, name: str) -> None:
        if self.is_up(name):
            return
        now = self.simulation.clock.now
        machine = SenderMachine(
            self.plan,
            1 + round(now * 1e9) + self.names.index(name),
            name=name,
            flows=sorted(self.has[name]),
            params=self.sender_params,
            key=self.key,
        )
        node = OfferedSender(machine, self.network, address=name)
        node.start, node.end, node.times = now, NEVER, []
        self.eras[name].append(node)
        self.simulation.add(name, node)
        self.post(name, "start")

    def stop(self, name: str) -> None:
        if self.is_up(name):
            self.simulation.crash(name)
            self.network.leave_all(name)
            self.eras[name][-1].end = self.simulation.clock.now

    def crash(self) -> None:
        name = str(self.rng.choice(self.names))
        if not self.is_up(name):
            return
        self.disturbed = True
        self.stop(name)
        again = self.simulation.clock.now + float(self.rng.choice([0.0, 0.5, 4.0]))
        self.simulation.clock.at(again, partial(self.start, name))

    def leave(self) -> None:
        name = str(self.rng.choice(self.names))
        if not self.is_up(name):
            return
        now = self.simulation.clock.now
        self.post(name, "leave")
        self.simulation.clock.at(now + 1.5, partial(self.stop, name))
        self.simulation.clock.at(
            now + float(self.rng.choice([1.6, 4.0])), partial(self.start, name)
        )

    def hand_over(self) -> None:
        """One application lets a flow go, and another takes it, some time before or after."""
        old, new = (str(name) for name in self.rng.choice(self.names, 2, replace=False))
        if not (self.is_up(old) and self.is_up(new)) or not self.has[old]:
            return
        flow = str(self.rng.choice(sorted(self.has[old])))
        self.has[old].discard(flow)
        self.has[new].add(flow)
        self.post(old, ReleaseFlows((flow,)))
        later = self.simulation.clock.now + float(self.rng.choice([0.0, 0.4, 1.0]))
        self.simulation.clock.at(later, partial(self.claim, new, flow))

    def claim(self, name: str, flow: str) -> None:
        if self.is_up(name):
            self.post(name, ClaimFlows((flow,)))

    def grab(self) -> None:
        """An application claims a flow that may be another's."""
        name, flow = str(self.rng.choice(self.names)), str(self.rng.choice(self.flows))
        self.claim(name, flow)

    def change_plan(self) -> None:
        self.plan = (
            move_flows(self.plan, self.wanted, self.rng)
            if self.rng.random() < 0.5
            else random_plan(self.wanted, self.rng)
        )
        for name in self.names:
            later = self.simulation.clock.now + float(self.rng.random() * 0.3)
            self.simulation.clock.at(later, partial(self.give_plan, name, self.plan))

    def give_plan(self, name: str, plan: Any) -> None:
        if self.is_up(name):
            self.post(name, PlanChange(plan))

    def start_receiver(self, name: str) -> None:
        lives, now = self.lives[name], self.simulation.clock.now
        if lives and lives[-1].end == NEVER:
            return
        machine = ReceiverMachine(
            name,
            self.wanted[name],
            rng=np.random.default_rng([len(lives), *name.encode()]),
            params=self.receiver_params,
            key=self.key,
        )
        life = LoggedReceiver(machine, self.network, self.batch)
        life.start, life.end, life.log = now, NEVER, []
        lives.append(life)
        self.simulation.add(name, life)
        self.post(name, "start")

    def crash_receiver(self) -> None:
        name = str(self.rng.choice(sorted(self.lives)))
        if self.lives[name] and self.lives[name][-1].end == NEVER:
            self.simulation.crash(name)
            self.network.leave_all(name)
            self.lives[name][-1].end = self.simulation.clock.now
            again = self.simulation.clock.now + float(self.rng.random() * 0.5)
            self.simulation.clock.at(again, partial(self.start_receiver, name))

    def change_interest(self) -> None:
        name, flow = str(self.rng.choice(sorted(self.lives))), str(self.rng.choice(self.flows))
        if self.lives[name] and self.lives[name][-1].end == NEVER:
            change = Subscribe if self.rng.random() < 0.6 else Unsubscribe
            self.post(name, change((flow,)))


class PublisherJudge:
    """Looks at what came of a schedule with several publishers."""

    def __init__(self, world: PublisherWorld) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self.taken: dict[bytes, Taken] = {}
        self.totals: Counter[tuple[str, int, str]] = Counter()
        for name, eras in world.eras.items():
            for era in eras:
                incarnation = era.machine.incarnation
                for flow, payload in era.taken:
                    place = self.totals[name, incarnation, flow]
                    self.totals[name, incarnation, flow] += 1
                    self.taken[payload] = Taken(name, incarnation, place)

    def check(self) -> Counter[str]:
        self.check_holders()
        for name, lives in self.world.lives.items():
            for life in lives:
                for flow in self.world.flows:
                    self.check_flow(f"{name} {flow}", name, life, flow)
                self.check_calm(name, life)
        for eras in self.world.eras.values():
            for era in eras:
                for _, note in era.notes:
                    self.counts[type(note).__name__] += 1
        return self.counts

    def check_calm(self, name: str, life: LoggedReceiver) -> None:
        """Without faults nothing is lost but what the plan does not bring."""
        unserved: set[str] = set()
        for time, event in life.log:
            self.counts[type(event).__name__] += 1
            match event:
                case Unserved(_, flows):
                    unserved.update(flows)
                    continue
                case Contested() | Gap() | Back():
                    trouble = True
                case Missing(_, _, flow, _, _):
                    trouble = flow not in unserved
                case Gone(_, _, flows):
                    trouble = bool(flows)
                case _:
                    continue
            assert not (trouble and self.world.calm), f"{name} at {time:.3f}: {event}, all calm"

    def check_holders(self) -> None:
        """In the end each flow has one publisher at most."""
        for flow in self.world.flows:
            has = [name for name in self.world.names if self.holds(name, flow)]
            assert len(has) <= 1, f"{flow} is sent by {has}"

    def holds(self, name: str, flow: str) -> bool:
        return self.world.is_up(name) and self.world.eras[name][-1].machine.sends(flow)

    def check_flow(self, what: str, name: str, life: LoggedReceiver, flow: str) -> None:
        wanted = flow in self.world.wanted[name]
        expected: int | None = None  # the next number
        seen: set[bytes] = set()
        last: dict[tuple[str, int], tuple[int, int]] = {}  # position and number, by incarnation
        holder, left = "", ("", 0)
        for time, event in life.log:
            where = f"{what} at {time:.3f}"
            match event:
                case Subscribe(flows) if flow in flows:
                    expected, wanted = (expected if wanted else None), True
                case Unsubscribe(flows) if flow in flows:
                    expected, wanted = None, False
                    last.clear()
                case Missing(_, _, of, first, end) if of == flow:
                    assert wanted, f"{where}: {event} not wanted"
                    assert expected in (None, first), f"{where}: {event}, expected {expected}"
                    expected = end + 1
                    self.counts["missing"] += end - first + 1
                case Restarted(publisher, _, _) if publisher == holder:
                    expected, left = None, ("", 0)
                    last.clear()
                case Left(publisher, incarnation) if publisher == holder:
                    left = publisher, incarnation
                case HandedOver(_, new, flows, anew) if flow in flows:
                    holder = new
                    if anew:
                        self.check_left(where, flow, left, last, expected)
                        expected, left = None, ("", 0)
                        last.clear()
                case _ if getattr(event, "flow", None) == flow and hasattr(event, "payload"):
                    payload, number = event.payload, event.sequence  # type: ignore[attr-defined]
                    assert wanted, f"{where}: {payload!r} is not wanted"
                    assert payload in self.taken, f"{where}: {payload!r} was not offered"
                    assert payload not in seen, f"{where}: {payload!r} came twice"
                    seen.add(payload)
                    found = self.taken[payload]
                    assert expected in (None, number), (
                        f"{where}: {payload!r} has number {number}, expected {expected}"
                    )
                    expected = number + 1
                    era = found.publisher, found.incarnation
                    before = last.get(era)
                    if before is not None:
                        steps = found.position - before[0]
                        assert 0 < steps <= number - before[1], f"{where}: {payload!r} {before}"
                    last[era] = found.position, number
                    holder = found.publisher
                    self.counts["delivered"] += 1
        if life.end == NEVER and wanted:
            self.check_left(what, flow, left, last, expected)
        if life.end == NEVER and wanted and flow not in life.machine.unserved:
            self.check_end(what, life, flow, last, expected)

    def check_left(
        self,
        what: str,
        flow: str,
        left: tuple[str, int],
        last: dict[tuple[str, int], tuple[int, int]],
        expected: int | None,
    ) -> None:
        """A publisher that left said which message was its last: all came or are reported."""
        if left not in last or expected is None:
            return
        position, number = last[left]
        behind = self.totals[*left, flow] - 1 - position
        assert expected > number + behind, f"{what}: the last {behind} of {left} are lost"
        self.counts["left"] += 1

    def check_end(
        self,
        what: str,
        life: LoggedReceiver,
        flow: str,
        last: dict[tuple[str, int], tuple[int, int]],
        expected: int | None,
    ) -> None:
        """Who has a flow in the end has its last message come."""
        for name in self.world.names:
            if not self.holds(name, flow):
                continue
            era = name, self.world.eras[name][-1].machine.incarnation
            total = self.totals[*era, flow]
            assert total, f"{what}: {name} took nothing"
            assert era in last, f"{what}: nothing of {total} came from {name}"
            assert last[era][0] == total - 1, f"{what}: {last[era]} came last of {total} of {name}"
            self.counts["to the end"] += 1


def run_publisher_schedule(seed: int) -> Counter[str]:
    """Play a schedule with several publishers and judge it."""
    world = PublisherWorld(seed)
    try:
        world.play()
        return PublisherJudge(world).check()
    except Exception as error:
        raise AssertionError(
            f"schedule {seed}: {error}\nagain: python -c 'from tests.delivery.publisher_schedules "
            f"import run_publisher_schedule; run_publisher_schedule({seed})'"
        ) from error
