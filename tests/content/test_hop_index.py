"""Who wants an event: the index answers as a plain look at every subscription does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.content import hop_index, named_matcher
from distributary.content.hop_index import HopIndex, HopMatcher
from distributary.content.messages import Name
from distributary.content.tables import MatchIndex
from distributary.matching import links as links_module
from distributary.matching import parse_filter
from distributary.model import Filter
from tests.content.worlds import SCHEMA as PAIRS
from tests.content.worlds import box
from tests.matching.schemas import EVENTS, SCHEMA, conditions, residual_tests, single_tests

NEIGHBOURS = ["n0", "n1", "", "a neighbour"]
CLIENTS = ["ann", "n9", "ben"]
KEYS = [SCHEMA.keys(event) for event in EVENTS[::7]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few filters are enough for link matching, several trees, full links and new numbers."""
    monkeypatch.setattr(links_module, "MOST_RECENT", 3)
    monkeypatch.setattr(hop_index, "_MOST_LINKS", 3)
    monkeypatch.setattr(named_matcher, "_SPARE_NUMBERS", 2)


def filters() -> st.SearchStrategy[Filter]:
    texts = conditions(st.one_of(single_tests(), residual_tests()))
    return texts.map(lambda text: parse_filter(text, SCHEMA))


def changes() -> st.SearchStrategy[list[tuple[Filter, str] | int]]:
    """Subscriptions, and which of those that are there end."""
    hops = st.sampled_from([*NEIGHBOURS, *CLIENTS])
    return st.lists(st.one_of(st.tuples(filters(), hops), st.integers(0, 30)), max_size=25)


@given(changes(), st.sampled_from([None, *NEIGHBOURS]), st.sampled_from([0, 4, 1_000]))
@settings(max_examples=90)
def test_the_hops_found_are_those_with_a_matching_subscription(
    changes: list[tuple[Filter, str] | int], but: str | None, many: int
) -> None:
    fast, plain = HopIndex(SCHEMA, set(NEIGHBOURS), many=many), MatchIndex(SCHEMA)
    counted = HopMatcher(SCHEMA)
    there: dict[Name, tuple[Filter, str]] = {}
    for number, change in enumerate(changes):
        if isinstance(change, tuple):
            name = Name("b", number)
            there[name] = change
            for index in (fast, plain, counted):
                index.add(name, *change)
        elif there:
            name = list(there)[change % len(there)]
            _, hop = there.pop(name)
            for index in (fast, plain, counted):
                index.remove(name, hop)
        if number % 3 == 0:
            assert set(fast.find_hops(KEYS[number], but)) == set(plain.find_hops(KEYS[number], but))
    for keys in KEYS:
        wanted = [hop for filter, hop in there.values() if hop != but and filter.matches(keys)]
        found = fast.find_hops(keys, but)
        assert len(found) == len(set(found))
        assert set(found) == set(plain.find_hops(keys, but)) == set(wanted)
        assert counted.count_hops(keys, but) == {hop: wanted.count(hop) for hop in wanted}
        for hop in {*NEIGHBOURS, *CLIENTS} - {but}:
            assert fast.wants(keys, hop) == plain.wants(keys, hop) == (hop in wanted)


def test_a_matcher_with_many_changes_keeps_no_trace_of_removed_filters() -> None:
    index = HopMatcher(PAIRS)
    index.add(Name("b", 0), box((0, 3)), "ann")
    for number in range(1, 200):
        index.add(Name("b", number), box((0, 6)), f"client {number}")
        assert index.count_hops((1, 1), None) == {"ann": 1, f"client {number}": 1}
        index.remove(Name("b", number), f"client {number}")
    assert len(index) == 1
    assert len(index._filters.names) < 10
    assert len(index._filters.tags) < 20
    assert len(index._hops.names) < 5
