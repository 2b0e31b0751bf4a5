"""How much of a topic's past is kept, and what a restart makes of it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.real.store import Store
from distributary.topics import Policy
from distributary.topics.codec import Create, Expired, Put
from distributary.topics.history import TopicHistory
from distributary.topics.messages import Event, Join, Repair
from distributary.topics.store import TopicStore
from tests.topics.hosting import StoredHost
from tests.topics.nats.running import QUICK

CHANNEL = "topic/t"


@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    most=st.integers(1, 20),
    most_bytes=st.integers(0, 200),
)
def test_a_history_is_bounded_by_count_and_by_bytes_and_keeps_the_last(
    sizes: list[int], most: int, most_bytes: int
) -> None:
    history = TopicHistory()
    for number, size in enumerate(sizes, start=1):
        event = Event("t", number, bytes(size))
        history.append(event, most, most_bytes)
        assert history.last == event
        assert 1 <= len(history) <= most
        assert history.size == sum(len(each.payload) for each in history)
        assert history.size <= most_bytes or len(history) == 1
        oldest = history.find_oldest(0)
        for first in range(number + 2):
            kept = [each for each in history if each.number >= first]
            assert history.since(first, 5) == kept[:5]
        if len(history) < min(number, most):  # nothing goes without need
            assert sum(sizes[oldest - 2 :][: number - oldest + 2]) > most_bytes


def open_host(store: Store, policy: Policy) -> StoredHost:
    host = StoredHost(store, policy)
    host.perform(host.start(1.0))
    return host


def publish(host: StoredHost, payloads: list[bytes]) -> None:
    host.take("p", CHANNEL, Create(0.0), 1.0)
    for number, payload in enumerate(payloads, start=1):
        host.take("p", CHANNEL, Put(1, number, payload), 1.0)
    host.out.clear()


def test_a_restart_finds_as_much_of_the_past_as_was_kept(tmp_path: Path) -> None:
    policy = replace(QUICK, history_bytes=1_000)
    with Store(tmp_path) as store:
        host = open_host(store, policy)
        publish(host, [bytes(300)] * 9)
        known = host.topics[CHANNEL].state.history
        assert [event.number for event in known] == [7, 8, 9]
    for shorten in (False, True):
        with Store(tmp_path) as store:
            host = open_host(store, policy)
            assert host.topics[CHANNEL].state.history == known
            host.take("s", CHANNEL, Repair(2, host.state.epoch), 1.0)
            assert ("s", "service", Expired("t", 2, 7)) in host.out
            if shorten:
                host.store.shorten()


def test_a_long_state_is_written_in_short_records(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        host = open_host(store, QUICK)
        publish(host, [bytes(700_000)] * 20)
        for number in range(3_000):
            host.take(f"s{number}", CHANNEL, Join(1), 1.0)
        host.store.shorten()
        kept = host.state
    with Store(tmp_path) as store:
        assert max(map(len, store.read())) < 2_000_000
    with Store(tmp_path) as store:
        assert TopicStore(store, QUICK).state == kept


def test_a_restart_needs_little_more_memory_than_the_state(tmp_path: Path) -> None:
    policy = replace(QUICK, history_bytes=2_000_000)
    with Store(tmp_path) as store:
        host = open_host(store, policy)
        publish(host, [bytes(10_000)] * 1_500)  # the log has seven times the state
        assert store.size > 14_000_000
    tracemalloc.start()
    try:
        with Store(tmp_path) as store:
            host = open_host(store, policy)
            assert host.topics[CHANNEL].state.history.size == 2_000_000
            _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6_000_000  # the state, the file's buffer and one part of it
