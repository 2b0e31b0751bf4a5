"""Links: delay, order, loss, cuts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.virtual import Link, Simulation, VirtualNetwork
from distributary.model import Topology
from tests.machines.virtual.machines import Sink, Source


def arrivals_over(link: Link, times: list[float], *, seed: int = 0) -> list[tuple[float, int]]:
    """When each of these messages, numbered in order, came over a link."""
    simulation = Simulation(VirtualNetwork({("a", "b"): link}, np.random.default_rng(seed)))
    sink = Sink()
    simulation.add("a", Source("b"))
    simulation.add("b", sink)
    for number, time in enumerate(times):
        simulation.post(time, "a", number, sender="outside")
    simulation.run()
    return [(time, message) for time, _, message in sink.heard]


@given(
    st.lists(st.floats(0.0, 1.0), max_size=30).map(sorted), st.integers(0, 9), st.floats(0.0, 1.0)
)
def test_a_link_keeps_the_order(times: list[float], seed: int, jitter: float) -> None:
    found = arrivals_over(Link(0.5, jitter), times, seed=seed)
    assert [number for _, number in found] == list(range(len(times)))
    for at, (came, _) in enumerate(found):
        assert times[at] + 0.5 <= came <= times[at] + 0.5 + jitter


def test_without_jitter_a_message_takes_the_delay() -> None:
    assert arrivals_over(Link(0.5), [0.0, 0.25, 2.0]) == [(0.5, 0), (0.75, 1), (2.5, 2)]


def test_a_link_that_reorders_lets_messages_overtake() -> None:
    times = [at / 100 for at in range(100)]
    found = arrivals_over(Link(0.5, jitter=1.0, reorders=True), times)
    order = [number for _, number in found]
    assert sorted(order) == list(range(100)) != order
    for came, number in found:
        assert times[number] + 0.5 <= came <= times[number] + 1.5


def test_loss_is_as_frequent_as_asked() -> None:
    n, loss = 20_000, 0.1
    arrived = len(arrivals_over(Link(0.0, loss=loss), [0.0] * n))
    assert abs(arrived - n * (1 - loss)) < 4 * np.sqrt(n * loss * (1 - loss))


def test_a_link_loses_nothing_or_everything() -> None:
    assert len(arrivals_over(Link(0.0, loss=0.0), [0.0] * 100)) == 100
    assert arrivals_over(Link(0.0, loss=1.0), [0.0] * 100) == []


def test_a_cut_parts_an_island_until_it_is_healed() -> None:
    names = ["a", "b", "c"]
    network = VirtualNetwork({}, np.random.default_rng(0), default=Link(0.5))
    simulation = Simulation(network)
    sinks = {name: Sink() for name in names}
    for name in names:
        simulation.add(name, sinks[name])
        for to in set(names) - {name}:
            simulation.add(f"{name}{to}", Source(to))
    simulation.clock.at(1.0, lambda: network.cut("storm", ["c", "ac", "ca"]))
    simulation.clock.at(2.0, lambda: network.heal("storm"))
    for time in (0.75, 1.5, 2.5):
        simulation.post(time, "ab", time, sender="a")
        simulation.post(time, "bc", time, sender="b")
        simulation.post(time, "ac", time, sender="a")
    simulation.run()
    # What was on its way at the cut arrives; inside the island nothing changes.
    assert [sent for _, sender, sent in sinks["b"].heard] == [0.75, 1.5, 2.5]
    assert [sent for _, sender, sent in sinks["c"].heard if sender == "bc"] == [0.75, 2.5]
    assert [sent for _, sender, sent in sinks["c"].heard if sender == "ac"] == [0.75, 1.5, 2.5]
    lost = {row["sender"]: row["n"] for row in traffic(simulation) if row["what"] == "lost"}
    assert lost == {"bc": 1}


def traffic(simulation: Simulation) -> list[dict[str, object]]:
    return simulation.record.traffic().to_pylist()


def test_two_cuts_heal_one_by_one() -> None:
    network = VirtualNetwork({}, np.random.default_rng(0), default=Link(1.0))
    network.cut("one", ["a"])
    network.cut("two", ["a", "b"])
    assert list(network.arrivals("a", "c", 0.0)) == [("c", None)]
    network.heal("one")
    assert list(network.arrivals("a", "c", 0.0)) == [("c", None)]
    assert list(network.arrivals("a", "b", 0.0)) == [("b", 1.0)]
    network.heal("two")
    assert list(network.arrivals("a", "c", 0.0)) == [("c", 1.0)]


class Groups(VirtualNetwork):
    """A network that knows one group."""

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        for member in ("b", "c") if to == "group" else (to,):
            yield from super().arrivals(sender, member, now)


def test_a_network_may_send_one_message_to_many() -> None:
    simulation = Simulation(Groups({}, np.random.default_rng(0), default=Link(0.5, loss=0.5)))
    sinks = {name: Sink() for name in "bc"}
    for name, sink in sinks.items():
        simulation.add(name, sink)
    simulation.add("a", Source("group"))
    for number in range(40):
        simulation.post(float(number), "a", number, sender="outside")
    simulation.run()
    heard = [{message for _, _, message in sink.heard} for sink in sinks.values()]
    assert heard[0] - heard[1]  # each member loses on its own
    assert heard[1] - heard[0]
    assert heard[0] & heard[1]


def test_the_links_of_a_topology_work_both_ways() -> None:
    topology = Topology({("a", "b"): 0.25})
    network = VirtualNetwork.of(topology, np.random.default_rng(0))
    assert list(network.arrivals("a", "b", 1.0)) == [("b", 1.25)]
    assert list(network.arrivals("b", "a", 2.0)) == [("a", 2.25)]
    with pytest.raises(ValueError, match="no link from 'a' to 'c'"):
        list(network.arrivals("a", "c", 0.0))


@pytest.mark.parametrize("bad", [{"delay": -1.0}, {"delay": 1.0, "jitter": float("inf")}])
def test_a_message_takes_some_time(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="delay and jitter must be finite"):
        Link(**bad)


def test_loss_is_a_probability() -> None:
    with pytest.raises(ValueError, match="probability"):
        Link(0.0, loss=1.5)
