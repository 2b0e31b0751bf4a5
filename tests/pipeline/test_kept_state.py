"""What a stream knows after any batches and restarts, against all rows at once; without Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.pipeline import buckets
from distributary.pipeline.buckets import BucketTable
from distributary.pipeline.kept_state import BatchRows, KeptState, rate_span
from distributary.pipeline.kept_tables import ACTIONS, IDS, SLOTS
from distributary.pipeline.ledger import Ledger, LedgerState
from tests.pipeline.stream_process import small_job
from tests.pipeline.test_buckets import as_table, plain_last

Row = dict[str, Any]
MINUTE = 60_000_000
NAMES = st.sampled_from(["a", "b", "c"])
ACTIONS_SEEN = st.lists(
    st.fixed_dictionaries(
        {"receiver": NAMES, "flow": NAMES, "ts": st.integers(0, 1), "on": st.booleans()}
    ),
    max_size=8,
)
MESSAGES = st.dictionaries(
    st.tuples(NAMES, st.integers(0, 150)), st.integers(1, 3), max_size=6
)  # by flow and minute
BATCHES = st.lists(st.tuples(ACTIONS_SEEN, MESSAGES, st.booleans()), min_size=1, max_size=9)


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "SMALLEST_RUN", 2)
        patch.setattr(buckets, "SLICE_ROWS", 3)
        # Only what is in the files counts here, and a disk takes longer than all of it.
        patch.setattr(os, "fsync", lambda file: None)
        yield


def key_of(*names: str) -> int:
    """One of few, so that pairs share keys."""
    return (crc32("/".join(names).encode()) % 5 - 2) * 2**61


class PlainStream:
    """All rows of a stream, and what follows from them."""

    def __init__(self) -> None:
        self.actions: list[Row] = []
        self.messages = Counter[tuple[str, int]]()
        self.latest, self.first = -1, -1

    def take_messages(self, messages: dict[tuple[str, int], int]) -> None:
        self.messages.update(messages)
        minutes = [minute for _, minute in self.messages]
        self.latest, self.first = max(minutes, default=-1), min(minutes, default=-1)

    def rates(self, seconds: float) -> dict[str, float]:
        wanted = {flow for (_, flow), row in plain_last(self.actions).items() if row["on"]}
        totals = Counter[str]()
        for (flow, minute), number in self.messages.items():
            totals[flow] += number * (minute >= self.latest - 60)
        return {flow: max(totals[flow], 1) / seconds for flow in wanted}


@settings(max_examples=30)
@given(batches=BATCHES)
def test_batches_and_restarts_do_not_change_what_is_known(
    batches: list[tuple[list[Row], dict[tuple[str, int], int], bool]],
) -> None:
    plain = PlainStream()
    with TemporaryDirectory() as folder:
        job = small_job(Path(folder))
        with Ledger(job.out).open() as ledger:
            kept = KeptState(job, ledger, lambda name: None)
            for number, (actions, messages, restart) in enumerate(batches):
                file = "102"[number % 3]  # a later batch may have an earlier place
                for line, row in enumerate(actions):
                    row |= {"file": file, "block": 0, "line": line}
                    row["key"] = key_of(row["receiver"], row["flow"])
                plain.actions += actions
                plain.take_messages(messages)
                apply_batch(kept, ledger, actions, messages, plain)
                if restart:
                    kept = KeptState(job, ledger, lambda name: None)
                check_demand(kept, ledger.state, plain)


def test_a_batch_reads_no_table_and_looks_up_only_actions_at_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = PlainStream(), []
    plain.take_messages({("a", 5): 2})

    def act(*rows: tuple[str, int, bool]) -> None:
        actions = [
            {"receiver": receiver, "flow": "a", "ts": ts, "on": on, "file": "0", "block": 0}
            | {"line": line, "key": key_of(receiver, "a")}
            for line, (receiver, ts, on) in enumerate(rows)
        ]
        apply_batch(kept, ledger, actions, {("a", 5): 2}, plain)

    def find(table: BucketTable, keys: Any) -> Any:
        asked.append(keys.tolist())
        return find_stored(table, keys)

    with Ledger(small_job(tmp_path).out).open() as ledger:
        kept = KeptState(small_job(tmp_path), ledger, lambda name: None)
        act(("a", 1, True), ("b", 1, True), ("c", 1, True))
        find_stored = BucketTable.find
        monkeypatch.setattr(BucketTable, "read", lambda *_: pytest.fail("a whole table"))
        monkeypatch.setattr(BucketTable, "find", find)
        act(("a", 2, False), ("b", 1, True), ("new", 1, True))
        assert asked == []
        act(("c", 1, False))
        assert asked == [[key_of("c", "a")]]


def apply_batch(
    kept: KeptState,
    ledger: Ledger,
    actions: list[Row],
    messages: dict[tuple[str, int], int],
    plain: PlainStream,
) -> None:
    number = ledger.state.batch + 1
    folder = ledger.new_folder(number)
    slots = [
        {"key": key_of(flow), "flow": flow, "slot": minute * MINUTE, "messages": messages}
        | {"bytes": None, "sized": 0}
        for (flow, minute), messages in messages.items()
    ]
    rows = BatchRows(
        as_table(ACTIONS, list(plain_last(actions).values())),
        as_table(SLOTS, slots),
        IDS.schema.empty_table(),
    )
    state = replace(ledger.state, batch=number, folder=folder.name, slot_us=MINUTE)
    if plain.latest >= 0:
        state = replace(state, first=plain.first * MINUTE, latest=plain.latest * MINUTE)
    state, _ = kept.apply(rows, state, folder)
    ledger.commit(replace(state, entry={"batch": number}))


def check_demand(kept: KeptState, state: LedgerState, plain: PlainStream) -> None:
    demand = kept.demand.demand()
    expected = {pair for pair, row in plain_last(plain.actions).items() if row["on"]}
    if demand is None:
        assert not expected
        return
    interest = demand.interest
    pairs = {
        (interest.receivers[receiver], flow)
        for at, flow in enumerate(interest.flows)
        for receiver in interest.receivers_of(at)
    }
    assert pairs == expected
    span = rate_span(state, small_job(Path()))
    seconds = (span[1] - span[0]).total_seconds() if span else 3600.0
    assert dict(zip(interest.flows, demand.rate, strict=True)) == plain.rates(seconds)
