from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.files import fingerprint
from distributary.model import Demand, Interest, Rates
from distributary.pipeline import live_demand
from distributary.pipeline.live_demand import LiveDemand, Names

MOST = 2**61
names = st.sampled_from(["", "a", "b", "ä", "a b", "日本", "n" * 300])
times = st.one_of(st.integers(-3, 3), st.sampled_from([-MOST, MOST]))
pairs = st.tuples(names, names)
actions = st.dictionaries(pairs, st.tuples(times, st.booleans()), max_size=12)
messages = st.dictionaries(names, st.integers(0, 2**40), max_size=4)
batches = st.lists(st.tuples(actions, messages, st.booleans()), max_size=6)


def action_table(rows):
    return pa.table(
        {
            "receiver": pa.array([receiver for receiver, _ in rows], pa.string()),
            "flow": pa.array([flow for _, flow in rows], pa.string()),
            "ts": pa.array([time for time, _ in rows.values()], pa.int64()),
            "on": pa.array([on for _, on in rows.values()], pa.bool_()),
        }
    )


def message_table(totals):
    return pa.table(
        {
            "flow": pa.array(list(totals), pa.string()),
            "messages": pa.array(list(totals.values()), pa.int64()),
        }
    )


class PlainDemand:
    """The same with dictionaries of names."""

    def __init__(self) -> None:
        self.last, self.messages, self.seconds = {}, {}, 1.0

    def apply(self, rows, totals, seconds, newer_wins):
        before, ties = self.wanted, set()
        for pair, (time, on) in rows.items():
            known = self.last.get(pair)
            if known is not None and known[0] == time and known[1] != on:
                ties.add(pair)
                if not newer_wins:
                    continue
            if known is None or known[0] <= time:
                self.last[pair] = (time, on)
        self.messages.update(totals)
        self.seconds = seconds
        return self.wanted - before, before - self.wanted, ties

    @property
    def wanted(self):
        return {pair for pair, (_, on) in self.last.items() if on}

    def demand(self):
        if not self.wanted:
            return None
        rates = {flow: max(self.messages.get(flow, 0), 1) / self.seconds for _, flow in self.wanted}
        return Demand.of(Interest.from_pairs(self.wanted), Rates.from_mapping(rates))


def named(live, receiver, flow):
    listed = [
        (live.receivers.listed[r], live.flows.listed[f])
        for r, f in zip(receiver, flow, strict=True)
    ]
    assert len(set(listed)) == len(listed)
    return set(listed)


def assert_same_demand(one, other):
    assert (one is None) == (other is None)
    if one is not None:
        assert one.interest == other.interest
        assert one.rate.tolist() == other.rate.tolist()


@given(batches=batches)
def test_live_demand_changes_as_dictionaries_do(batches):
    live, plain = LiveDemand(), PlainDemand()
    for number, (rows, totals, newer_wins) in enumerate(batches):
        asked = set()

        def settle(table, asked=asked, newer_wins=newer_wins):
            assert not asked
            tied = zip(*(table[name].to_pylist() for name in ("receiver", "flow")), strict=True)
            asked.update(tied)
            return np.full(table.num_rows, newer_wins)

        seconds = 1.0 + number
        change = live.apply(action_table(rows), message_table(totals), seconds, settle)
        wanted, unwanted, ties = plain.apply(rows, totals, seconds, newer_wins)
        assert named(live, change.wanted_receiver, change.wanted_flow) == wanted
        assert named(live, change.unwanted_receiver, change.unwanted_flow) == unwanted
        assert asked == ties
        told = zip(change.flows, change.messages, strict=True)
        assert {live.flows.listed[flow]: count for flow, count in told} == totals
        assert live.pairs == len(plain.wanted)
        assert live.n_receivers == len({receiver for receiver, _ in plain.wanted})
        assert_same_demand(live.demand(), plain.demand())


@pytest.mark.parametrize("share", [0.0, 100.0])
@given(batches=batches, asked=st.sets(st.integers(0, 5)))
def test_fingerprints_are_those_of_the_whole_demand(share, batches, asked):
    """Also if pairs and names are put in their places one by one, after one batch or several."""
    live = LiveDemand()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_demand, "_FEW", share)
        patch.setattr(live_demand, "_MUCH", share)
        for number, (rows, totals, newer_wins) in enumerate(batches):
            live.apply(
                action_table(rows),
                message_table(totals),
                1.0 + number,
                lambda table, newer_wins=newer_wins: np.full(table.num_rows, newer_wins),
            )
            if number not in asked:
                continue
            found, demand = live.fingerprints(), live.demand()
            if demand is not None:
                rates = Rates(demand.interest.flows, demand.rate)
                assert found["interest"] == fingerprint(demand.interest)
                assert found["rates"] == fingerprint(rates)


@pytest.mark.parametrize("share", [0.0, 100.0])
@given(chunks=st.lists(st.lists(st.text(max_size=3), max_size=6), max_size=5))
def test_names_that_come_one_after_the_other_are_in_order(share, chunks):
    listed = Names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_demand, "_FEW", share)
        for chunk in chunks:
            for name in chunk:
                listed.number(name)
            assert listed.names_of(listed.sort()) == sorted(listed.listed)


@given(rows=actions, totals=messages, size=st.integers(1, 5))
def test_a_loaded_demand_is_the_one_that_was_applied(rows, totals, size):
    live, plain = LiveDemand(), PlainDemand()
    table = action_table(rows)
    chunks = [table.slice(first, size) for first in range(0, len(rows), size)]
    change = live.load(chunks, message_table(totals), 2.5)
    plain.apply(rows, totals, 2.5, newer_wins=True)
    assert named(live, change.wanted_receiver, change.wanted_flow) == plain.wanted
    assert_same_demand(live.demand(), plain.demand())


def test_a_pair_that_is_stored_twice_is_refused():
    rows = {("ann", "a"): (5, True)}
    again = {("ann", "a"): (5, False)}
    with pytest.raises(ValueError, match="stored twice"):
        LiveDemand().load([action_table(rows), action_table(again)], None, 1.0)


def test_a_window_without_length_is_refused():
    with pytest.raises(ValueError, match="more than 0 seconds"):
        LiveDemand().apply(None, None, 0.0, lambda rows: np.zeros(0, np.bool_))
