"""The compiled filters against their plain twins, on packets good and bad, by the million."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._wire_kernels import StreamState
from tests.delivery.packets import (
    Batch,
    Outcome,
    broken,
    run_compiled,
    run_plain,
    some_state,
    some_tables,
    templates,
)

BATCH = 4_096


def copy_state(state: StreamState) -> StreamState:
    return StreamState(*(array.copy() for array in state))


def check_inside(batch: Batch, outcome: Outcome, tag: int) -> None:
    """Every message that is given out lies in its packet, behind a header and before the tag."""
    found = [*outcome.delivered, *(entry for _, entries in outcome.thought for entry in entries)]
    if not found:
        return
    packet, flow, sequence, start, end = np.array(found, np.int64).T
    assert (start >= 40 + 16).all()
    assert (start <= end).all()
    assert (end <= batch.lengths[packet] - tag).all()
    assert (sequence > 0).all()
    assert (flow >= 0).all()


def check_all_counted(batch: Batch, outcome: Outcome) -> None:
    """Every packet is dropped by a filter, malformed, stale, doubled, thought about or taken."""
    counts = outcome.counts
    dropped = sum(counts[at] for at in (kernels.UNWANTED_PACKETS, kernels.MALFORMED, kernels.STALE))
    assert dropped + len(outcome.thought) <= len(batch.offsets)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 16]), st.sampled_from([None, 0, 1]))
def test_compiled_and_plain_filters_agree(seed: int, tag: int, line: int | None) -> None:
    rng = np.random.default_rng(seed)
    tables = some_tables(rng)
    batch = broken(templates(rng, tables, 20, tag), rng, 60)
    state = some_state(rng)
    plain = run_plain(batch.packets(), tables, copy_state(state), tag, line)
    compiled = run_compiled(batch, tables, copy_state(state), tag, line=line)
    assert compiled == plain
    check_inside(batch, compiled, tag)


def test_good_packets_are_all_taken_or_thought_about() -> None:
    rng = np.random.default_rng(1)
    tables = some_tables(rng)
    batch = templates(rng, tables, 500)
    outcome = run_compiled(batch, tables, some_state(rng))
    assert outcome.counts[kernels.MALFORMED] == outcome.counts[kernels.STALE] == 0
    assert outcome.delivered
    assert outcome.thought
    assert outcome.counts[kernels.UNWANTED_PACKETS] > 0
    assert outcome.counts[kernels.UNWANTED_MESSAGES] > 0


def fuzz(seed: int, batches: int) -> np.ndarray:
    """Broken packets, batch after batch: what was counted. A few of each are parsed plainly too."""
    total = np.zeros(kernels.COUNTS, np.int64)
    rng = np.random.default_rng(seed)
    for number in range(batches):
        if number % 50 == 0:
            tag = int(rng.choice([0, 16]))
            tables = some_tables(rng)
            pattern = templates(rng, tables, 200, tag)
        batch = broken(pattern, rng, BATCH)
        state = some_state(rng)
        line = (None, 0, 1)[number % 3]
        outcome = run_compiled(batch, tables, copy_state(state), tag, line=line)
        check_inside(batch, outcome, tag)
        check_all_counted(batch, outcome)
        total += outcome.counts
        if number % 10 == 0:
            few = Batch(batch.buffer, batch.offsets[:64], batch.lengths[:64])
            expected = run_plain(few.packets(), tables, copy_state(state), tag, line)
            compiled = run_compiled(few, tables, copy_state(state), tag, line=line)
            assert compiled == expected, (seed, number)
    return total


def test_a_hundred_thousand_broken_packets() -> None:
    total = fuzz(seed=5, batches=25)
    ways = np.delete(total, kernels.OVER_LIMIT)  # which the filters do not count
    assert (ways > 0).all()  # every way out of the filters was taken


@pytest.mark.slow
def test_ten_million_broken_packets() -> None:
    assert 2_500 * BATCH > 10_000_000
    assert (fuzz(seed=6, batches=2_500) > 0).all()


def test_what_lies_around_a_packet_does_not_matter() -> None:
    """The same packets in other surroundings give the same answer: nothing beyond them is read."""
    rng = np.random.default_rng(2)
    tables, state = some_tables(rng), some_state(rng)
    batch = broken(templates(rng, tables, 200), rng, BATCH)
    outcome = run_compiled(batch, tables, copy_state(state))
    for filling in (0, 1, 255):
        other = np.full_like(batch.buffer, filling)
        for at, length in zip(batch.offsets, batch.lengths, strict=True):
            other[at : at + length] = batch.buffer[at : at + length]
        moved = Batch(other, batch.offsets, batch.lengths)
        assert run_compiled(moved, tables, copy_state(state)) == outcome


def test_nothing_is_read_behind_a_buffer() -> None:
    """A packet ends where memory that may be read ends: reading on would end this process."""
    rng = np.random.default_rng(3)
    tables, state = some_tables(rng), some_state(rng)
    batch = broken(templates(rng, tables, 200), rng, 4_000)
    page = mmap.PAGESIZE
    guarded = mmap.mmap(-1, 2 * page)
    memory = np.frombuffer(guarded, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    behind = ctypes.c_void_p(memory.ctypes.data + page)
    assert libc.mprotect(behind, ctypes.c_size_t(page), 0) == 0
    try:
        for packet in batch.packets():
            memory[page - len(packet) : page] = np.frombuffer(packet, np.uint8)
            one = Batch(
                memory, np.array([page - len(packet)], np.int64), np.array([len(packet)], np.int64)
            )
            run_compiled(one, tables, copy_state(state))
    finally:
        readable = mmap.PROT_READ | mmap.PROT_WRITE
        assert libc.mprotect(behind, ctypes.c_size_t(page), readable) == 0
        del memory, one
        guarded.close()


def test_offsets_and_lengths_beyond_the_buffer_are_malformed() -> None:
    rng = np.random.default_rng(4)
    tables, state = some_tables(rng), some_state(rng)
    buffer = templates(rng, tables, 1).buffer
    size = len(buffer)
    offsets = np.array([-1, size, size - 39, 0, 2**62, 0, -(2**62)])
    lengths = np.array([40, 40, 40, size + 1, 2**62, -5, 2**62])
    outcome = run_compiled(Batch(buffer, offsets, np.minimum(lengths, 10**6)), tables, state)
    assert outcome.counts[kernels.MALFORMED] == 7
    assert not outcome.delivered
