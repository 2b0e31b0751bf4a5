"""The parts that the machines are made of."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery import fingerprint_of
from distributary.delivery.authentication import TAG_SIZE, Authenticator
from distributary.delivery.gaps import Gaps, draw_back_off
from distributary.delivery.incoming_journal import decode_records
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.routes import subscribed_groups, unserved_flows, wanted_flows
from distributary.delivery.window import RepairWindow
from distributary.delivery.wire import (
    Announcement,
    Header,
    StreamPosition,
    WireError,
    decode_announcement,
    decode_header,
    decode_heartbeat,
    decode_lookup,
    decode_ranges,
    decode_request,
    encode_announcement,
    encode_header,
    encode_heartbeat,
    encode_lookup,
    encode_ranges,
    encode_request,
)
from tests.delivery.machines import KEY, simple_plan

LONG = st.integers(0, 2**63 - 1)
WORD = st.integers(0, 2**32 - 1)


@given(st.integers(1, 10), st.integers(0, 0xFFFF), WORD, WORD, LONG, LONG, LONG)
def test_headers_come_back(
    kind: int, items: int, publisher: int, stream: int, incarnation: int, sequence: int, sent: int
) -> None:
    header = Header(kind, 40, items, publisher, stream, incarnation, sequence, sent)
    assert decode_header(encode_header(header)) == header


def test_packets_of_the_first_wire_version_are_refused() -> None:
    packet = bytearray(encode_header(Header(1, 40, 1)))
    packet[2] = 1
    with pytest.raises(WireError, match="wire version"):
        decode_header(bytes(packet))


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**40)), max_size=64))
def test_ranges_come_back(found: list[tuple[int, int]]) -> None:
    ranges = [(first, first + more) for first, more in found]
    assert decode_ranges(encode_ranges(ranges), len(ranges)) == ranges


@given(st.integers(1, 2**62), st.booleans(), st.text(max_size=30))
def test_bodies_come_back(number: int, ended: bool, text: str) -> None:
    positions = [StreamPosition(stream, ended, number, number + stream) for stream in range(3)]
    assert decode_heartbeat(encode_heartbeat(positions), 3) == positions
    assert decode_request(encode_request(text)) == text
    assert decode_lookup(encode_lookup([number % 2**32, 7]), 2) == [number % 2**32, 7]
    found = Announcement(1, 2, number, number + 1, 64, number, number, number + 7, text, text[::-1])
    assert decode_announcement(encode_announcement(found)) == found


@given(st.binary(max_size=100), st.integers(0, 70))
def test_bytes_are_read_or_refused(body: bytes, items: int) -> None:
    for decode in (decode_header, decode_announcement, decode_request):
        with suppress(WireError):
            decode(body)
    for decode_items in (decode_ranges, decode_heartbeat, decode_lookup, decode_records):
        with suppress(WireError):
            assert len(decode_items(body, items)) == items


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_tag_tells_every_change(packet: bytes, data: st.DataObject) -> None:
    authenticator = Authenticator(KEY)
    tagged = packet + authenticator.tag(packet)
    assert authenticator.accepts(tagged)
    at = data.draw(st.integers(0, len(tagged) - 1))
    changed = tagged[:at] + bytes([tagged[at] ^ data.draw(st.integers(1, 255))]) + tagged[at + 1 :]
    assert not authenticator.accepts(changed)
    assert not Authenticator(b"another key with 16").accepts(tagged)
    assert not authenticator.accepts(tagged[: TAG_SIZE - 1])


def test_keys_are_neither_short_nor_long() -> None:
    for key in (b"", b"short", b"x" * 65):
        with pytest.raises(ValueError, match="a key has 16 to 64 bytes"):
            Authenticator(key)
    assert Authenticator().accepts(b"anything")


def gaps() -> Gaps:
    return Gaps(np.random.default_rng(0), 0.01, 10.0, 0.02, 0.5, 3, [])


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(1, 70))
def test_gaps_are_what_did_not_come(came: list[int], below: int) -> None:
    """Against a plain set of numbers."""
    found, missing = gaps(), set(range(1, 61))
    found.add(1, 30, 0.0)
    found.add(31, 60, 0.0)
    for sequence in came:
        assert found.remove(sequence) == (sequence in missing)
        missing.discard(sequence)
    numbers = {n for each in found.ranges for n in range(each.first, each.last + 1)}
    assert numbers == missing
    gone = {n for first, last in found.give_up(below) for n in range(first, last + 1)}
    assert gone == {n for n in missing if n < below}
    left = {n for each in found.ranges for n in range(each.first, each.last + 1)}
    assert left == missing - gone


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=20))
def test_gaps_take_ranges_anywhere(found: list[tuple[int, int]]) -> None:
    known, missing = gaps(), set()
    for first, more in found:
        known.insert(first, first + more, 0.0)
        missing.update(range(first, first + more + 1))
    numbers = [n for each in known.ranges for n in range(each.first, each.last + 1)]
    assert numbers == sorted(missing)


@given(st.floats(1e-4, 10.0), st.floats(1.0, 1e4), st.integers(0, 1_000))
def test_back_off_is_at_most_what_was_asked(longest: float, receivers: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    waits = [draw_back_off(longest, receivers, rng) for _ in range(20)]
    assert all(-1e-9 <= wait <= longest * (1 + 1e-9) for wait in waits)


def test_of_many_receivers_few_ask_early() -> None:
    rng = np.random.default_rng(0)
    waits = np.array([draw_back_off(1.0, 1_000.0, rng) for _ in range(2_000)])
    assert (waits < 0.25).mean() < 0.02
    assert (waits > 0.75).mean() > 0.7


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(1.0, 50.0)), max_size=50))
def test_a_bucket_lets_no_more_through_than_its_rate(found: list[tuple[float, float]]) -> None:
    bucket, now, through = TokenBucket(100.0, 20.0), 0.0, 0.0
    for wait, size in found:
        now = max(now + wait, bucket.ready_at(now + wait))
        assert through <= 20.0 + now * 100.0 + 1e-3
        assert bucket.ready_at(now) <= now
        bucket.take(size, now)
        through += size


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 8), st.integers(1, 120))
def test_a_window_holds_the_last_packets(sizes: list[int], packets: int, size: int) -> None:
    window = RepairWindow(packets, size)
    for at, length in enumerate(sizes, start=1):
        window.add(at, b"x" * length)
    n = len(sizes)
    kept = [at for at in range(1, n + 1) if window.get(at) is not None]
    assert kept == list(range(window.first, n + 1))
    assert len(kept) <= packets
    assert sum(sizes[at - 1] for at in kept) <= size or len(kept) == 1
    if kept and kept[0] > 1 and len(kept) < packets:  # one more would have been too many bytes
        assert sum(sizes[at - 1] for at in [kept[0] - 1, *kept]) > size


def test_a_plan_says_what_it_means_for_a_receiver() -> None:
    plan = simple_plan([0, 1, 1, -1, -1], [4, 2], {"r": [3], "s": [4]})
    assert wanted_flows(plan, "r") == ("f0", "f1", "f2", "f3")
    assert subscribed_groups(plan, "r") == {2, 4}
    assert unserved_flows(plan, "r", ["f0", "f2", "f3", "f4", "other"]) == ("f4", "other")
    assert unserved_flows(plan, "stranger", ["f2", "f3"]) == ("f3",)


def test_fingerprints_tell_plans_apart() -> None:
    plans = [
        simple_plan([0, 0], [0]),
        simple_plan([0, 1], [0, 0]),
        simple_plan([0, 1], [0, 1]),
        simple_plan([0, 0, 0], [0]),
        simple_plan([0, -1], [0], {"r": [1]}),
    ]
    assert len({fingerprint_of(plan) for plan in plans}) == len(plans)
    assert fingerprint_of(plans[0]) == fingerprint_of(simple_plan([0, 0], [0]))
