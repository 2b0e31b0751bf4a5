"""Storms of packets that look valid, and how large what they reach becomes.

`ReceiverStorm` and `SenderStorm` make packets as somebody makes them who knows the protocol, the
publisher's name and its incarnation, but not what the publisher will send: right in magic, version
and lengths, with numbers that are near, far or at the limits. `find_sizes` walks through a machine
and lists how many elements its containers have.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from distributary.delivery import (
    Gap,
    JoinGroup,
    LeaveGroup,
    Missing,
    ReceiverMachine,
    ReceiverParams,
    SenderMachine,
    SenderParams,
    Unserved,
)
from distributary.delivery._wire_kernels import PacketBatch
from distributary.delivery.authentication import Authenticator
from distributary.delivery.directory_wire import (
    Block,
    CancelRecord,
    FlowEntry,
    MarkRecord,
    Place,
    ReadyRecord,
    Record,
    RouteRecord,
    SwitchRecord,
    encode_block,
    encode_record,
    flow_key,
    receiver_key,
)
from distributary.delivery.portion_wire import (
    MOST_PORTION_BYTES,
    Inquiry,
    Portion,
    encode_inquiry,
    encode_portion,
    encode_portion_part,
    portion_digest,
    split_portion,
)
from distributary.delivery.routes import fingerprint_of, publisher_number
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    StreamPosition,
    encode_announcement,
    encode_heartbeat,
    encode_lookup,
    encode_ranges,
    encode_request,
)
from distributary.machines import Send, SetTimer
from distributary.model import Plan
from tests.delivery.machines import delivered

SENDER = "udp://10.0.0.1:7702"  # the true sender
WIDTH = 1_400
TEMPLATES = 1_000  # packets that a storm varies
REUSE = 20_000  # packets that it makes of them before it makes other ones
FAR = (1 << 63) - 1
PUBLISHERS = [f"publisher {number}" for number in range(30)]  # that somebody makes up
FINGERPRINTS = [0x0BAD, 0x0BAD_CAFE, 1 << 62]  # of plans that somebody makes up

# Offsets of the header's numbers.
PUBLISHER, STREAM, INCARNATION, SEQUENCE = 8, 12, 16, 24


@dataclass
class Numbers:
    """Draws sequence numbers: near those of the time, which pass, or with a chance far from them.

    A single number far ahead makes all that follow old, so only some storms have any.
    """

    rng: np.random.Generator
    far: float
    base: float = 1.0

    def draw(self) -> int:
        if self.rng.random() >= self.far:
            return int(self.base) + int(self.rng.integers(0, 300))
        if self.rng.random() < 0.8:
            return int(2 ** self.rng.uniform(0, 62))
        return FAR - int(self.rng.integers(0, 3))


@dataclass
class Storm:
    """Batches of packets, made from templates whose header varies from packet to packet."""

    numbers: Numbers
    streams: Sequence[int]
    make: Callable[[], tuple[Header, bytes]]
    key: bytes | None = None
    rows: np.ndarray = field(init=False)
    lengths: np.ndarray = field(init=False)
    used: int = REUSE  # how many packets the templates made

    def renew(self) -> None:
        """Make other templates."""
        authenticator = Authenticator(self.key)
        self.rows = np.zeros((TEMPLATES, WIDTH), np.uint8)
        self.lengths = np.zeros(TEMPLATES, np.int64)
        self.used = 0
        for at in range(TEMPLATES):
            header, body = self.make()
            packet = authenticator.encode_packet(header, body)
            assert len(packet) <= WIDTH
            self.rows[at, : len(packet)] = np.frombuffer(packet, np.uint8)
            self.lengths[at] = len(packet)

    def draw(self, n: int) -> PacketBatch:
        """The next packets, apart from one another in one buffer."""
        rng = self.numbers.rng
        if self.used >= REUSE:
            self.renew()
        self.used += n
        self.numbers.base += n / 100
        chosen = rng.integers(0, TEMPLATES, n)
        rows = self.rows[chosen]
        if self.key is None:  # with a key other numbers would want other tags
            near = int(self.numbers.base) + rng.integers(0, 300, n)
            self._vary(rows, SEQUENCE, near.astype("<u8"), 0.9 - self.numbers.far)
            self._vary(rows, INCARNATION, rng.integers(1, FAR, n).astype("<u8"), 0.1)
            numbers = rng.integers(1, 1 << 32, n).astype("<u4")
            named = rows[:, 3] == PacketKind.ANNOUNCEMENT  # whose number is that of their name
            self._vary(rows, PUBLISHER, numbers, 0.05, only=~named)
            known = rng.choice(np.array(self.streams), n).astype("<u4")
            self._vary(rows, STREAM, known, 0.1, only=rows[:, 3] <= PacketKind.REPAIR)
        return PacketBatch(rows.ravel(), np.arange(n) * WIDTH, self.lengths[chosen])

    def _vary(
        self,
        rows: np.ndarray,
        offset: int,
        numbers: np.ndarray,
        share: float,
        only: np.ndarray | bool = True,
    ) -> None:
        hit = (self.numbers.rng.random(len(rows)) < share) & only
        width = numbers.dtype.itemsize
        rows[hit, offset : offset + width] = numbers[hit].view(np.uint8).reshape(-1, width)


class Mood(NamedTuple):
    """What a storm is made of for a while: kinds of packets, and how many are the journal's."""

    kinds: list[int]
    journal: float


