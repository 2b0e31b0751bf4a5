"""Queues, service times, timers, crashes; and the same run for the same seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from distributary.machines.virtual import Link, Simulation, VirtualNetwork, price_work
from tests.machines.virtual.machines import Alarm, Chatter, Muddled, Scribe, Sink, Source


def quiet(seed: int = 0) -> Simulation:
    """Nodes that can all talk to each other without delay."""
    return Simulation(VirtualNetwork({}, np.random.default_rng(seed), default=Link(0.0)))


def serve(arrivals: list[float], service: float, capacity: float = float("inf")) -> Simulation:
    """A server to which messages come at these times."""
    simulation = quiet()
    simulation.add("server", Sink(), service=price_work(unit=service), capacity=capacity)
    for number, time in enumerate(arrivals):
        simulation.post(time, "server", number, sender="client")
    simulation.run()
    return simulation


def times(simulation: Simulation) -> list[float]:
    return simulation.record.deliveries()["time"].to_pylist()


def test_a_node_serves_one_input_after_the_other() -> None:
    simulation = serve([0.0, 0.5, 0.75, 9.0], 2.0)
    assert times(simulation) == [2.0, 4.0, 6.0, 11.0]
    queues = simulation.record.queues()
    assert list(zip(*(queues[name].to_pylist() for name in ("time", "waiting")), strict=True)) == [
        (0.5, 1),
        (0.75, 2),
        (2.0, 1),
        (4.0, 0),
    ]


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_waiting_is_that_of_one_server_with_random_arrivals(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) services (Pollaczek and Khinchine)."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / load, 40_000))
    simulation = serve(arrivals.tolist(), 1.0)
    waits = np.array(times(simulation)) - arrivals - 1.0
    expected = load / (2 * (1 - load))
    assert waits.mean() == pytest.approx(expected, rel=0.1)
    # Little's law: the mean length of the queue is arrivals per second times the mean wait.
    queues = simulation.record.queues()
    time, length = queues["time"].to_numpy(), queues["waiting"].to_numpy()
    area = float(np.sum(np.diff(time) * length[:-1]))
    assert area == pytest.approx(waits.sum(), rel=1e-6)


def test_a_queue_beyond_its_server_grows_without_end() -> None:
    simulation = serve([at * 0.5 for at in range(1_000)], 1.0)
    assert simulation.record.queues()["waiting"].to_numpy().max() == pytest.approx(500, abs=2)


def test_a_full_queue_drops() -> None:
    simulation = serve([0.0, 0.1, 0.2, 0.3, 2.0], 1.0, capacity=1)
    assert times(simulation) == [1.0, 2.0, 3.0]
    assert simulation.record.messages == {
        ("client", "server", "arrived"): 3,
        ("client", "server", "dropped"): 2,
    }


def test_work_is_priced_by_kind() -> None:
    cost = price_work(0.5, match=0.25, send=1.0)
    assert cost({}) == 0.5
    assert cost({"match": 4, "send": 2, "unheard of": 7}) == 3.5


def test_timers_ring_once_are_replaced_and_stopped() -> None:
    simulation, alarm = quiet(), Alarm()
    simulation.add("node", alarm)
    for time, message in (
        (0.0, ("a", 5.0)),
        (0.0, ("b", 2.0)),
        (0.0, ("c", 3.0)),
        (1.0, ("b", 4.0)),
        (1.0, ("c", None)),
        (6.0, ("late", 1.0)),
        (6.5, ("never set", None)),
    ):
        simulation.post(time, "node", message, sender="outside")
    simulation.run()
    assert alarm.heard == [(4.0, "timer", "b"), (5.0, "timer", "a"), (6.0, "timer", "late")]


def test_a_timer_that_is_stopped_while_it_waits_in_the_queue_does_not_ring() -> None:
    simulation, alarm = quiet(), Alarm()
    simulation.add("node", alarm, service=price_work(unit=10.0))
    for time, message in ((0.0, ("a", 2.0)), (1.0, None), (1.5, ("a", None))):
        simulation.post(time, "node", message, sender="outside")
    simulation.run()
    assert alarm.heard == []


def test_a_crashed_node_is_gone_with_its_queue_and_timers() -> None:
    simulation, alarm, sink = quiet(), Alarm(), Sink()
    simulation.add("alarm", alarm)
    simulation.add("sink", sink, service=price_work(unit=1.0))
    simulation.post(0.0, "alarm", ("a", 2.0), sender="outside")
    for time in (0.25, 0.5, 3.0):
        simulation.post(time, "sink", "hello", sender="outside")
    simulation.clock.at(1.0, lambda: [simulation.crash(name) for name in ("alarm", "sink")])
    simulation.clock.at(1.5, lambda: simulation.add("alarm", alarm))
    simulation.run()
    assert alarm.heard == []
    assert len(sink.heard) == 1
    assert simulation.record.delivered == []
    assert simulation.record.messages["outside", "sink", "dropped"] == 1


def test_a_log_outlives_its_node_and_has_only_what_was_finished() -> None:
    simulation = quiet()
    for records in ([b"start"], [b"start", b"one", b"start"]):
        scribe = Scribe()
        simulation.add("scribe", scribe, service=price_work(unit=2.0))
        simulation.call("scribe", scribe.start)
        simulation.run(until=simulation.clock.now + 1.0)
        assert simulation.logs["scribe"] == records
        now = simulation.clock.now
        simulation.post(now, "scribe", b"one", sender="client")
        simulation.post(now + 1.0, "scribe", b"two", sender="client")
        simulation.run(until=now + 3.0)
        simulation.crash("scribe")
    simulation.run()
    assert simulation.logs["scribe"] == [b"start", b"one", b"start", b"one"]


def test_what_is_no_action_is_refused() -> None:
    simulation = quiet()
    simulation.add("a", Muddled())
    simulation.post(0.0, "a", "hello", sender="outside")
    with pytest.raises(AssertionError, match="not an action"):
        simulation.run()


def test_a_name_is_taken_once() -> None:
    simulation = quiet()
    simulation.add("a", Sink())
    with pytest.raises(ValueError, match="already"):
        simulation.add("a", Sink())


def test_an_avalanche_is_bounded() -> None:
    simulation = quiet()
    for name in ("a", "b"):
        simulation.add(name, Chatter())
    simulation.post(0.0, "a", "hello", sender="b")
    assert simulation.run(max_events=1_000) == 1_000


def tables(seed: int) -> list[pa.Table]:
    """A run with everything that chance decides."""
    rng = np.random.default_rng(seed)
    link = Link(0.1, jitter=0.2, loss=0.2, reorders=True)
    simulation = Simulation(VirtualNetwork({}, rng, default=link))
    simulation.add("a", Source("b"))
    simulation.add("b", Sink(), service=price_work(unit=0.01), capacity=5)
    for number, time in enumerate(np.cumsum(rng.exponential(0.01, 500)).tolist()):
        simulation.post(time, "a", number, sender="outside")
    simulation.run(until=10.0)
    record = simulation.record
    return [record.queues(), record.deliveries(), record.traffic(), record.work()]


def test_the_same_seed_gives_the_same_run() -> None:
    assert tables(3) == tables(3)
    assert tables(3) != tables(4)


def test_an_empty_run_has_empty_tables() -> None:
    record = quiet().record
    for table in (record.queues(), record.deliveries(), record.traffic(), record.work()):
        assert table.num_rows == 0
        assert table.num_columns > 2
