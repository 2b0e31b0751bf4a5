"""Whatever clients and other hosts say, a host refuses it or takes it, and its log says the same.

The messages are well formed, as decoding leaves them: names, numbers and rates are odd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from distributary.machines.actions import Action, Append, Send, SetTimer
from distributary.topics import OURS, TAMARA, Policy
from distributary.topics.advice import Adviser
from distributary.topics.codec import Beat, Bye, Create, Expect, Put, Puts, Remove, decode, encode
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import (
    Answer,
    Await,
    Carried,
    Carry,
    Found,
    Inquire,
    Join,
    Leave,
    More,
    News,
    Propose,
    Rarer,
    Repair,
    Settled,
    Tell,
    TopicFlow,
)
from distributary.topics.nats import live_policy
from distributary.topics.records import HostState
from distributary.topics.survey import survey

T = TypeVar("T")

POLICIES = {"ours": live_policy(OURS, interval=1.0), "tamara": live_policy(TAMARA, interval=1.0)}
NAMES = ("a", "b", "", "c" * 255, "ü", "topic/a", "cluster/1/a", "\n")
CHANNELS = ("topic/a", "topic/b", "cluster/1/a", "cluster/2/b", "cluster/x/", "x", "", "service")
SENDERS = (*(f"client/{at}" for at in range(8)), "topic/a", "cluster/1/a", "", "service")
NUMBERS = (0, 1, 2, 3, 5, 10, 1 << 40, 1 << 62)
FLOWS = (0.0, 1e-300, 0.01, 1.0, 5.0, sys.float_info.max)


class Fuzzed:
    """A host that gets odd messages, and a copy of its state that replays its records."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.rng = Random(seed)
        self.policy = policy
        self.host = TopicHost(policy, HostState(), seed=seed)
        self.copy = HostState()
        self.now = 1.0
        self.timers: dict[str, float] = {}
        self.adviser = Adviser(self.host, 1_000)
        self.take(self.host.start(self.now))

    def make(self) -> Any:
        """Any message that can be decoded."""
        rng, number, flow = self.rng, self.rng.choice(NUMBERS), self.rng.choice(FLOWS)
        names, channels = self.some(self.name), self.some(self.channel)
        flows = self.some(lambda: TopicFlow(self.name(), rng.choice(FLOWS)))
        news = tuple(News(each, rng.random() < 0.5) for each in flows)
        often = (
            *(Join(number, names, channels), Tell(news, names, channels), Settled(number, names)),
            *(Answer(number, rng.choice(NUMBERS), names, channels), Create(flow), Inquire()),
            *(Put(number, rng.choice(NUMBERS), b"x"), Puts(1, number // 2 + 1, (b"y", b"z"))),
        )
        rarely = (
            *(Leave(number), More(names, channels, news), Repair(number, rng.choice(NUMBERS))),
            *(Beat(number, rng.random() < 0.5, number, number), Bye(), Remove(), Expect(1, 1)),
            *(Propose(number, flows, number, rng.choice(NUMBERS)), Carry(number, flows, flow)),
            *(Found(names), Carried(number, flow, number, flow, channels), Await(flow)),
            Rarer(flow),
        )
        return rng.choice(often if rng.random() < 0.8 else rarely)

    def name(self) -> str:
        return self.rng.choice(NAMES)

    def channel(self) -> str:
        return self.rng.choice(CHANNELS)

    def some(self, make: Callable[[], T]) -> tuple[T, ...]:
        return tuple(make() for _ in range(self.rng.randrange(4)))

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Append(record):
                    self.copy.replay(record, self.policy)
                case Send(_, message):
                    encode("x", message.message)
                case SetTimer(name, at):
                    self.timers.pop(name, None)
                    if at is not None:
                        self.timers[name] = at

    def step(self, at: int) -> None:
        host = self.host
        self.now += 0.3 * self.rng.random()
        for name in [name for name, at in self.timers.items() if at <= self.now][:5]:
            if self.timers.pop(name, None) is not None:
                self.take(host.on_timer(name, self.now))
        sender, message = decode(encode(self.rng.choice(SENDERS), self.make()))
        self.take(host.on_message(sender, ChannelMessage(self.channel(), message), self.now))
        if at % 200 == 0:
            self.take(host.bury(self.now, 20.0))
            self.take(host.sweep(self.now, 100.0))
        if at % 1_000 == 0 and self.policy.tells:
            advice = self.adviser.propose(survey([host], self.now))
            for call in (*self.adviser.reminders(), *self.adviser.hand_out(advice)):
                self.take(call(self.now))

    def check(self) -> None:
        """The copy has the channels of the host, with their members and events."""
        assert self.copy.states.keys() == self.host.state.states.keys()
        for channel, state in self.host.state.states.items():
            copy = self.copy.states[channel]
            assert copy.members.keys() == state.members.keys()
            assert (copy.version, copy.counter) == (state.version, state.counter)
        assert self.copy.streams == self.host.state.streams


def fuzz(policy: Policy, seed: int, messages: int) -> None:
    """Give hosts that many messages; an error says how to get it again."""
    part = 3_000
    for first in range(seed, seed + messages, part):
        fuzzed = Fuzzed(first, policy)
        try:
            for at in range(part):
                fuzzed.step(at)
            fuzzed.check()
        except Exception as error:
            raise AssertionError(f"{error!r}; again: fuzz(policy, {first}, {part})") from error
        assert 0 < fuzzed.host.counts.refused < part
        assert fuzzed.host.counts.accepted > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_odd_messages_break_no_host(policy: str) -> None:
    fuzz(POLICIES[policy], 0, 6_000)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_half_a_million_odd_messages_break_no_host(policy: str) -> None:
    fuzz(POLICIES[policy], 1_000_000, 250_000)