MOODS = [
    Mood([1, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12], 0.1),  # something of everything
    Mood([1, 1, 1, 2, 3], 0.0),  # messages
    Mood([1, 1, 1, 9], 0.9),  # changes of the directory
    Mood([6, 8, 9], 0.0),  # other publishers
]


class ReceiverStorm:
    """What somebody sends to a receiver: of its publisher and of others, of all kinds."""

    def __init__(
        self,
        rng: np.random.Generator,
        flows: Sequence[str],
        incarnation: int,
        far: float,
        key: bytes | None = None,
    ) -> None:
        self.rng = rng
        self.keys = [*map(flow_key, flows), rng.bytes(16)]
        self.incarnation = incarnation
        self.key = receiver_key("r")
        self.numbers = Numbers(rng, far)
        self.storm = Storm(self.numbers, range(0, 12), self._make, key)
        self.made = 0
        self.mood = MOODS[0]

    def draw(self, n: int) -> PacketBatch:
        return self.storm.draw(n)

    def sources(self, n: int) -> list[str]:
        """Where they come from; somebody may send from the true sender's address too."""
        here = self.rng.random(n) < 0.5
        others = self.rng.integers(0, 1 << 20, n)
        return [
            SENDER if mine else f"udp://10.9.9.9:{other}"
            for mine, other in zip(here.tolist(), others.tolist(), strict=True)
        ]

    def _make(self) -> tuple[Header, bytes]:
        rng = self.rng
        if self.made % TEMPLATES == 0:
            self.mood = MOODS[int(rng.integers(len(MOODS)))]
        self.made += 1
        kind = PacketKind(int(rng.choice(self.mood.kinds)))
        publisher = str(rng.choice(PUBLISHERS)) if rng.random() < 0.3 else "publisher"
        stream, items, body = 0xFFFF_FFFF, 0, b""
        match kind:
            case PacketKind.DATA | PacketKind.REPAIR:
                stream = 0 if rng.random() < self.mood.journal else int(rng.integers(1, 12))
                items, body = self._make_records() if stream == 0 else self._make_messages()
            case PacketKind.HEARTBEAT:
                positions = [self._make_position() for _ in range(int(rng.integers(1, 20)))]
                items, body = len(positions), encode_heartbeat(positions)
            case PacketKind.CONFIRM | PacketKind.NAK:
                stream = int(rng.integers(0, 12))
                ranges = [self._make_range() for _ in range(int(rng.integers(1, 65)))]
                items, body = len(ranges), encode_ranges(ranges)
            case PacketKind.ANNOUNCEMENT:
                body = encode_announcement(self._make_announcement(publisher))
            case PacketKind.REQUEST:
                body = encode_request("r" * int(rng.integers(0, 100)))
            case PacketKind.BLOCK:
                items, body = self._make_block()
            case PacketKind.LOOKUP:
                items, body = 1, encode_lookup([int(rng.integers(0, 1 << 20))])
            case PacketKind.INQUIRY:
                body = encode_inquiry(Inquiry(1, 0, "r"))
            case PacketKind.PORTION:
                body = self._make_portion()
        header = Header(
            kind,
            items=items,
            publisher=publisher_number(publisher),
            stream=stream,
            incarnation=self.incarnation,
            sequence=self.numbers.draw(),
        )
        return header, body

    def _make_messages(self) -> tuple[int, bytes]:
        rng, body, items = self.rng, b"", int(rng_between(self.rng, 1, 12))
        for _ in range(items):
            flow = int(rng.integers(0, 12))
            size = int(rng.integers(0, 60))
            body += struct.pack("<IIQ", flow, size, self.numbers.draw()) + rng.bytes(size)
        return items, body

    def _make_records(self) -> tuple[int, bytes]:
        rng, body, items = self.rng, b"", int(rng_between(self.rng, 1, 12))
        number = self.numbers.draw()
        for _ in range(items):
            kind, bytes_of = encode_record(self._make_record())
            number = min(number + int(rng.integers(0, 2)), FAR)
            body += struct.pack("<IIQ", kind, len(bytes_of), number) + bytes_of
        return items, body

    def _make_record(self) -> Record:
        rng = self.rng
        version = int(rng.integers(0, 5))
        match int(rng.integers(5)):
            case 0:
                return RouteRecord(version, self._make_entry(now=False))
            case 1:
                return ReadyRecord(version, 3, 1)
            case 2:
                return MarkRecord(version, int(rng.integers(0, 1 << 20)), self.numbers.draw())
            case 3:
                return SwitchRecord(version)
            case _:
                return CancelRecord(version)

    def _make_entry(self, *, now: bool = True) -> FlowEntry:
        rng = self.rng
        key = self.keys[int(rng.integers(len(self.keys)))]
        number = int(rng.integers(0, 12)) if rng.random() < 0.9 else 50_000
        places = self._make_places() if now else ()
        upcoming = self._make_places() if not now or rng.random() < 0.3 else None
        return FlowEntry(key, number, places, upcoming, bool(rng.random() < 0.3))

    def _make_places(self) -> tuple[Place, ...]:
        rng, found = self.rng, []
        for _ in range(int(rng.integers(0, 4))):
            near = rng.random() < 0.6
            stream = int(rng.integers(1, 12)) if near else int(rng.integers(1, 4_000))
            alone = rng.random() < 0.3
            found.append(Place(stream, None, self.key) if alone else Place(stream, stream % 9))
        return tuple(found)

    def _make_block(self) -> tuple[int, bytes]:
        rng = self.rng
        entries = tuple(self._make_entry() for _ in range(int(rng.integers(0, 6))))
        parts = int(rng.choice([1, 2, 65_535]))
        as_of = self.numbers.draw()
        number = int(rng.integers(0, 3))
        block = Block(as_of, number, int(rng.integers(0, parts)), parts, entries)
        return len(entries), encode_block(block)

    def _make_portion(self) -> bytes:
        """A part of what a plan brings: of a small portion, or of the largest that there can be."""
        rng = self.rng
        encoded = encode_portion(Portion(("f0", "f2", "forged"), frozenset({1, 2, 1 << 31})))
        if rng.random() < 0.5:
            encoded = bytes(MOST_PORTION_BYTES)
        room = int(rng.integers(100, 1_300))
        part = int(rng.integers(min(1 << 16, split_portion(encoded, room))))
        digest = portion_digest(encoded) if len(encoded) < 100 else 1
        body = encode_portion_part(int(rng.choice(FINGERPRINTS)), digest, part, encoded, room)
        return body[:20] + struct.pack("<I", min(1 << 16, split_portion(encoded, room))) + body[24:]

    def _make_position(self) -> StreamPosition:
        last = self.numbers.draw()
        first = max(1, last - int(self.rng.integers(0, 100)))
        return StreamPosition(int(self.rng.integers(0, 14)), bool(last % 2), first, last)

    def _make_range(self) -> tuple[int, int]:
        first, last = sorted((self.numbers.draw(), self.numbers.draw()))
        return first, last

    def _make_announcement(self, publisher: str) -> Announcement:
        rng = self.rng
        current, last = int(rng.integers(0, 5)), self.numbers.draw()
        return Announcement(
            current,
            current + int(rng.integers(1, 5)) if rng.random() < 0.5 else 0,
            int(rng.choice(FINGERPRINTS)),
            int(rng.choice(FINGERPRINTS)),
            blocks=1 << int(rng.integers(0, 21)),
            record=self.numbers.draw(),
            journal_first=max(1, last - int(rng.integers(0, 50))),
            journal_last=last,
            publisher=publisher,
            where="w" * int(rng.integers(0, 300)),
        )


