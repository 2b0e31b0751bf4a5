"""Link matching: exactly the links with a filter that matches, while filters come and go."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributary.matching import links as links_module
from distributary.matching import parse_filter
from distributary.matching._tree_reference import PlainLinkMatcher
from distributary.matching.axes import Axes, event_table
from distributary.matching.links import LinkMatcher
from distributary.matching.tree import SearchTree, TreeOptions
from distributary.matching.trits import Annotation, Trits, as_mask, as_words
from distributary.model import Attribute, AttributeKind, Filter, Schema
from tests.matching.schemas import (
    EVENTS,
    SCHEMA,
    SMALL,
    SMALL_WORLD,
    arrow_events,
    conditions,
    small_tests,
)

OPTIONS = [TreeOptions(*flags) for flags in product([False, True], repeat=3)]
FIVE = Schema(
    tuple(Attribute(f"a{at}", AttributeKind.INTEGER, frozenset(range(1, 5))) for at in range(1, 6))
)


@pytest.fixture(autouse=True)
def _few_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees form early, so that a few filters are enough to have several."""
    monkeypatch.setattr(links_module, "MOST_RECENT", 3)


class Both:
    """The matcher and its oracle, treated alike."""

    def __init__(self, schema: Schema, n_links: int, options: TreeOptions) -> None:
        self.fast = LinkMatcher(schema, n_links, options=options)
        self.plain = PlainLinkMatcher(schema, n_links)
        self.live: list[int] = []

    def add(self, filter: Filter, link: int) -> None:
        handle = self.fast.add(filter, link)
        assert handle == self.plain.add(filter, link)
        self.live.append(handle)

    def remove(self, at: int) -> None:
        handle = self.live.pop(at % len(self.live))
        self.fast.remove(handle)
        self.plain.remove(handle)
        with pytest.raises(KeyError):
            self.fast.remove(handle)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(conditions(small_tests()).map(lambda text: parse_filter(text, SMALL)), min_size=1),
    st.randoms(use_true_random=False),
    st.sampled_from(OPTIONS),
    st.sampled_from([1, 3, 64, 65, 130]),
)
def test_links_are_right_at_every_moment(
    filters: list[Filter], chance: random.Random, options: TreeOptions, n_links: int
) -> None:
    both = Both(SMALL, n_links, options)
    for _ in range(25):
        what = chance.random()
        if what < 0.6 or not both.live:
            both.add(chance.choice(filters), chance.randrange(n_links))
        elif what < 0.95:
            both.remove(chance.randrange(100))
        else:
            both.fast.fold()
        assert len(both.fast) == len(both.live)
        keys, mask = chance.choice(SMALL_WORLD), chance.getrandbits(n_links)
        assert both.fast.links(keys, mask) == both.plain.links(keys, mask)
    for keys in SMALL_WORLD:
        full = (1 << n_links) - 1
        assert both.fast.links(keys, full) == both.plain.links(keys, full)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(conditions().map(lambda text: parse_filter(text, SCHEMA)), max_size=10),
    st.sampled_from([2, 100]),
)
def test_a_table_of_events_gets_the_links_of_each(filters: list[Filter], n_links: int) -> None:
    events = EVENTS[::31]
    table = event_table(arrow_events(events), SCHEMA)
    both = Both(SCHEMA, n_links, TreeOptions())
    for at, found in enumerate(filters):
        both.add(found, at % n_links)
    mask = (1 << n_links) - 2
    words = both.fast.links_table(table, mask)
    assert words.shape == (len(events), max(1, -(-n_links // 64)))
    for row, event in enumerate(events):
        keys = SCHEMA.keys(event)
        assert as_mask(words[row]) == both.plain.links(keys, mask) == both.fast.links(keys, mask)


def test_the_event_of_the_slides_ends_with_nyn() -> None:
    """<2, 1, 3, 2, 3> at broker C with the mask NMM of P1's spanning tree goes to L2 alone.

    The text of the slides has the trits and edge labels of the picture but not which belong where,
    so the tree is not the slides'. It only goes the same way: the root refines the mask to NYM, and
    L3 turns out to be N some nodes further down.
    """
    wanted = [
        ("a1 IS NOT NULL OR a1 IS NULL", 1),
        ("a1 = 2 AND a2 = 1 AND a3 = 3 AND a4 = 2 AND a5 = 1", 2),
        ("a1 = 1 AND a2 = 2 AND a3 = 3 AND a5 = 3", 2),
        ("a1 = 2 AND a2 = 1 AND a3 = 3 AND a5 = 3", 0),
        ("a2 = 1 AND a4 = 2", 0),
        ("a1 = 2 AND a5 = 3", 1),
    ]
    boxes = [box for text, _ in wanted for box in parse_filter(text, FIVE).boxes]
    axes = Axes.of(boxes, FIVE)
    tree = SearchTree.of(boxes, axes, TreeOptions(factoring=False))
    annotation = Annotation(tree, np.array([link for _, link in wanted], np.int32), 3)
    assert str(Trits.parse("NMM").refine(annotation.trits(0))) == "NYM"
    event = axes.code(FIVE.keys({"a1": 2, "a2": 1, "a3": 3, "a4": 2, "a5": 3}))[np.newaxis]
    mask = Trits.parse("NMM").maybe
    found, steps = annotation.search(event, as_words(mask, 3)[np.newaxis])
    assert str(Trits(3, yes=as_mask(found[0]))) == "NYN"
    assert 1 < steps[0] < tree.match(event[0])[1]


def test_a_node_is_annotated_as_on_the_slide() -> None:
    """Children MYY for 1 and NYN for 3 and YYN for *: the node gets YYM.

    Its other codes have no child, which the slide passes over: the all-N branch changes nothing
    here, for * has a Y wherever both children do.
    """
    wanted = [
        ("a1 = 1 AND a2 = 1", 0),
        ("a1 = 1", 1),
        ("a1 = 1", 2),
        ("a1 = 3", 1),
        ("TRUE", 0),
        ("TRUE", 1),
    ]
    boxes = [box for text, _ in wanted for box in parse_filter(text, FIVE).boxes]
    links = np.array([link for _, link in wanted], np.int32)
    tree = SearchTree.of(boxes, Axes.of(boxes, FIVE), TreeOptions(factoring=False))
    annotation = Annotation(tree, links, 3)
    children = range(int(tree.nodes.first[0]), int(tree.nodes.first[1]))
    assert [str(annotation.trits(child)) for child in children] == ["YYN", "MYY", "NYN"]
    assert str(annotation.trits(0)) == "YYM"


def test_a_value_without_a_branch_counts_as_no() -> None:
    """Trap: two branches with Y are no Y for an event with a third value."""
    schema = Schema((Attribute("a", AttributeKind.INTEGER, frozenset({1, 2, 3})),))

    def root(*texts: str) -> str:
        boxes = [box for text in texts for box in parse_filter(text, schema).boxes]
        tree = SearchTree.of(boxes, Axes.of(boxes, schema), TreeOptions(factoring=False))
        return str(Annotation(tree, np.zeros(len(boxes), np.int32), 1).trits(0))

    assert root("a = 1", "a = 2") == "M"
    assert root("a = 1", "a = 2", "a = 3") == "M"  # the value may be missing
    assert root("a = 1", "a = 2", "a = 3", "a IS NULL") == "Y"
    assert root("a < 3", "a >= 2", "a IS NULL") == "Y"
    assert root("a < 2", "a = 3", "a IS NULL") == "M"


def test_a_removal_reaches_as_far_up_as_it_matters() -> None:
    boxes = [parse_filter("a1 = 1 AND a2 = 1", FIVE).boxes[0]] * 2
    tree = SearchTree.of(boxes, Axes.of(boxes, FIVE), TreeOptions(factoring=False))
    annotation = Annotation(tree, np.array([0, 0], np.int32), 1)
    assert annotation.retire(np.array([0])) == 1  # the other one keeps the leaf's Y
    assert str(annotation.trits(0)) == "M"
    assert annotation.retire(np.array([1])) == 3
    assert str(annotation.trits(0)) == "N"


def test_decided_links_cost_no_steps() -> None:
    matcher = LinkMatcher(FIVE, 3)
    keys = FIVE.keys({"a1": 1})
    assert matcher.links(keys, 0b111) == 0
    matcher.add(parse_filter("a1 = 1", FIVE), 1)
    matcher.fold()
    assert matcher.links(keys, 0) == 0
    assert matcher.steps == 0
    assert matcher.links(keys, 0b111) == 0b010
    assert matcher.steps > 0


def test_a_filter_that_nothing_matches_and_bad_arguments() -> None:
    matcher = LinkMatcher(FIVE, 2)
    handle = matcher.add(parse_filter("FALSE", FIVE), 0)
    matcher.fold()
    assert matcher.links(FIVE.keys({}), 0b11) == 0
    matcher.remove(handle)
    with pytest.raises(KeyError):
        matcher.remove(99)
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        matcher.add(parse_filter("TRUE", FIVE), 2)
    with pytest.raises(ValueError, match="different schemas"):
        matcher.add(parse_filter("TRUE", SMALL), 0)
    with pytest.raises(ValueError, match="more than 2 links"):
        matcher.links(FIVE.keys({}), 0b100)
