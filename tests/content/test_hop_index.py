"""Who wants an event: the index answers as a plain look at every subscription does."""

from __future__ import annotations

from typing import Any

import benchmarks.linked_hops as linked_module
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.content import hop_index, named_matcher
from distributary.content.hop_index import HopIndex
from distributary.content.messages import Name
from distributary.content.tables import MatchIndex
from distributary.matching import links as links_module
from distributary.matching import parse_filter
from distributary.matching.bitmap import Bitmap
from distributary.model import Filter
from tests.content.worlds import SCHEMA as PAIRS
from tests.content.worlds import box
from tests.matching.schemas import EVENTS, SCHEMA, conditions, residual_tests, single_tests

NEIGHBOURS = ["n0", "n1", "", "a neighbour"]
CLIENTS = ["ann", "n9", "ben"]
KEYS = [SCHEMA.keys(event) for event in EVENTS[::7]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few filters are enough for several bitmaps and trees, full links and new numbers."""
    monkeypatch.setattr(links_module, "MOST_RECENT", 3)
    monkeypatch.setattr(linked_module, "_MOST_LINKS", 3)
    monkeypatch.setattr(named_matcher, "MOST_COMPILED", 5)
    monkeypatch.setattr(named_matcher, "_SPARE_NUMBERS", 2)


def filters() -> st.SearchStrategy[Filter]:
    texts = conditions(st.one_of(single_tests(), residual_tests()))
    return texts.map(lambda text: parse_filter(text, SCHEMA))


def changes() -> st.SearchStrategy[list[tuple[Filter, str] | int]]:
    """Subscriptions, and which of those that are there end."""
    hops = st.sampled_from([*NEIGHBOURS, *CLIENTS])
    return st.lists(st.one_of(st.tuples(filters(), hops), st.integers(0, 30)), max_size=25)


@given(changes(), st.sampled_from([None, *NEIGHBOURS]))
@settings(max_examples=90)
def test_the_hops_found_are_those_with_a_matching_subscription(
    changes: list[tuple[Filter, str] | int], but: str | None
) -> None:
    counted, plain = HopIndex(SCHEMA), MatchIndex(SCHEMA)
    linked = linked_module.LinkedHops(SCHEMA, set(NEIGHBOURS))
    there: dict[Name, tuple[Filter, str]] = {}
    for number, change in enumerate(changes):
        if isinstance(change, tuple):
            name = Name("b", number)
            there[name] = change
            for index in (counted, plain, linked):
                index.add(name, *change)
        elif there:
            name = list(there)[change % len(there)]
            _, hop = there.pop(name)
            for index in (counted, plain, linked):
                index.remove(name, hop)
        if number % 3 == 0:
            found = [set(each.find_hops(KEYS[number], but)) for each in (counted, plain, linked)]
            assert found[0] == found[1] == found[2]
    for keys in KEYS:
        wanted = [hop for filter, hop in there.values() if hop != but and filter.matches(keys)]
        for index in (counted, plain, linked):
            hops = index.find_hops(keys, but)
            assert len(hops) == len(set(hops))
            assert set(hops) == set(wanted)
        assert counted.count_hops(keys, but) == {hop: wanted.count(hop) for hop in wanted}
        for hop in {*NEIGHBOURS, *CLIENTS} - {but}:
            assert counted.wants(keys, hop) == plain.wants(keys, hop) == (hop in wanted)


@given(changes(), st.sampled_from([0, 2, 32]))
@settings(max_examples=90)
def test_the_names_recalled_are_those_of_the_matching_subscriptions_of_a_client(
    changes: list[tuple[Filter, str] | int], few: int
) -> None:
    index = HopIndex(SCHEMA)
    there: dict[Name, tuple[Filter, str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hop_index, "_FEW_FOUND", few)
        for number, change in enumerate(changes):
            if isinstance(change, tuple):
                name = Name("b", number)
                there[name] = change
                index.add(name, *change)
            elif there:
                name = list(there)[change % len(there)]
                index.remove(name, there.pop(name)[1])
            keys = KEYS[number % len(KEYS)]
            wanted = {
                hop: [n for n, (f, of) in there.items() if of == hop and f.matches(keys)]
                for hop in CLIENTS
            }
            for hop in CLIENTS:
                assert index.recall_names(keys, hop) in (None, wanted[hop])
            counts = index.count_hops(keys, None)
            for hop in CLIENTS:
                names = index.recall_names(keys, hop)
                assert (names is None) == (sum(counts.values()) > few)
                assert names in (None, wanted[hop])


def test_a_matcher_with_many_changes_keeps_no_trace_of_removed_filters() -> None:
    index = HopIndex(PAIRS)
    index.add(Name("b", 0), box((0, 3)), "ann")
    for number in range(1, 200):
        index.add(Name("b", number), box((0, 6)), f"client {number}")
        assert index.count_hops((1, 1), None) == {"ann": 1, f"client {number}": 1}
        index.remove(Name("b", number), f"client {number}")
    assert len(index) == 1
    assert len(index._filters.names) < 10
    assert len(index._filters.tags) < 20
    assert len(index._hops.names) < 5


def test_a_change_compiles_few_filters_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[int] = []
    compile_filters = Bitmap.of

    def count(numbers: list[int], *args: Any, **options: Any) -> Bitmap:
        compiled.append(len(numbers))
        return compile_filters(numbers, *args, **options)

    monkeypatch.setattr(named_matcher, "MOST_COMPILED", 100)
    monkeypatch.setattr(Bitmap, "of", count)
    index = HopIndex(PAIRS)
    for number in range(2_000):
        index.add(Name("b", number), box((number % 6, number % 6 + 1)), "ann")
        if number % 7 == 0:
            index.find_hops((1, 1), None)
    assert index.count_hops((1, 1), None) == {"ann": len(range(1, 2_000, 6))}
    assert len(compiled) > 20
    assert max(compiled) <= 100