class SenderStorm:
    """What somebody sends to a sender: NAKs, lookups and requests of receivers that are none."""

    def __init__(
        self,
        rng: np.random.Generator,
        plan: Plan,
        incarnation: int,
        key: bytes | None = None,
    ) -> None:
        self.fingerprint = fingerprint_of(plan)
        self.rng = rng
        self.incarnation = incarnation
        self.numbers = Numbers(rng, 0.2)
        self.storm = Storm(self.numbers, range(0, 8), self._make, key)

    def draw(self, n: int) -> list[tuple[str, bytes]]:
        """Source addresses and packets."""
        batch = self.storm.draw(n)
        found = []
        for offset, length in zip(batch.offsets.tolist(), batch.lengths.tolist(), strict=True):
            packet = batch.buffer[offset : offset + length].tobytes()
            found.append((f"udp://10.9.9.9:{self.rng.integers(0, 1 << 20)}", packet))
        return found

    def _make(self) -> tuple[Header, bytes]:
        rng = self.rng
        kind = PacketKind(int(rng.choice([4, 4, 4, 7, 7, 10, 10, 11, 11, 1, 6, 8])))
        stream, items, body = 0xFFFF_FFFF, 0, b""
        match kind:
            case PacketKind.NAK:
                stream = int(rng.integers(0, 8))
                ends = [sorted((self.numbers.draw(), self.numbers.draw())) for _ in range(4)]
                items, body = 4, encode_ranges([(first, last) for first, last in ends])
            case PacketKind.REQUEST:
                name = "r" if rng.random() < 0.1 else f"receiver {rng.integers(0, 1 << 40)}"
                body = encode_request(name)
            case PacketKind.LOOKUP:
                blocks = [int(rng.integers(0, 4)), *rng.integers(0, 1 << 32, 20).tolist()]
                items, body = len(blocks), encode_lookup(blocks)
            case PacketKind.INQUIRY:
                name = f"receiver {rng.integers(0, 1 << 40)}"
                fingerprint = self.fingerprint if rng.random() < 0.7 else 1
                body = encode_inquiry(Inquiry(fingerprint, int(rng.integers(0, 1 << 16)), name))
            case PacketKind.DATA:
                items, body = 1, struct.pack("<IIQ", 0, 0, 1)
        sequence = self.numbers.draw() if rng.random() < 0.5 else 0
        number = publisher_number("publisher")
        header = Header(kind, 0, items, number, stream, self.incarnation, sequence)
        return header, body


