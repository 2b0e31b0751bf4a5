"""The search tree: the boxes it finds, by trying each, and its steps, by its plain twin."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributary.matching import parse_filter
from distributary.matching._tree_reference import PlainTree
from distributary.matching.axes import Axes
from distributary.matching.tree import CodedBoxes, SearchTree, TreeOptions
from distributary.matching.trits import Annotation, Trits, as_mask, as_words
from distributary.model import Box
from tests.matching.schemas import EVENTS, SCHEMA, SMALL, SMALL_WORLD, conditions, small_tests

OPTIONS = [TreeOptions(*flags) for flags in product([False, True], repeat=3)]
KEYS = [SCHEMA.keys(event) for event in EVENTS[::17]]
N_LINKS = 70


@st.composite
def coded_boxes(draw: st.DrawFn) -> CodedBoxes:
    """Boxes on a few small axes, of any tests, some with codes that no event can have."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    ranges, possible = [], []
    for size in sizes:
        sets = st.sets(st.integers(0, size - 1), min_size=1, max_size=size)
        singles = st.integers(0, size - 1).map(lambda code: {code})
        found = draw(st.lists(st.one_of(singles, sets), min_size=1, max_size=4))
        ranges.append([_as_ranges(codes) for codes in found])
        can_be = draw(st.sets(st.integers(0, size - 1), min_size=1))
        possible.append(np.isin(np.arange(size), list(can_be)))
    row = st.tuples(*(st.integers(0, len(found)) for found in ranges))
    rows = draw(st.lists(row, max_size=25))
    given_tests = np.array(rows, np.int32).reshape(-1, len(sizes))
    return CodedBoxes.of_tests(given_tests, ranges, possible)


def _as_ranges(codes: set[int]) -> tuple[tuple[int, int], ...]:
    starts = [code for code in sorted(codes) if code - 1 not in codes]
    stops = [code + 1 for code in sorted(codes) if code + 1 not in codes]
    return tuple(zip(starts, stops, strict=True))


def every_event(boxes: CodedBoxes) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    codes = [np.flatnonzero(possible) for possible in boxes.possible]
    return np.array(list(product(*codes)), np.int32)


def boxes_of(boxes: CodedBoxes, codes: np.ndarray[tuple[int], np.dtype[np.int32]]) -> list[int]:
    def passes(test: int, code: int) -> bool:
        return test == 0 or any(low <= code < high for low, high in boxes.codes_of(test))

    return [
        box
        for box, tests in enumerate(boxes.tests)
        if all(passes(test, code) for test, code in zip(tests, codes, strict=True))
    ]


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=40, deadline=None)
@given(coded_boxes())
def test_the_tree_finds_the_boxes_in_the_steps_of_its_twin(
    options: TreeOptions, boxes: CodedBoxes
) -> None:
    tree = SearchTree(boxes, options)
    plain = PlainTree(tree)
    events = every_event(boxes)
    offsets, listed, steps = tree.match_all(events)
    counts, _ = tree.count(events)
    for row, codes in enumerate(events):
        found, taken = plain.match(codes)
        assert found == boxes_of(boxes, codes)
        assert sorted(listed[offsets[row] : offsets[row + 1]]) == found
        assert (counts[row], steps[row]) == (len(found), taken)


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(conditions(), max_size=12))
def test_the_tree_finds_the_boxes_of_filters(options: TreeOptions, texts: list[str]) -> None:
    boxes = [box for text in texts for box in parse_filter(text, SCHEMA).boxes]
    axes = Axes.of(boxes, SCHEMA)
    tree = SearchTree.of(boxes, axes, options)
    for keys in KEYS:
        found, _ = tree.match(axes.code(keys))
        assert list(found) == [at for at, box in enumerate(boxes) if box.matches(keys)]


@settings(max_examples=60, deadline=None)
@given(st.lists(conditions(small_tests()), max_size=12), st.sampled_from(OPTIONS))
def test_the_tree_finds_the_boxes_of_a_world_with_domains(
    texts: list[str], options: TreeOptions
) -> None:
    boxes = [box for text in texts for box in parse_filter(text, SMALL).boxes]
    axes = Axes.of(boxes, SMALL)
    tree = SearchTree.of(boxes, axes, options)
    for keys in SMALL_WORLD:
        found, _ = tree.match(axes.code(keys))
        assert list(found) == [at for at, box in enumerate(boxes) if box.matches(keys)]


