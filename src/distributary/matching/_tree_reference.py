"""The plain twins of the search tree and of link matching: recursive, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

from distributary.matching.tree import CodedBoxes, SearchTree, TreeOptions
from distributary.matching.trits import Trits
from distributary.model import Filter, Key, Schema

__all__ = ["PlainLinkMatcher", "PlainNode", "PlainTree"]

Ranges = list[tuple[int, int]]


@dataclass(slots=True)
class PlainNode:
    """One node; a leaf tests no attribute and has boxes."""

    attribute: int | None = None
    equal: dict[int, PlainNode] = field(default_factory=dict)
    others: list[tuple[Ranges, PlainNode]] = field(default_factory=list)
    star: PlainNode | None = None
    guard: tuple[int, Ranges] | None = None
    boxes: list[int] = field(default_factory=list)
    trits: Trits = Trits(0)  # noqa: RUF009  a frozen value

    def children(self, codes: Sequence[int]) -> list[PlainNode]:
        """The children that an event reaches."""
        if self.attribute is None:
            return []
        code = codes[self.attribute]
        found = [self.equal[code]] if code in self.equal else []
        found += [child for ranges, child in self.others if _has(ranges, code)]
        guard = self.star.guard if self.star is not None else None
        if self.star is not None and (guard is None or _has(guard[1], codes[guard[0]])):
            found.append(self.star)
        return found


class PlainTree:
    """The tree of the same boxes with the same order of attributes as a compiled one."""

    def __init__(self, tree: SearchTree) -> None:
        self.boxes: CodedBoxes = tree.boxes
        self.options: TreeOptions = tree.options
        self.index = [int(at) for at in tree.index]
        order = [int(at) for at in tree.order]
        self.roots: dict[tuple[int, ...], PlainNode] = {}
        for place in product(*(range(tree.sizes[at]) for at in self.index)):
            here = [box for box in range(len(self.boxes)) if self._is_at(box, place)]
            if here:
                self.roots[place] = self._grow(here, order)

    def _is_at(self, box: int, place: tuple[int, ...]) -> bool:
        tests = [int(self.boxes.tests[box, at]) for at in self.index]
        return all(
            test == 0 or _has(self.boxes.codes_of(test), code)
            for test, code in zip(tests, place, strict=True)
        )

    def _grow(self, boxes: list[int], order: list[int]) -> PlainNode:
        if not order:
            return PlainNode(boxes=boxes)
        at, rest = order[0], order[1:]
        branches: dict[int, list[int]] = {}
        for box in boxes:
            branches.setdefault(int(self.boxes.tests[box, at]), []).append(box)
        if self.options.trivial_tests and set(branches) == {0}:
            return self._grow(boxes, rest)
        node = PlainNode(attribute=at)
        for test, below in sorted(branches.items()):
            child = self._grow(below, rest)
            ranges = self.boxes.codes_of(test)
            if test == 0:
                child.guard = self._guard(below, rest)
                node.star = child
            elif sum(high - low for low, high in ranges) == 1:
                node.equal[ranges[0][0]] = child
            else:
                node.others.append((ranges, child))
        return node

    def _guard(self, boxes: list[int], order: list[int]) -> tuple[int, Ranges] | None:
        """The first test that all the boxes share."""
        for at in order if self.options.delayed_branching else ():
            tests = {int(self.boxes.tests[box, at]) for box in boxes}
            if len(tests) == 1 and tests != {0}:
                return at, self.boxes.codes_of(*tests)
        return None

    def root(self, codes: Sequence[int]) -> PlainNode | None:
        """The node where the search for an event begins."""
        return self.roots.get(tuple(int(codes[at]) for at in self.index))

    def match(self, codes: Sequence[int]) -> tuple[list[int], int]:
        """The boxes that an event is in, and the nodes visited."""

        def visit(node: PlainNode) -> tuple[list[int], int]:
            boxes, steps = list(node.boxes), 1
            for child in node.children(codes):
                more, taken = visit(child)
                boxes += more
                steps += taken
            return boxes, steps

        root = self.root(codes)
        boxes, steps = visit(root) if root else ([], 0)
        return sorted(boxes), steps

    def annotate(self, links: Sequence[int], n_links: int) -> None:
        """Give every node its trits; `links` has the link of each box, -1 for none."""
        for root in self.roots.values():
            self._annotate(root, links, n_links)

    def _annotate(self, node: PlainNode, links: Sequence[int], n_links: int) -> Trits:
        nothing = Trits(n_links)
        if node.attribute is None:
            wanted = {links[box] for box in node.boxes} - {-1}
            node.trits = Trits(n_links, yes=sum(1 << link for link in wanted))
            return node.trits
        equal = {c: self._annotate(child, links, n_links) for c, child in node.equal.items()}
        others = [(r, self._annotate(child, links, n_links)) for r, child in node.others]
        star = self._annotate(node.star, links, n_links) if node.star else nothing
        alternatives = []
        for code, possible in enumerate(self.boxes.possible[node.attribute]):
            if possible:
                # A code without any child is the implicit all-N branch.
                found = [trits for ranges, trits in others if _has(ranges, code)]
                alternatives.append(reduce(Trits.parallel, found, equal.get(code, nothing)))
        node.trits = reduce(Trits.alternative, alternatives).parallel(star)
        return node.trits

    def links(self, codes: Sequence[int], mask: Trits) -> tuple[Trits, int]:
        """The mask fully refined for an event, and the nodes visited (the paper's steps 1 to 4)."""

        def visit(node: PlainNode, mask: Trits) -> tuple[Trits, int]:
            mask, steps = mask.refine(node.trits), 1
            for child in node.children(codes):
                if not mask.maybe:
                    break
                below, taken = visit(child, mask)
                mask = mask.refine(Trits(mask.size, below.yes, mask.maybe & ~below.yes))
                steps += taken
            return Trits(mask.size, mask.yes), steps

        root = self.root(codes)
        return visit(root, mask) if root and mask.maybe else (Trits(mask.size, mask.yes), 0)


class PlainLinkMatcher:
    """Finds the links that need an event by trying every filter."""

    def __init__(self, schema: Schema, n_links: int) -> None:
        self.schema = schema
        self.n_links = n_links
        self.steps = 0
        self._added = 0
        self._filters: dict[int, tuple[Filter, int]] = {}

    def add(self, filter: Filter, link: int) -> int:
        """Add a filter of a receiver behind a link; return a handle for `remove`."""
        self._filters[self._added] = (filter, link)
        self._added += 1
        return self._added - 1

    def remove(self, handle: int) -> None:
        """Remove a filter."""
        del self._filters[handle]

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        """The links of the mask that need the event, as bits."""
        found = 0
        for filter, link in self._filters.values():
            if filter.matches(keys):
                found |= 1 << link
        return found & mask

    def fold(self) -> None:
        """Do nothing: there is nothing to compile."""


def _has(ranges: Ranges, code: int) -> bool:
    return any(low <= code < high for low, high in ranges)
