"""Random schedules of faults, and a judge that knows only what was offered, sent and delivered.

`run_schedule(seed)` plays one: messages are offered while packets are lost, doubled, damaged and
late, nodes crash and come back, parts of the network are cut off and the plan changes. Then the
network is mended, one last message of each flow is offered, and the judge looks at every life of
every receiver. It reads packets with code of its own, as they leave the sender, and checks too that
sessions which a change does not touch go on in the same streams.
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
    ReceiverMachine,
    ReceiverParams,
    Restarted,
    SenderMachine,
    SenderParams,
)
from distributary.delivery.sender import SenderAction
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
from tests.delivery.plans import move_flows, random_plan

TRAFFIC = 2.0  # seconds in which messages are offered
MENDED = 3.0  # when all faults end
LAST = 8.0  # when the last messages are offered
END = 14.0

Place = tuple[int, int, int]  # incarnation, stream, sequence
JOURNAL = 0


def parse(packet: bytes) -> tuple[int, Place, list[bytes]]:
    """Kind, place and payloads of a packet, as docs/wire.md has it."""
    kind, count = packet[3], struct.unpack_from("<H", packet, 6)[0]
    _, stream, incarnation, sequence, _ = struct.unpack_from("<IIQQQ", packet, 8)
    payloads, at = [], 40
    for _ in range(count if kind in (1, 2) else 0):
        length = struct.unpack_from("<I", packet, at + 4)[0]
        payloads.append(packet[at + 16 : at + 16 + length])
        at += 16 + length
    return kind, (incarnation, stream, sequence), payloads


def parse_heartbeat(packet: bytes) -> list[Place]:
    """How far a heartbeat says that streams have come."""
    incarnation, count = parse(packet)[1][0], struct.unpack_from("<H", packet, 6)[0]
    found = []
    for at in range(40, 40 + 24 * count, 24):
        stream, _, _, last = struct.unpack_from("<IIQQ", packet, at)
        found.append((incarnation, stream, last))
    return found


@dataclass
class Sent:
    """What left the senders: which packets hold a message, and when each was first sent."""

    places: defaultdict[tuple[int, bytes], list[Place]] = field(
        default_factory=lambda: defaultdict(list)
    )
    times: dict[Place, float] = field(default_factory=dict)
    told: list[tuple[float, Place]] = field(default_factory=list)  # how far streams have come
    repairs: int = 0

    def note(self, packet: bytes, now: float) -> None:
        kind, place, payloads = parse(packet)
        self.repairs += kind == 2
        if kind == 3:
            self.told += [(now, found) for found in parse_heartbeat(packet)]
        if kind == 1:
            self.told.append((now, place))
            assert place not in self.times, f"{place} was sent twice as new"
            before = (*place[:2], place[2] - 1)
            assert place[2] == 1 or before in self.times, f"{place} has none before it"
            self.times[place] = now
            for payload in payloads if place[1] != JOURNAL else ():
                self.places[place[0], payload].append(place)

    def reached(self, stream: tuple[int, int], now: float) -> int:
        """How far a stream had come by then."""
        return max(place[2] for at, place in self.told if place[:2] == stream and at <= now)

    def has_ended(self, stream: tuple[int, int], linger: float, now: float) -> bool:
        """Whether a stream had sent nothing for as long as ended streams are repaired."""
        last = max(at for place, at in self.times.items() if place[:2] == stream)
        return last + linger <= now


class NotingSender(SenderMachine):
    """A sender that notes by which plan version it took each message."""

    taken_by: list[int]

    def offer(self, flow: str, payload: bytes, now: float) -> list[SenderAction]:
        version = self.version
        actions = super().offer(flow, payload, now)
        self.taken_by.append(version)
        return actions


class Tapped(SenderNode):
    """A sender whose packets are noted; unicast ones for many receivers too."""

    machine: NotingSender
    sent: Sent
    taken_at: list[float]
    requested: Plan
    plans: dict[int, Plan]  # that took effect, by version

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        if isinstance(message, PlanChange):
            self.requested = message.plan
        return self._note(super().on_message(sender, message, now), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        return self._note(super().on_timer(name, now), now)

    def _note(self, actions: list[Action], now: float) -> list[Action]:
        self.taken_at += [now] * (len(self.taken) - len(self.taken_at))
        self.plans.setdefault(self.machine.version, self.requested)
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
    sender_crashes: list[float]
    changes: list[float]
    cuts: list[tuple[float, float, str]]
    receiver_crashes: list[tuple[float, float, str]]

    @property
    def looks_back(self) -> bool:
        """Receivers ask for what was before; it may have travelled in streams that are over."""
        return self.receiver_params.history and len(self.plans) > 1

    @property
    def benign(self) -> bool:
        """Nothing happens that repairs cannot mend."""
        return (
            not (self.sender_crashes or self.cuts or self.looks_back)
            and self.sender_params.window_packets >= 1_000
            and self.sender_params.journal_packets >= 1_000
            and self.sender_params.linger >= 1.0
            and self.receiver_params.tries >= 30
            and self.receiver_params.held_packets >= 1_000
        )


def draw_plans(wanted: dict[str, list[str]], rng: np.random.Generator) -> list[Plan]:
    """Plans one after another: all different, or each with a few flows moved, there and back."""
    plans = [random_plan(wanted, rng)]
    similar = rng.random() < 0.5
    for _ in range(int(rng.integers(0, 6 if similar else 4))):
        if similar and len(plans) > 1 and rng.random() < 0.3:
            plans.append(plans[-2])
        elif similar:
            plans.append(move_flows(plans[-1], wanted, rng))
        else:
            plans.append(random_plan(wanted, rng, extra="a" if rng.random() < 0.3 else None))
    return plans


def draw_schedule(seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    chance = rng.random
    receivers = [f"r{i}" for i in range(int(rng.integers(1, 6)))]
    flows = [f"f{i}" for i in range(int(rng.integers(2, 9)))]
    wanted = {r: [f for f in flows if chance() < 0.5] or [flows[0]] for r in receivers}
    plans = draw_plans(wanted, rng)
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
            journal_packets=int(rng.choice([1, 3, 4_096])) if small else 4_096,
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
        self._incarnation_of: dict[tuple[str, bytes], int] = {}

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

    def incarnation_of(self, flow: str, payload: bytes) -> int:
        """The incarnation that took a message; no two messages are alike."""
        if not self._incarnation_of:
            for era in self.eras:
                self._incarnation_of |= dict.fromkeys(era.node.taken, era.incarnation)
        return self._incarnation_of[flow, payload]

    def post(self, time: float, to: str, message: object) -> None:
        self.simulation.post(time, to, message, sender="caller")

    def mend(self) -> None:
        self.network.faults = Faults()
        self.network._default = Link(0.001)

    def start_sender(self, now: float) -> None:
        plot, incarnation = self.schedule, 1 + len(self.eras)
        machine = NotingSender(self.plan, incarnation, params=plot.sender_params, key=plot.key)
        machine.taken_by = []
        node = Tapped(machine, self.network)
        node.sent, node.taken_at = self.sent, []
        node.requested, node.plans = self.plan, {}
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
        self.post(self.simulation.clock.now, "sender", PlanChange(plan))

    def start_receiver(self, name: str) -> None:
        if self.lives[name] and self.lives[name][-1].end == float("inf"):
            return
        plot, now = self.schedule, self.simulation.clock.now
        rng = np.random.default_rng([len(self.lives[name]), *name.encode()])
        machine = ReceiverMachine(
            name, plot.wanted[name], rng=rng, params=plot.receiver_params, key=plot.key
        )
        life = Life(machine, self.network, plot.batch)
        life.start, life.end, life.reached = now, float("inf"), defaultdict(list)
        self.lives[name].append(life)
        self.simulation.add(name, life)
        self.post(now, name, "start")
        if plot.rng.random() < 0.5:
            self.post(now, name, LearnPlan(self.plan))

    def crash_receiver(self, name: str) -> None:
        if self.lives[name] and self.lives[name][-1].end == float("inf"):
            self.simulation.crash(name)
            self.network.leave_all(name)
            self.lives[name][-1].end = self.simulation.clock.now


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
        for era in self.world.eras:
            self.check_streams(era)
        return self.counts

    def check_streams(self, era: Era) -> None:
        """While the sessions of a flow stay as they are, so do the streams that it is sent in."""
        before: dict[str, tuple[Sessions, set[int], int]] = {}
        for (flow, payload), version in zip(era.node.taken, era.node.machine.taken_by, strict=True):
            places = self.world.sent.places.get((era.incarnation, payload))
            if places is None:
                continue  # the sender crashed before it was sent
            sessions, streams = (
                sessions_of(era.node.plans[version], flow),
                {at for _, at, _ in places},
            )
            known = before.get(flow)
            if known is not None and known[0] == sessions and version - known[2] <= 1:
                same = streams == known[1] or (era.end < END and streams < known[1])  # a crash
                assert same, f"{flow} went on in {streams}, not in {known[1]}"
                self.counts["undisturbed"] += version != known[2]
            before[flow] = sessions, streams, version

    def check_life(self, name: str, life: Life) -> None:
        wanted = self.world.schedule.wanted[name]
        got: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        incarnation = 0
        for time, node, _, _, message in self.world.simulation.record.delivered:
            if node != name or not life.start <= time < life.end:
                continue
            found = self.world.incarnation_of(message.flow, message.payload)
            assert found >= incarnation, "back to an incarnation that is over"
            incarnation = found
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
        """Each message missed was in packets given up, or sent while the receiver was cut off."""
        plot = self.world.schedule
        gaps = [note for _, note in life.notes if isinstance(note, Gap)]
        sent = self.world.sent.places
        payloads = self.offered[era.incarnation][flow]
        came = {stream for _, stream, _ in sent[era.incarnation, payloads[last]]}
        for sequence in range(first, last + 1):
            places = sent[era.incarnation, payloads[sequence - 1]]
            # It had moved when the receiver learnt where it travels; or records of the journal are
            # lost, so that messages from before a late receiver's time are reported too.
            moved = came != {stream for _, stream, _ in places}
            if first == 1 and (moved or any(gap.stream == JOURNAL for gap in gaps)):
                self.counts["lead"] += 1
                continue
            assert not plot.benign, f"{what}: {sequence} lost for no reason"
            given_up = any(
                covers(gap, place) and flow in gap.flows for gap in gaps for place in places
            )
            self.counts["missing"] += 1
            away = plot.cuts or plot.sender_params.journal_packets < 10 or plot.looks_back
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
                stream, params = (note.incarnation, note.stream), plot.sender_params
                window = params.window_packets if note.stream else params.journal_packets
                gone = sent.reached(stream, time) - note.last >= window
                ended = len(plot.plans) > 1 and sent.has_ended(stream, params.linger, time)
                assert gone or ended, f"{note}: still there"
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


Sessions = frozenset[object]


def sessions_of(plan: Plan, flow: str) -> Sessions:
    """The sessions of a flow, each as its group and flows, and who gets it alone."""
    if flow not in plan.flows:
        return frozenset()
    number = plan.flows.index(flow)
    found: Counter[object] = Counter()
    for session in plan.placement_session[plan.placement_flow == number].tolist():
        flows = plan.placement_flow[plan.placement_session == session].tolist()
        names = frozenset(plan.flows[each] for each in flows)
        found[int(plan.session_group[session]), names] += 1
    alone = plan.unicast_receiver[plan.unicast_flow == number].tolist()
    found.update(plan.receivers[receiver] for receiver in alone)
    return frozenset(found.items())


def covers(gap: Gap, place: Place) -> bool:
    incarnation, stream, sequence = place
    return (
        (gap.incarnation, gap.stream) == (incarnation, stream)
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
