"""Random schedules of faults, and a judge that knows only what was offered, sent and delivered.

`run_schedule(seed)` plays one: messages are offered while packets are lost, doubled, damaged and
late, nodes crash and come back, parts of the network are cut off and the plan changes. Then the
network is mended, one last message of each flow is offered, and the judge looks at every life of
every receiver. It reads packets with code of its own, as they leave the sender.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from distributary.delivery import (
    Gap,
    Missing,
    NeedPlan,
    ReceiverMachine,
    ReceiverParams,
    Restarted,
    SenderMachine,
    SenderParams,
    fingerprint_of,
)
from distributary.delivery.simulation import (
    Faults,
    LearnPlan,
    LinePacket,
    MessageOffer,
    MulticastNetwork,
    PlanChange,
    ReceiverNode,
    SenderNode,
)
from distributary.machines import Action, Send
from distributary.machines.virtual import Link, Simulation
from distributary.model import Plan
from tests.delivery.plans import random_plan

TRAFFIC = 2.0  # seconds in which messages are offered
MENDED = 3.0  # when all faults end
LAST = 8.0  # when the last messages are offered
END = 14.0

Place = tuple[int, int, int, int]  # incarnation, version, session, sequence


def parse(packet: bytes) -> tuple[int, Place, list[bytes]]:
    """Kind, place and payloads of a packet, as docs/wire.md has it."""
    kind, count = packet[3], struct.unpack_from("<H", packet, 6)[0]
    version, session, incarnation, sequence = struct.unpack_from("<IIQQ", packet, 8)
    payloads, at = [], 32
    for _ in range(count if kind in (1, 2) else 0):
        length = struct.unpack_from("<I", packet, at + 4)[0]
        payloads.append(packet[at + 16 : at + 16 + length])
        at += 16 + length
    return kind, (incarnation, version, session, sequence), payloads


@dataclass
class Sent:
    """What left the senders: which packets hold a message, and when each was first sent."""

    places: defaultdict[tuple[int, bytes], list[Place]] = field(
        default_factory=lambda: defaultdict(list)
    )
    times: dict[Place, float] = field(default_factory=dict)
    told: list[tuple[float, Place]] = field(default_factory=list)  # how far sessions have come

    def note(self, packet: bytes, now: float) -> None:
        kind, place, payloads = parse(packet)
        if kind in (1, 3):
            self.told.append((now, place))
        if kind == 1:
            assert place not in self.times, f"{place} was sent twice as new"
            self.times[place] = now
            for payload in payloads:
                self.places[place[0], payload].append(place)

    def reached(self, session: tuple[int, int, int], now: float) -> int:
        """How far a session had come by then."""
        return max(place[3] for at, place in self.told if place[:3] == session and at <= now)


class Tapped(SenderNode):
    """A sender whose packets are noted; unicast ones for many receivers too."""

    sent: Sent
    taken_at: list[float]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        return self._note(super().on_message(sender, message, now), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        return self._note(super().on_timer(name, now), now)

    def _note(self, actions: list[Action], now: float) -> list[Action]:
        self.taken_at += [now] * (len(self.taken) - len(self.taken_at))
        for action in actions:
            if not isinstance(action, Send):
                continue
            match action.message:
                case LinePacket(0, packet) | (bytes() as packet):
                    self.sent.note(packet, now)
        return actions


@dataclass
class Era:
    """One incarnation of the sender."""

    incarnation: int
    start: float
    end: float
    node: Tapped


class Life(ReceiverNode):
    """One life of a receiver, and when it got plan packets of each incarnation, damaged or not."""

    start: float
    end: float
    reached: defaultdict[int, list[float]]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        packet = message.packet if isinstance(message, LinePacket) else message
        if isinstance(packet, bytes) and packet[3] == 6:
            self.reached[parse(packet)[1][0]].append(now)
        return super().on_message(sender, message, now)


@dataclass
class Schedule:
    """What a seed stands for."""

    rng: np.random.Generator
    wanted: dict[str, list[str]]
    plans: list[Plan]
    link: Link
    faults: Faults
    sender_params: SenderParams
    receiver_params: ReceiverParams
    key: bytes | None
    batch: float
    late_plans: bool
    sender_crashes: list[float]
    changes: list[float]
    cuts: list[tuple[float, float, str]]
    receiver_crashes: list[tuple[float, float, str]]

    @property
    def benign(self) -> bool:
        """Nothing happens that repairs cannot mend."""
        return (
            not (self.sender_crashes or self.cuts or self.late_plans)
            and self.sender_params.window_packets >= 1_000
            and self.sender_params.linger >= 1.0
            and self.receiver_params.tries >= 30
            and self.receiver_params.held_packets >= 1_000
        )


def draw_schedule(seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    chance = rng.random
    receivers = [f"r{i}" for i in range(int(rng.integers(1, 6)))]
    flows = [f"f{i}" for i in range(int(rng.integers(2, 9)))]
    wanted = {r: [f for f in flows if chance() < 0.5] or [flows[0]] for r in receivers}
    plans = [
        random_plan(wanted, rng, extra="a" if chance() < 0.3 else None)
        for _ in range(int(rng.integers(1, 5)))
    ]
    reorders = bool(chance() < 0.5)
    link = Link(0.001, float(chance() * 0.01), float(chance() * 0.3), reorders)
    keyed = bool(chance() < 0.6)
    faults = Faults(
        burst=0.03 if chance() < 0.4 else 0.0,
        relief=0.3,
        doubled=float(chance() * 0.2) if chance() < 0.5 else 0.0,
        damaged=0.05 if keyed and chance() < 0.6 else 0.0,  # without a key UDP's checksum has to do
    )
    calm = chance() < 0.3  # only what repairs can mend
    small = chance() < 0.3 and not calm
    times = partial(rng.uniform, 0.1, MENDED - 0.2)
    return Schedule(
        rng=rng,
        wanted=wanted,
        plans=plans,
        link=link,
        faults=faults,
        sender_params=SenderParams(
            messages_per_packet=int(rng.integers(1, 6)),
            max_age=0.002 if chance() < 0.5 else float(chance()),
            window_packets=int(rng.integers(2, 12)) if small else 4_096,
            rate=float(rng.choice([40e3, 200e3, 1e6])),
            burst=3e3,
            queue_packets=int(rng.choice([4, 100])),
            grace=0.3,
            linger=3.0 if calm else float(rng.choice([0.5, 3.0, 3.0])),
        ),
        receiver_params=ReceiverParams(
            tries=40 if calm else int(rng.choice([3, 40, 40])),
            longest_wait=0.2,
            held_packets=10_000 if calm else int(rng.choice([5, 10_000, 10_000])),
            history=bool(chance() < 0.1),
        ),
        key=b"a key of some bytes" if keyed else None,
        batch=0.003 if chance() < 0.5 else 0.0,
        late_plans=bool(chance() < 0.3) and not calm,
        sender_crashes=sorted(times() for _ in range(int(rng.integers(0, 3))))
        if chance() < 0.4
        else [],
        changes=sorted(times() for _ in plans[1:]),
        cuts=[
            (t, t + chance() * 0.8, str(rng.choice(receivers)))
            for t in [times()]
            if chance() < 0.3 and not calm
        ],
        receiver_crashes=[
            (t, t + chance() * 0.5, str(rng.choice(receivers))) for t in [times()] if chance() < 0.4
        ],
    )


class World:
    """A schedule being played."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.schedule = plot = draw_schedule(seed)
        self.network = MulticastNetwork(plot.link, plot.faults, plot.rng)
        self.simulation = Simulation(self.network)
        self.sent = Sent()
        self.eras: list[Era] = []
        self.lives: defaultdict[str, list[Life]] = defaultdict(list)
        self.plan = plot.plans[0]
        self.published = [self.plan]

    def play(self) -> None:
        plot, at = self.schedule, self.simulation.clock.at
        self.start_sender(0.0)
        for name in plot.wanted:
            begin = 0.0 if plot.rng.random() < 0.7 else float(plot.rng.uniform(0.0, MENDED))
            at(begin, partial(self.start_receiver, name))
        for time in plot.sender_crashes:
            at(time, self.restart_sender)
        for time, plan in zip(plot.changes, plot.plans[1:], strict=True):
            at(time, partial(self.change_plan, plan))
        for begin, end, name in plot.cuts:
            at(begin, partial(self.network.cut, name, [name]))
            at(min(end, MENDED), partial(self.network.heal, name))
        for begin, end, name in plot.receiver_crashes:
            at(begin, partial(self.crash_receiver, name))
            at(max(end, begin), partial(self.start_receiver, name))
        at(MENDED, self.mend)
        self.offer_all()
        self.simulation.run(until=END, max_events=2_000_000)
        for era in self.eras:
            era.end = min(era.end, END)

    def offer_all(self) -> None:
        rng = self.schedule.rng
        flows = sorted({flow for flows in self.schedule.wanted.values() for flow in flows})
        for number in range(int(rng.integers(20, 200))):
            flow = str(rng.choice(flows))
            payload = f"{flow} {number} ".encode() + b"x" * int(rng.integers(0, 300))
            self.post(float(rng.uniform(0.0, TRAFFIC)), "sender", MessageOffer(flow, payload))
        for flow in flows:
            self.post(LAST, "sender", MessageOffer(flow, f"{flow} last".encode()))

    def post(self, time: float, to: str, message: object) -> None:
        self.simulation.post(time, to, message, sender="caller")

    def mend(self) -> None:
        self.network.faults = Faults()
        self.network._default = Link(0.001)

    def start_sender(self, now: float) -> None:
        plot, incarnation = self.schedule, 1 + len(self.eras)
        machine = SenderMachine(self.plan, incarnation, params=plot.sender_params, key=plot.key)
        node = Tapped(machine, self.network)
        node.sent, node.taken_at = self.sent, []
        self.eras.append(Era(incarnation, now, float("inf"), node))
        self.simulation.add("sender", node)
        self.post(now, "sender", "start")

    def restart_sender(self) -> None:
        now = self.simulation.clock.now
        self.simulation.crash("sender")
        self.eras[-1].end = now
        self.start_sender(now)

    def change_plan(self, plan: Plan) -> None:
        self.plan = plan
        now = self.simulation.clock.now
        self.post(now, "sender", PlanChange(plan))
        late = float(self.schedule.rng.uniform(0.0, 1.0)) if self.schedule.late_plans else 0.0
        self.simulation.clock.at(now + late, partial(self.published.append, plan))

    def start_receiver(self, name: str) -> None:
        if self.lives[name] and self.lives[name][-1].end == float("inf"):
            return
        plot, now = self.schedule, self.simulation.clock.now
        rng = np.random.default_rng([len(self.lives[name]), *name.encode()])
        machine = ReceiverMachine(
            name, plot.wanted[name], rng=rng, params=plot.receiver_params, key=plot.key
        )
        life = Life(machine, self.network, plot.batch, self.find_plan)
        life.start, life.end, life.reached = now, float("inf"), defaultdict(list)
        self.lives[name].append(life)
        self.simulation.add(name, life)
        self.post(now, name, "start")
        if plot.rng.random() < 0.5:
            self.post(now, name, LearnPlan(self.published[-1]))

    def crash_receiver(self, name: str) -> None:
        if self.lives[name] and self.lives[name][-1].end == float("inf"):
            self.simulation.crash(name)
            self.network.leave_all(name)
            self.lives[name][-1].end = self.simulation.clock.now

    def find_plan(self, need: NeedPlan) -> Plan | None:
        return next(
            (plan for plan in self.published if fingerprint_of(plan) == need.fingerprint), None
        )


