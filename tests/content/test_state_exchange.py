"""Brokers that compare their states do so in small messages, and packets fit into frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content import COVERING_POLICIES, AdvertiseRequest, SubscribeRequest
from distributary.content import state_exchange as exchange_module
from distributary.content.codec import Codec
from distributary.content.connections import Connection, Packet, Timing
from distributary.content.messages import Name, SubscribeStatement
from distributary.content.resync import Known, StaleStatements, ToldBuckets
from distributary.content.sizes import measure_filter, measure_message
from distributary.content.state_exchange import StateExchange
from distributary.machines import Send
from tests.content import faults
from tests.content.faults import BadWorld
from tests.content.test_broker import ALL, Tape, chain, unpack
from tests.content.test_codec import CODEC, inside, known
from tests.content.test_faults import run_schedule
from tests.content.worlds import SCHEMA, box


@given(inside)
def test_a_message_takes_no_more_bytes_than_measured(message: object) -> None:
    empty = len(CODEC.encode(Packet(1, 1)))
    assert len(CODEC.encode(Packet(1, 1, messages=(message,)))) - empty <= measure_message(message)


@given(known, st.integers(1, 3), st.integers(1, 2_000))
def test_parts_are_small_and_make_up_the_whole(all_of_it: Known, most: int, room: int) -> None:
    parts = all_of_it.split(most, measure_filter, room)
    assert parts
    found = Known({}, {})
    for part in parts:
        filters = [*part.advertisements.values(), *part.subscriptions.values()]
        assert len(filters) <= most
        assert len(filters) <= 1 or sum(map(measure_filter, filters)) <= room
        found = Known(
            {**found.advertisements, **part.advertisements},
            {**found.subscriptions, **part.subscriptions},
        )
    assert found == all_of_it
    assert len(parts) <= max(1, len(all_of_it.advertisements) + len(all_of_it.subscriptions))


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 5), st.integers(1, 10))
def test_packets_have_few_bytes_or_a_single_message(
    sizes: list[int], batch: int, packet: int
) -> None:
    timing = Timing(batch=batch, packet=packet)
    sender = Connection("b", 1, timing, measure=lambda message: len(message))
    sender.on_packet(Packet(1, 1), 0.0)
    for size in sizes:
        sender.send("x" * size, keep=False)
    sent = [each.message for each in sender.flush(0.0) if isinstance(each, Send)]
    packets = [each.messages for each in sent if isinstance(each, Packet) and each.messages]
    assert [len(each) for messages in packets for each in messages] == sizes
    for messages in packets:
        assert len(messages) <= batch
        assert len(messages) == 1 or sum(map(len, messages)) <= packet
    later = [each.message for each in sender.flush(100.0) if isinstance(each, Send)]
    again = [each.messages for each in later if isinstance(each, Packet) and each.messages]
    assert again == packets[:1], "a time-out repeats the first packet"


N = 90
SMALL_FRAME = 900  # bytes: a few statements


def restart_one_of_two(monkeypatch: pytest.MonkeyPatch) -> tuple[BadWorld, Tape]:
    """Many subscriptions at a; b restarts and knows none of them."""
    monkeypatch.setattr(faults, "TIMING", replace(faults.TIMING, packet=SMALL_FRAME))
    tape = Tape()
    policy = COVERING_POLICIES["active"]
    world = BadWorld(policy, chain("a", "b"), np.random.default_rng(0), watch=tape)
    world.say("b", AdvertiseRequest("pub", 1, ALL))
    for number in range(N):
        world.say("a", SubscribeRequest("c", number, box((number, number + 400))))
    world.mend()
    world.crash("b")
    tape.came.clear()
    world.mend()
    return world, tape


def test_a_state_larger_than_a_frame_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    world, tape = restart_one_of_two(monkeypatch)
    told = [each for each in unpack(tape, "b") if isinstance(each, ToldBuckets)]
    codec = Codec(SCHEMA)
    assert sum(len(codec.encode(each)) for each in told) > 3 * SMALL_FRAME
    packets = [each for _, each in tape.came if isinstance(each, Packet)]
    assert max(len(codec.encode(each)) for each in packets) <= SMALL_FRAME + 100
    assert [bool(each.buckets) for each in told] == [False] * (len(told) - 1) + [True]
    names = [name for each in told for name in each.told.subscriptions]
    assert len(names) == len(set(names)) == N
    heard = world.brokers["b"].collect_received("a").subscriptions
    assert heard == world.brokers["a"].links["b"].list_sent()
    assert not [each for each in unpack(tape, "a") if isinstance(each, StaleStatements)]


def test_what_is_stale_in_a_large_state_is_found_after_the_last_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, tape = restart_one_of_two(monkeypatch)
    told = [each for each in unpack(tape, "b") if isinstance(each, ToldBuckets)]
    stale = Name("a", 2**39)  # as if from an incarnation that has forgotten it
    core = world.brokers["b"]
    core.on_message("a", SubscribeStatement(stale, box((1, 2))), 0.0)
    connection = Connection("a", 1, Timing())
    connection.on_packet(Packet(1, 1), 0.0)
    exchange = StateExchange(core, {"a": connection}, SMALL_FRAME)
    for at, each in enumerate(told):
        assert connection.backlog == 0, f"before part {at}"
        exchange.take_told("a", each, 0.0)
    sent = [each.message for each in connection.flush(0.0) if isinstance(each, Send)]
    (report,) = [each for packet in sent for each in packet.messages]
    assert isinstance(report, StaleStatements)
    assert list(report.heard.subscriptions) == [stale]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_when_every_state_is_told_in_many_parts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "TIMING", replace(faults.TIMING, packet=300))
    monkeypatch.setattr(exchange_module, "MOST_STATEMENTS", 2)
    run_schedule(seed)