def rng_between(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high))


# --- how large a machine is ----------------------------------------------------------------------


def find_sizes(machine: object) -> Counter[str]:
    """The elements of the largest container at each attribute, as `Class.attribute`.

    What is in a container is named with `[]` behind that.
    """
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    queue: deque[tuple[str, object]] = deque([("", machine)])
    while queue:
        name, value = queue.popleft()
        if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)):
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            sizes[name] = max(sizes[name], value.size)
        elif isinstance(value, Mapping | Sequence | Set | deque) and not hasattr(value, "_fields"):
            sizes[name] = max(sizes[name], len(value))
            inner = [*value, *value.values()] if isinstance(value, Mapping) else value
            queue.extend((f"{name}[]", each) for each in inner)
        elif hasattr(value, "_fields"):
            queue.extend((f"{name}.{field}", getattr(value, field)) for field in value._fields)
        elif type(value).__module__.startswith("distributary."):
            for attribute in (*getattr(value, "__dict__", ()), *find_slots(type(value))):
                found = f"{type(value).__name__}.{attribute}"
                queue.append((found, getattr(value, attribute)))
    return sizes


def find_slots(kind: type) -> list[str]:
    return [slot for each in kind.__mro__ for slot in getattr(each, "__slots__", ())]


# --- a sender, a receiver, and the storm between them --------------------------------------------


