"""The speed of decisions about topic clusters. Their savings are on the pages of the paper."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.measure import Section
from distributary.machines.actions import Action, Send
from distributary.model.topics import Clustering
from distributary.papers.milo.runs import RoundsPolicy, rounds_of
from distributary.papers.milo.world import (
    INTERVALS_PER_DAY,
    World,
    frequencies,
    growth,
    interests,
)
from distributary.topics import (
    OURS,
    TAMARA,
    ClusterChannel,
    ClusterState,
    Policy,
    TopicChannel,
    TopicState,
    derive_generator,
    topic_channel,
)
from distributary.topics.messages import (
    Carried,
    Found,
    Join,
    News,
    Propose,
    Refuse,
    Tell,
    TopicFlow,
)

MEMBERS, CARRIED, NEWS = 3_000, 12, 2_000
ROUNDS = 3
Deciding = Callable[[], int]


# --- decisions -----------------------------------------------------------------------------------


def decisions() -> Section:
    rows = [
        ("a member's news, exact counts (ours)", *_rate(lambda: _news(OURS))),
        ("a member's news, tossing a coin (Tamara)", *_rate(lambda: _news(TAMARA))),
        ("a proposal to merge, answered by a topic", *_rate(_proposals)),
        ("a request in a whole simulated system, Tamara", *_rate(lambda: _requests("Tamara"))),
        ("a request in a whole simulated system, ours", *_rate(lambda: _requests("ours"))),
    ]
    return Section(
        "Decisions of topic channels",
        "One core, no network. Channels are the same state machines that run on NATS, with "
        f"{MEMBERS:,} members and {CARRIED} topics; after each change of a member's interest, a "
        "cluster decides whether to add or drop topics, or to dissolve. A request is a user who "
        "subscribes to a topic, with all surveys, moves and proposals that follow, in a system "
        f"of 1,000 users that grows for 20 days. Medians of {ROUNDS} runs.",
        ("decision", "decisions/s", "time of one"),
        rows,
    )


def _rate(prepare: Callable[[], Deciding]) -> tuple[str, str]:
    rates = []
    for _ in range(ROUNDS):
        decide = prepare()
        began = time.perf_counter()
        made = decide()
        rates.append(made / (time.perf_counter() - began))
    rate = statistics.median(rates)
    return f"{rate:,.0f}", f"{1e6 / rate:,.0f} µs"


def _cluster(policy: Policy) -> ClusterChannel:
    """A cluster with members who want three quarters of its topics."""
    machine = ClusterChannel("cluster/1/t0", policy, derive_generator(0, "c"), ClusterState())
    topics = tuple(f"t{at}" for at in range(CARRIED))
    machine.on_message("topic/t0", Found(topics), 0.0)
    for topic in topics:
        carried = Carried(machine.state.version, 0.1, MEMBERS, 1.1, ())
        machine.on_message(topic_channel(topic), carried, 0.0)
    rng = np.random.default_rng(0)
    for at in range(MEMBERS):
        needs = tuple(topic for topic in topics if rng.random() < 0.75)
        machine.on_message(f"s{at}", Join(1, needs, (machine.name,)), 0.0)
    assert machine.size == MEMBERS
    return machine


def _news(policy: Policy) -> Deciding:
    machine = _cluster(policy)
    rng = np.random.default_rng(1)
    topics = tuple(machine.state.topics)
    reports = [
        Tell(
            (News(TopicFlow(topics[at % CARRIED], 0.1), False),),
            tuple(topic for topic in topics if rng.random() < 0.7),
            (machine.name,),
        )
        for at in range(NEWS)
    ]

    def decide() -> int:
        for at, news in enumerate(reports):
            machine.on_message(f"s{at % MEMBERS}", news, 1.0)
        assert len(machine.state.topics) == CARRIED, "topics that most members want must stay"
        return len(reports)

    return decide


def _proposals() -> Deciding:
    machine = TopicChannel(TAMARA, derive_generator(0, "t"), TopicState.new("t", 0.1))
    for at in range(MEMBERS):
        machine.on_message(f"s{at}", Join(1), 0.0)
    busy = (TopicFlow("busy", 3.0),)

    def decide() -> int:
        for number in range(NEWS):
            answer = machine.on_message("topic/busy", Propose(number, busy, MEMBERS, 1), 0.0)
            assert _is_refusal(answer), "a busy topic with one common subscriber never pays"
        return NEWS

    return decide


def _is_refusal(actions: list[Action]) -> bool:
    return any(isinstance(a, Send) and isinstance(a.message, Refuse) for a in actions)


def _requests(name: str) -> Deciding:
    world, days = World(users=1_000), 20
    rng = np.random.default_rng(0)
    frequency, wants = frequencies("Average", world.topics, rng), interests(world, rng)
    requests = growth(wants, float(days * INTERVALS_PER_DAY), world.span, rng)
    rounds = rounds_of(RoundsPolicy(name), Clustering(*wants.shape), frequency, days, 8, 0)

    def decide() -> int:
        rounds.run(requests, float(days * INTERVALS_PER_DAY), 1)
        rounds.clustering.check()
        assert np.array_equal(rounds.clustering.wants, wants)
        return len(requests.time)

    return decide


SECTIONS = {"topic_decisions": decisions}
