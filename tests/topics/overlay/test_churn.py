"""Through joins, leaves and crashes: everything, once, in order; and the ring is whole again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distributary.machines.virtual import Link
from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.messages import LostEvents
from distributary.topics.overlay.simulation import OverlayNetwork
from tests.topics.overlay import oracles
from tests.topics.overlay.schedules import GROUP, QUICK, REPAIR, Schedule, run_schedule


@pytest.mark.parametrize("start", range(0, 150, 25))
def test_churn(start: int) -> None:
    for seed in range(start, start + 25):
        schedule = run_schedule(seed)
        check_counts(schedule)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(150, 3150, 125))
def test_churn_at_length(start: int) -> None:
    for seed in range(start, start + 125):
        run_schedule(seed)


def check_counts(schedule: Schedule) -> None:
    """Periodic messages are bounded by time, all others by how much changed and was said."""
    sent, network = schedule.network.count_messages(), schedule.network
    peers = schedule.joined
    ticks = network.simulation.clock.now / QUICK.leaf_period + 1
    assert sent["keep-alive"] <= peers * QUICK.leaf_set * ticks
    assert sent["tree-keep-alive"] <= 2 * peers * ticks
    assert sent["too many hops"] == 0
    said = sum(schedule.said.values())
    assert sent["event"] <= said * peers
    rest = ("join", "leave", "repair", "probe", "recover", "subscribe", "unsubscribe", "catch-up")
    assert sum(sent[kind] for kind in rest) <= 60 * (schedule.changes + peers + 10)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run_schedule(5), run_schedule(5)
    assert first.network.simulation.record.delivered == second.network.simulation.record.delivered
    assert first.network.count_messages() == second.network.count_messages()


@pytest.mark.parametrize("seed", range(10))
def test_lost_and_overtaking_messages_are_made_up_for(seed: int) -> None:
    """No crashes, but one message in a hundred does not come, and some overtake others."""
    rng = np.random.default_rng(seed)
    parameters = replace(QUICK, misses=4)
    network = OverlayNetwork.build_converged(
        [f"p{at}" for at in range(30)],
        rng,
        parameters,
        link=Link(0.02, jitter=0.05, loss=0.01, reorders=True),
    )
    subscribers = [f"p{at}" for at in range(0, 30, 2)]
    for name in subscribers:
        network.subscribe(name, GROUP)
    network.run(REPAIR)
    for number in range(40):
        network.publish(f"p{number % 3}", GROUP, number)
        network.run(0.7)
    network.run(3 * REPAIR)
    received = network.collect_received(GROUP)
    assert set(received) == set(subscribers)
    for stream in received.values():
        assert sorted(found.publication.payload for found in stream) == list(range(40))
        assert [found.sequence for found in stream] == list(range(40))
    assert network.count_messages()["catch-up"] > 0


def test_numbers_go_on_even_if_all_copies_are_lost() -> None:
    """Beyond what is promised: the subscriber says what it has, and no number comes twice."""
    rng = np.random.default_rng(3)
    network = OverlayNetwork.build_converged([f"p{at}" for at in range(40)], rng, QUICK)
    names = sorted(network.peers, key=lambda name: oracles.far(identifier(name), identifier(GROUP)))
    early, late = names[-1], names[-2]
    network.subscribe(early, GROUP)
    network.run(REPAIR)
    for number in range(5):
        network.publish(early, GROUP, number)
        network.run(1.0)
    for name in names[: QUICK.replicas + 1]:
        network.crash(name)
    network.run(2 * REPAIR)
    network.subscribe(late, GROUP)
    network.run(REPAIR)
    network.publish(late, GROUP, "after")
    network.run(REPAIR)
    received = network.collect_received(GROUP)
    assert [found.publication.payload for found in received[early]] == [0, 1, 2, 3, 4, "after"]
    assert [found.publication.payload for found in received[late]] == ["after"]
    assert not any(isinstance(row[4], LostEvents) for row in network.simulation.record.delivered)


def test_a_window_that_is_too_small_is_told() -> None:
    """A subscriber that is cut off for long learns which events are nowhere any more."""
    rng = np.random.default_rng(4)
    parameters = replace(QUICK, window=4)
    network = OverlayNetwork.build_converged([f"p{at}" for at in range(12)], rng, parameters)
    root = oracles.nearest(network.peers, identifier(GROUP))
    far = next(name for name in network.peers if name != root)
    network.subscribe(far, GROUP)
    network.publish(root, GROUP, "before")
    network.run(REPAIR)
    network.publish(root, GROUP, 0)
    network.run(1.0)
    network.simulation.network.cut("far", [far])
    for number in range(1, 30):
        network.publish(root, GROUP, number)
        network.run(0.2)
    network.simulation.network.heal("far")
    network.run(4 * REPAIR)
    network.publish(root, GROUP, 30)
    network.run(REPAIR)
    delivered = [row[4] for row in network.simulation.record.delivered if row[1] == far]
    (lost,) = [found for found in delivered if isinstance(found, LostEvents)]
    numbers = [found.sequence for found in network.collect_received(GROUP)[far]]
    everything = sorted([*numbers, *range(lost.first, lost.end)])
    assert everything == list(range(everything[0], everything[0] + len(everything)))
    assert network.collect_received(GROUP)[far][-1].publication.payload == 30