class Exchange:
    """A true sender and a receiver; packets between them take no time and none is lost."""

    def __init__(
        self,
        plan: Plan,
        wanted: Sequence[str] | None,
        params: ReceiverParams,
        key: bytes | None = None,
    ) -> None:
        self.plan, self.key = plan, key
        self.now = 0.0
        self.receiver = ReceiverMachine(
            "r", wanted, rng=np.random.default_rng(1), params=params, key=key
        )
        self.joined: set[str] = set()
        self.seen: list[object] = []
        self.missing: set[tuple[int, str, int, int]] = set()  # as reported, up to number 1,000
        self.gaps: set[tuple[int, int, int, int]] = set()
        self.unserved: tuple[str, ...] = ()
        self.published: Counter[str] = Counter()
        self.sent: dict[tuple[str, int], tuple[int, int, int]] = {}  # where each message went
        self.receiver_wakes: float | None = None
        self.start_sender(5)
        self.perform(self.receiver.start(self.now))
        self.run(2.0)

    def start_sender(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.published.clear()
        self.sent.clear()
        self.sender = SenderMachine(
            self.plan, incarnation, params=SenderParams(grace=0.1, max_age=0.0), key=self.key
        )
        self.sender_wakes: float | None = None
        self.pass_on(self.sender.start(self.now))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(100_000):
            wakes = [at for at in (self.sender_wakes, self.receiver_wakes) if at is not None]
            if not wakes or min(wakes) > end:
                break
            self.now = max(self.now, min(wakes))
            if self.sender_wakes is not None and self.sender_wakes <= self.now:
                self.sender_wakes = None
                self.pass_on(self.sender.on_timer("wake", self.now))
            if self.receiver_wakes is not None and self.receiver_wakes <= self.now:
                self.receiver_wakes = None
                self.perform(self.receiver.on_timer("wake", self.now))
        else:
            raise AssertionError("timers ring without end")
        self.now = end

    def pass_on(self, actions: Sequence[object]) -> None:
        """Do what the sender wants done."""
        for action in actions:
            match action:
                case SetTimer(_, at):
                    self.sender_wakes = at
                case Send(to, packet) if to.startswith("group ") and to not in self.joined:
                    pass
                case Send(_, packet):
                    self.perform(self.receiver.on_packet(packet, self.now, SENDER))

    def perform(self, actions: Sequence[object], *, keep: bool = True) -> None:
        """Do what the receiver wants done."""
        for action in actions:
            match action:
                case SetTimer(_, at):
                    self.receiver_wakes = at
                case JoinGroup(group):
                    self.joined.add(group)
                case LeaveGroup(group):
                    self.joined.discard(group)
                case Send(to, packet):
                    if to in (SENDER, "sender"):
                        self.pass_on(self.sender.on_message("r", packet, self.now))
                case Missing("publisher", incarnation, flow, first, last) if first < 1_000:
                    self.missing.add((incarnation, flow, first, min(last, 1_000)))
                case Gap("publisher", incarnation, stream, first, last) if first < 1_000:
                    last = 1_000 if last is None else min(last, 1_000)
                    self.gaps.add((incarnation, stream, first, last))
                case Unserved(_, flows):
                    self.unserved = flows
            if keep:
                self.seen.append(action)

    def publish(self, flow: str, payload: bytes) -> None:
        """Send a message, in a packet of its own."""
        self.published[flow] += 1
        actions = self.sender.offer(flow, payload, self.now) + self.sender.flush(self.now)
        for action in actions:
            if isinstance(action, Send) and action.message[3] == PacketKind.DATA:
                stream, incarnation, sequence = struct.unpack_from("<IQQ", action.message, 12)
                self.sent[flow, self.published[flow]] = incarnation, stream, sequence
        self.pass_on(actions)

    def find_lost(self, flows: Sequence[str], first: int, last: int) -> list[tuple[str, int]]:
        """Which of these messages neither arrived nor are in a report."""
        came = {(flow, number) for flow, number, _ in delivered(self.seen)}
        return [
            (flow, number)
            for flow in flows
            for number in range(first, last + 1)
            if (flow, number) not in came
            and flow not in self.unserved
            and not self._is_reported(flow, number)
        ]

    def _is_reported(self, flow: str, number: int) -> bool:
        for incarnation, found, first, last in self.missing:
            if (incarnation, found) == (self.incarnation, flow) and first <= number <= last:
                return True
        _, stream, packet = self.sent[flow, number]
        return any(
            found[:2] == (self.incarnation, stream) and found[2] <= packet <= found[3]
            for found in self.gaps
        )
