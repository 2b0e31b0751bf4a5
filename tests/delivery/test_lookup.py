"""A receiver's view of a directory beside the directory itself, however late blocks come."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.directory_log import DirectoryLog
from distributary.delivery.directory_wire import (
    FlowEntry,
    Place,
    Record,
    decode_block,
    decode_record,
    encode_record,
    receiver_key,
)
from distributary.delivery.lookup import DirectoryView
from distributary.delivery.receiver_params import ReceiverParams

from .plans import random_plan

ROOM = 200
HERE = receiver_key("receiver 0")
FLOWS = [f"flow {number}" for number in range(12)]
WISHES = {f"receiver {r}": FLOWS[r : r + 7] for r in range(0, 8, 2)}


def view_of(seed: int = 0) -> DirectoryView:
    counts = np.zeros(kernels.COUNTS, np.int64)
    return DirectoryView(HERE, ReceiverParams(), np.random.default_rng(seed), counts)


def true_route(log: DirectoryLog, name: str) -> FlowEntry | None:
    number = log.directory.number_of(name)
    entry = None if number is None else log._entry(number)
    if entry is None:
        return None
    places = usable(entry.places)
    upcoming = None if entry.upcoming is None else usable(entry.upcoming)
    return entry._replace(places=places, upcoming=upcoming) if places or upcoming else None


def usable(places: tuple[Place, ...]) -> tuple[Place, ...]:
    """Places for all who join a group, or for the receiver of the view."""
    return tuple(place for place in places if place.group is not None or place.receiver == HERE)


class Channel:
    """A directory that changes, and one view of it, which hears records and blocks late."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.log = DirectoryLog(ROOM)
        self.view = view_of(int(rng.integers(100)))
        self.wanted: set[str] = set()
        self.records: list[tuple[int, Record]] = []
        self.blocks: list[tuple[int, bytes]] = []
        self.written = self.now = 0
        self.tell(self.log.prepare(random_plan(WISHES, rng)))
        self.records.clear()
        self.view.begin(self.log.blocks, self.log.record, 0.0)

    def tell(self, records: list[Record]) -> None:
        for record in records:
            self.written += 1
            kind, body = encode_record(record)
            self.records.append((self.written, decode_record(kind, body)))
        assert self.written == self.log.record

    def step(self, what: int) -> None:
        rng, log, view = self.rng, self.log, self.view
        self.now += 1
        if what == 0:
            self.tell(log.prepare(random_plan(WISHES, rng)))
        elif what == 1 and log.directory.following is not None:
            self.tell(log.switch(lambda stream: stream)[1])
        elif what == 2 and log.directory.following is not None and log.directory.version:
            self.tell(log.cancel())
        elif what == 3:
            name = str(rng.choice([*FLOWS, "nobody's"]))
            self.wanted.add(name)
            view.want([name], float(self.now))
        elif what == 4 and self.wanted:
            name = str(rng.choice(sorted(self.wanted)))
            self.wanted.discard(name)
            view.forget([name])
        elif what == 5:
            view.resize(log.blocks, float(self.now))
            for block in view.due(float(self.now)):
                self.blocks += log.bodies_of(block)
        elif what == 6 and self.records:
            view.take_record(*self.records.pop(0))
        elif what == 7 and self.blocks:
            count, body = self.blocks.pop(int(rng.integers(len(self.blocks))))
            view.take_block(decode_block(body, count))

    def hear_all(self) -> None:
        self.blocks.clear()
        while self.records:
            self.step(6)
        while not self.view.complete or self.view.next_at() < float("inf"):
            self.step(5)
            while self.blocks:
                self.step(7)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 7), max_size=60))
@example(2945658, [1, 3, 5, 0, 0, 0, 0, 7])  # in a session for others, by unicast to another
def test_a_view_agrees_with_the_directory_in_the_end(seed: int, steps: list[int]) -> None:
    channel = Channel(np.random.default_rng(seed))
    for what in steps:
        channel.step(what)
    channel.hear_all()
    truth = {name: true_route(channel.log, name) for name in channel.wanted}
    assert channel.view.routes == truth


@given(st.integers(0, 2**32), st.lists(st.integers(0, 7), max_size=60))
def test_a_view_that_lost_records_starts_over(seed: int, steps: list[int]) -> None:
    channel = Channel(np.random.default_rng(seed))
    for at, what in enumerate(steps):
        channel.step(what)
        if at == len(steps) // 2 and channel.records:
            number, _ = channel.records.pop()
            channel.records.clear()
            channel.blocks.clear()
            channel.view.start_over(number, float(channel.now))
    channel.hear_all()
    truth = {name: true_route(channel.log, name) for name in channel.wanted}
    assert channel.view.routes == truth


def test_a_change_names_only_the_flows_that_it_moves() -> None:
    log = DirectoryLog(1_200)
    rng = np.random.default_rng(5)
    plan = random_plan(WISHES, rng)
    log.prepare(plan)
    log.switch(lambda stream: 0)
    assert [type(record).__name__ for record in log.prepare(plan)] == ["ReadyRecord"]
    assert log.touched() == ()


def test_blocks_grow_with_the_directory() -> None:
    log = DirectoryLog(ROOM)
    wanted = {"ann": [f"flow {number}" for number in range(500)]}
    log.prepare(random_plan(wanted, np.random.default_rng(1)))
    bodies = [body for block in range(log.blocks) for _, body in log.bodies_of(block)]
    assert log.blocks >= 128
    assert max(map(len, bodies)) <= ROOM
    entries = [
        entry
        for block in range(log.blocks)
        for count, body in log.bodies_of(block)
        for entry in decode_block(body, count).entries
    ]
    assert len({entry.key for entry in entries}) == 500