class Judge:
    """Looks at what came of a schedule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self.offered: dict[int, defaultdict[str, list[bytes]]] = {}
        for era in world.eras:
            self.offered[era.incarnation] = defaultdict(list)
            for flow, payload in era.node.taken:
                self.offered[era.incarnation][flow].append(payload)

    def check(self) -> Counter[str]:
        for name, lives in self.world.lives.items():
            for life in lives:
                self.check_life(name, life)
        return self.counts

    def check_life(self, name: str, life: Life) -> None:
        wanted = self.world.schedule.wanted[name]
        got: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        incarnation = 0
        for time, node, client, _, message in self.world.simulation.record.delivered:
            if node != name or not life.start <= time < life.end:
                continue
            assert int(client) >= incarnation, "back to an incarnation that is over"
            incarnation = int(client)
            assert message.flow in wanted, "nobody asked for it"
            offered = self.offered[incarnation][message.flow]
            assert message.payload == offered[message.sequence - 1], "not what was offered"
            got[incarnation, message.flow].append(message.sequence)
            self.counts["delivered"] += 1
        for era in self.world.eras:
            for flow in wanted:
                self.check_flow(name, life, era, flow, got[era.incarnation, flow])
        self.check_gaps(life)

    def check_flow(self, name: str, life: Life, era: Era, flow: str, got: list[int]) -> None:
        what = f"{name} {flow} of incarnation {era.incarnation}"
        assert all(a < b for a, b in pairwise(got)), f"{what}: order {got}"
        missing = sorted(
            (note.first, note.last)
            for _, note in life.notes
            if isinstance(note, Missing)
            and (note.incarnation, note.flow) == (era.incarnation, flow)
        )
        holes = [(a + 1, b - 1) for a, b in pairwise(got) if b > a + 1]
        if got and got[0] > 1:
            lead = (1, got[0] - 1)
            if self.was_there(life, era) or lead in missing:
                holes.insert(0, lead)
            else:
                self.counts["late"] += 1
        assert missing == holes, f"{what}: reported {missing}, missed {holes}"
        if life.end == float("inf") and era is self.world.eras[-1]:
            last = len(self.offered[era.incarnation][flow])
            assert got, f"{what}: nothing came, not even the last of {last}"
            assert got[-1] == last, f"{what}: {got[-1]} came last, not {last}"
        for first, last in missing:
            self.explain_missing(what, life, era, flow, first, last)

    def was_there(self, life: Life, era: Era) -> bool:
        """Whether this life heard of the incarnation before it began to send."""
        plot = self.world.schedule
        opens = era.start + plot.sender_params.grace
        reached = [time for time in life.reached[era.incarnation] if time < opens - 0.02]
        return len(reached) >= (6 if plot.faults.damaged else 1)  # so many are not all damaged

    def explain_missing(
        self, what: str, life: Life, era: Era, flow: str, first: int, last: int
    ) -> None:
        """Each message missed was in packets given up, or sent by a plan that was not known."""
        plot = self.world.schedule
        assert not plot.benign, f"{what}: {first} to {last} lost for no reason"
        gaps = [note for _, note in life.notes if isinstance(note, Gap)]
        for sequence in range(first, last + 1):
            payload = self.offered[era.incarnation][flow][sequence - 1]
            places = self.world.sent.places[era.incarnation, payload]
            given_up = any(covers(gap, place) for gap in gaps for place in places)
            self.counts["missing"] += 1
            away = plot.cuts or plot.late_plans
            assert given_up or away, f"{what}: {sequence} of {places} is in none of {gaps}"

    def check_gaps(self, life: Life) -> None:
        plot, sent = self.world.schedule, self.world.sent
        for time, note in life.notes:
            if not isinstance(note, Gap):
                continue
            self.counts[f"gap {note.reason}"] += 1
            assert not plot.benign, f"{note} has no reason"
            if note.reason == "window":
                assert note.last is not None
                session = note.incarnation, note.version, note.session
                window = plot.sender_params.window_packets
                assert sent.reached(session, time) - note.last >= window, f"{note}: still there"
            elif note.reason == "unanswered":
                assert plot.receiver_params.tries < 10 or plot.cuts or plot.sender_crashes, note
            elif note.reason == "restart":
                assert note.incarnation < len(self.world.eras), note
            elif note.reason == "room":
                assert plot.receiver_params.held_packets < 10, note
            else:
                assert len(plot.plans) > 1, note
        told = [note for _, note in life.notes if isinstance(note, Restarted)]
        assert len(told) < len(self.world.eras)
        self.counts["restarts"] += len(told)


def covers(gap: Gap, place: Place) -> bool:
    incarnation, version, session, sequence = place
    return (
        (gap.incarnation, gap.version, gap.session) == (incarnation, version, session)
        and gap.first <= sequence
        and (gap.last is None or sequence <= gap.last)
    )


def run_schedule(seed: int) -> Counter[str]:
    """Play a schedule and judge it: counts of what happened, or AssertionError."""
    world = World(seed)
    try:
        world.play()
        counts = Judge(world).check()
    except Exception as error:
        raise AssertionError(
            f"schedule {seed}: {error}\nagain: python -c 'from tests.delivery.schedules "
            f"import run_schedule; run_schedule({seed})'"
        ) from error
    counts["benign"] += world.schedule.benign
    counts["changes"] += len(world.schedule.changes)
    return counts


Play = Callable[[int], Counter[str]]
