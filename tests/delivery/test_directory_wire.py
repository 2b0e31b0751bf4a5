"""Entries, blocks and records: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery.directory_wire import (
    MOST_FLOWS,
    MOST_STREAMS,
    SMALLEST_ROOM,
    Block,
    CancelRecord,
    FlowClaim,
    FlowEntry,
    LeaveRecord,
    MarkRecord,
    Place,
    ReadyRecord,
    Record,
    ReleaseRecord,
    RouteRecord,
    SwitchRecord,
    block_of,
    decode_block,
    decode_record,
    encode_record,
    flow_key,
    pack_blocks,
    receiver_key,
    split_entry,
)
from distributary.delivery.wire import WireError

from ..strategies import names

words = st.integers(0, 2**32 - 1)
flow_numbers = st.integers(0, MOST_FLOWS - 1)
stream_numbers = st.integers(1, MOST_STREAMS - 1)
longs = st.integers(0, 2**63 - 1)
places = st.builds(Place, stream_numbers, st.integers(0, 2**32 - 2), st.just(0)) | st.builds(
    Place, stream_numbers, st.none(), st.integers(0, 2**64 - 1)
)
claims = st.builds(FlowClaim, longs, words, longs, st.integers(1, 2**63 - 1))
some_places = st.lists(places, max_size=40).map(tuple)
entries = st.builds(
    FlowEntry,
    st.binary(min_size=16, max_size=16),
    flow_numbers,
    some_places,
    st.none() | some_places,
    st.just(False),
    st.none() | claims,
    st.just(False),
)
released = st.builds(
    FlowEntry,
    st.binary(min_size=16, max_size=16),
    flow_numbers,
    st.just(()),
    st.none(),
    st.just(False),
    claims,
    st.just(True),
)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(RouteRecord, words, entries),
    st.builds(ReadyRecord, words, words, st.integers(0, 2**64 - 1)),
    st.builds(MarkRecord, words, words, longs),
    st.builds(SwitchRecord, words),
    st.builds(CancelRecord, words),
    st.builds(ReleaseRecord, words, released),
    st.builds(LeaveRecord, words),
)


def join(parts: list[FlowEntry]) -> FlowEntry:
    """The entry that was split into these."""
    assert [part.continued for part in parts] == [False] + [True] * (len(parts) - 1)
    upcoming: tuple[Place, ...] | None = None
    if parts[0].upcoming is not None:
        upcoming = tuple(place for part in parts for place in part.upcoming or ())
    return parts[0]._replace(
        places=tuple(place for part in parts for place in part.places), upcoming=upcoming
    )


@given(records)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    kind, body = encode_record(record)
    assert decode_record(kind, body) == record


@given(st.integers(0, 9), st.binary(max_size=80))
def test_other_bytes_are_refused_or_are_a_record(kind: int, body: bytes) -> None:
    try:
        record = decode_record(kind, body)
    except WireError:
        return
    assert encode_record(record) == (kind, body)


@given(entries, st.integers(SMALLEST_ROOM, 400))
def test_a_long_entry_is_split_and_put_together(entry: FlowEntry, room: int) -> None:
    parts = list(split_entry(entry, room))
    assert join(parts) == entry
    for part in parts:
        assert len(encode_record(RouteRecord(0, part))[1]) <= room + 4


@given(longs, words, st.lists(entries, max_size=6), st.integers(SMALLEST_ROOM + 16, 600))
def test_a_block_is_read_as_it_was_written(
    as_of: int, block: int, given_entries: list[FlowEntry], room: int
) -> None:
    bodies = pack_blocks(as_of, block, given_entries, room)
    read: list[list[FlowEntry]] = []
    for part, (count, body) in enumerate(bodies):
        assert len(body) <= room
        found = decode_block(body, count)
        assert found[:4] == (as_of, block, part, len(bodies))
        for entry in found.entries:
            if entry.continued:
                read[-1].append(entry)
            else:
                read.append([entry])
    assert [join(parts) for parts in read] == given_entries


@given(st.binary(max_size=120), st.integers(0, 4))
def test_other_bytes_are_refused_or_are_a_block(body: bytes, count: int) -> None:
    try:
        found = decode_block(body, count)
    except WireError:
        return
    assert isinstance(found, Block)
    assert len(found.entries) == count


@given(names(), st.integers(0, 20))
def test_every_flow_has_a_block(name: str, power: int) -> None:
    key = flow_key(name)
    assert 0 <= block_of(key, 1 << power) < 1 << power
    assert len(key) == 16
    assert receiver_key(name) == receiver_key(name) != int.from_bytes(key[:8])


def test_a_packet_too_small_for_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="too few for an entry"):
        list(split_entry(FlowEntry(bytes(16), 1, (Place(1, 2),)), 40))
