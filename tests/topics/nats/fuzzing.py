"""Fuzzed messages to a service on NATS: what clients send, damaged, in any order.

A damaged message is refused or taken; it never breaks a service, and what follows can be encoded.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

from distributary.machines.actions import Append, Send, SetTimer
from distributary.topics import Policy
from distributary.topics.codec import SERVICE, Beat, Put, encode
from distributary.topics.host import TopicHost
from distributary.topics.names import is_topic, topic_of
from distributary.topics.nats import NatsOptions, ServiceSettings, TopicService, live_policy
from distributary.topics.nats.packer import Packer
from distributary.topics.nats.packets import encode_beat, encode_joint_puts, encode_puts
from distributary.topics.nats.subjects import Subjects
from distributary.topics.policy import OURS, TAMARA
from distributary.topics.records import HostState
from tests.topics.peer.fuzzing import damage
from tests.topics.take_over.schedules import Schedule
from tests.topics.take_over.server import Publish, Server

MOST_KEPT = 400  # of each kind of message
SUBJECTS = Subjects()
POLICIES = live_policy(OURS, interval=2.0), live_policy(TAMARA, interval=2.0)


class Wire(NamedTuple):
    """A message as the connection hands it over."""

    subject: str
    data: bytes
    reply: str


def collect_messages(seeds: range) -> dict[str, list[tuple[str, bytes]]]:
    """Subjects and encoded messages of clients to services, as schedules send them, by kind."""
    found: dict[str, list[tuple[str, bytes]]] = {}

    def keep(kind: str, subject: str, data: bytes) -> None:
        kept = found.setdefault(kind, [])
        if len(kept) < MOST_KEPT:
            kept.append((subject, data))

    class Listening(Server):
        def on_message(self, sender: str, message: Any, now: float) -> Any:
            if isinstance(message, Publish) and message.subject == SERVICE:
                to, said = message.message.channel, message.message.message
                keep(type(said).__name__, SUBJECTS.to(to), encode(message.sender, said))
                if isinstance(said, Put):
                    keep("a packet", SUBJECTS.to(to), encode_puts(message.sender, [said]))
                    two = [said, Put(said.stream, said.number + 1, b"next")]
                    keep("packets", SUBJECTS.to(to), encode_puts("client/0123456789abcdef", two))
                    assert is_topic(to)
                    joint = encode_joint_puts(message.sender, {topic_of(to): two, "t0": [said]})
                    keep("a joint packet", SUBJECTS.joint_puts, joint)
                elif isinstance(said, Beat):
                    keep("a beat", SUBJECTS.to(to), encode_beat(message.sender, said))
            return super().on_message(sender, message, now)

    for seed in seeds:
        Schedule(seed, make_server=Listening).run()
    return found


class FuzzedService(TopicService):
    """A service without a connection that gets fuzzed messages."""

    def __init__(self, seed: int, corpus: dict[str, list[tuple[str, bytes]]]) -> None:
        super().__init__(NatsOptions(), ServiceSettings(None))
        self.rng = Random(seed)
        self.corpus = [kept for _, kept in sorted(corpus.items())]
        self.counts: Counter[str] = Counter()
        self.policy: Policy = self.rng.choice(POLICIES)
        self.host = TopicHost(self.policy, HostState(), seed=seed)
        self.copy = HostState()  # replays what is recorded
        self.now = 1.0
        self.timers: dict[str, float] = {}
        self.perform(self.host.start(self.now))

    def perform(self, actions: Any) -> None:
        """Check that records can be replayed and messages packed; keep the timers."""
        packer = Packer(self.subjects, 4_096)
        for action in actions:
            match action:
                case Append(record):
                    self.copy.replay(record, self.policy)
                case Send():
                    packer.add(action)
                case SetTimer(name, at):
                    self.timers.pop(name, None)
                    if at is not None:
                        self.timers[name] = at
        for subject, data in packer.finish():
            assert subject
            assert len(data) <= 4_096

    def step(self) -> None:
        rng, host = self.rng, self.host
        self.now += rng.random() * 0.05
        for name in [name for name, at in self.timers.items() if at <= self.now][:4]:
            if self.timers.pop(name, None) is not None:
                self.perform(host.on_timer(name, self.now))
        subject, data = rng.choice(rng.choice(self.corpus))
        if rng.random() < 0.8:
            data = damage(data, rng)
        if rng.random() < 0.1:
            subject = damage(subject.encode(), rng).decode(errors="replace")
        before = host.counts.refused
        self.perform(self._take(Wire(subject, data, rng.choice(("", "reply"))), self.now))  # type: ignore[arg-type]
        self.counts["refused" if host.counts.refused > before else "taken"] += 1
        if rng.random() < 0.005:
            self.perform(host.bury(self.now, 10.0))
            self.perform(host.sweep(self.now, 60.0))


def fuzz(seed: int, messages: int, corpus: dict[str, list[tuple[str, bytes]]]) -> Counter[str]:
    """Give services that many messages; an error says how to get it again."""
    done: Counter[str] = Counter()
    part = 5_000  # then a new service, since damaged messages may leave little to break
    for at in range(0, messages, part):
        fuzzed = FuzzedService(seed + at, corpus)
        for _ in range(min(part, messages - at)):
            try:
                fuzzed.step()
            except Exception as error:
                raise AssertionError(f"{error!r}; again: fuzz({seed + at}, {part}, ...)") from error
        assert fuzzed.copy.states.keys() == fuzzed.host.state.states.keys()
        done += fuzzed.counts
    return done