@settings(max_examples=100, deadline=None)
@given(coded_boxes(), st.booleans())
def test_each_optimisation_saves_steps_or_changes_none(boxes: CodedBoxes, factoring: bool) -> None:
    events = every_event(boxes)

    def steps(trivial_tests: bool, delayed_branching: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
        options = TreeOptions(factoring, trivial_tests, delayed_branching)
        return SearchTree(boxes, options).count(events)[1]

    assert (steps(True, False) <= steps(False, False)).all()
    assert (steps(False, True) <= steps(False, False)).all()
    assert (steps(True, True) <= steps(True, False)).all()


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=40, deadline=None)
@given(coded_boxes(), st.randoms(use_true_random=False))
def test_link_matching_takes_the_steps_of_its_twin(
    options: TreeOptions, boxes: CodedBoxes, random: object
) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    tree = SearchTree(boxes, options)
    links = rng.choice([-1, 0, 1, 2, 63, 64, 69], len(boxes)).astype(np.int32)
    plain = PlainTree(tree)
    plain.annotate(links.tolist(), N_LINKS)
    annotation = Annotation(tree, links, N_LINKS)
    check_links(annotation, plain, rng)
    if len(boxes):
        gone = np.unique(rng.integers(0, len(boxes), 3))
        annotation.retire(gone)
        plain.annotate(annotation.links.tolist(), N_LINKS)
        check_links(annotation, plain, rng)
        anew = Annotation(tree, annotation.links, N_LINKS)
        assert all(anew.trits(v) == annotation.trits(v) for v in range(len(tree)))


def check_links(annotation: Annotation, plain: PlainTree, rng: np.random.Generator) -> None:
    events = every_event(plain.boxes)
    mask = as_mask(rng.integers(0, 2**64, 2, np.uint64)) & (1 << N_LINKS) - 1
    masks = np.tile(as_words(mask, N_LINKS), (len(events), 1))
    found, steps = annotation.search(events, masks)
    for row, codes in enumerate(events):
        trits, taken = plain.links(codes, Trits(N_LINKS, maybe=mask))
        wanted = {int(annotation.links[box]) for box in boxes_of(plain.boxes, codes)} - {-1}
        assert as_mask(found[row]) == trits.yes == sum(1 << link for link in wanted) & mask
        assert steps[row] == taken


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=25, deadline=None)
@given(coded_boxes())
def test_what_a_node_says_is_so_for_every_event_that_comes_by(
    options: TreeOptions, boxes: CodedBoxes
) -> None:
    """Y: somebody behind the link matches, N: nobody does, among the boxes below the node."""
    tree = SearchTree(boxes, options)
    plain = PlainTree(tree)
    links = [box % 3 for box in range(len(boxes))]
    plain.annotate(links, 3)
    for codes in every_event(boxes):
        root = plain.root(codes)
        nodes = [root] if root else []
        for node in nodes:
            nodes += node.children(codes)
            below = [node]
            for each in below:
                below += each.children(codes)
            wanted = {links[box] for each in below for box in each.boxes}
            for link, trit in enumerate(str(node.trits)):
                assert (trit, link in wanted) not in [("Y", False), ("N", True)]


def test_many_values_are_looked_up_and_few_of_many_searched_for() -> None:
    """Equality tests far apart are found by bisection, near ones by a table."""
    values = [1, 2, 3, 500, 900, 901, 2000]
    given_tests = np.array([[1 + at, 0] for at in range(len(values))] + [[0, 1]], np.int32)
    ranges = [[((value, value + 1),) for value in values], [((1, 2),)]]
    boxes = CodedBoxes.of_tests(given_tests, ranges, [np.ones(2001, bool), np.ones(2, bool)])
    tree = SearchTree(boxes, TreeOptions(factoring=False))
    codes = np.array([[code, b] for code in range(2001) for b in range(2)], np.int32)
    counts, _ = tree.count(codes)
    assert counts.tolist() == [(code in values) + b for code, b in codes.tolist()]


def test_no_boxes_and_a_box_without_tests() -> None:
    axes = Axes.of([], SCHEMA)
    event = axes.code(KEYS[0])
    for options in OPTIONS:
        assert SearchTree.of([], axes, options).match(event)[0].tolist() == []
        assert SearchTree.of([Box(())] * 3, axes, options).match(event)[0].tolist() == [0, 1, 2]
    assert SearchTree.of([], axes).match(event)[1] == 0


def test_a_code_outside_its_axis_is_refused() -> None:
    axes = Axes.of([], SCHEMA)
    tree = SearchTree.of([], axes)
    with pytest.raises(ValueError, match="beyond the end of its axis"):
        tree.match(np.array([0, 0, 9, 0, 0, 0, 0], np.int32))
    with pytest.raises(ValueError, match="2 attributes, not 7"):
        tree.count(np.zeros((3, 2), np.int32))
