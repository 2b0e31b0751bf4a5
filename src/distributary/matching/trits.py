"""Three-valued vectors over links, and a search tree annotated with them.

At a node of the tree a link is Y if every search that reaches the node matches a receiver behind
it, N if none does, and M if it depends on the event (Banavar et al., "PST Annotation"). The two
combine operations and the refinement of a mask are a few operations on whole words of links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from distributary.matching import _link_kernels as kernels
from distributary.matching._tree_kernels import ATTRIBUTE, LEAF
from distributary.matching.axes import CodeArray
from distributary.matching.tree import SearchTree
from distributary.model import IndexArray, IntArray

__all__ = ["Annotation", "Trits", "Words", "as_mask", "as_words"]

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Trits:
    """One trit for each link, as two bit planes: bit `l` of `yes` or `maybe` is for link `l`."""

    size: int
    yes: int = 0
    maybe: int = 0

    def __post_init__(self) -> None:
        if self.yes & self.maybe or (self.yes | self.maybe) >> self.size:
            raise ValueError(f"a link is both yes and maybe, or is beyond the {self.size} links")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a vector in the paper's notation, such as 'MYN'; the first letter is link 0."""
        if set(text) - set("YMN"):
            raise ValueError(f"{text!r} has letters other than Y, M and N")
        return cls(len(text), _parse_plane(text, "Y"), _parse_plane(text, "M"))

    def __str__(self) -> str:
        return "".join(
            "Y" if self.yes >> link & 1 else "M" if self.maybe >> link & 1 else "N"
            for link in range(self.size)
        )

    def alternative(self, other: Trits) -> Trits:
        """The trits if one of two branches is taken: certain only where both agree."""
        yes = self.yes & other.yes
        some = self.yes | self.maybe | other.yes | other.maybe
        return Trits(self.size, yes, some & ~yes)

    def parallel(self, other: Trits) -> Trits:
        """The trits if both branches are taken: Y wins, then M."""
        yes = self.yes | other.yes
        return Trits(self.size, yes, (self.maybe | other.maybe) & ~yes)

    def refine(self, annotation: Trits) -> Trits:
        """Replace each M of this mask by the annotation."""
        return Trits(
            self.size,
            self.yes | self.maybe & annotation.yes,
            self.maybe & annotation.maybe,
        )


class Annotation:
    """The trits of every node of a tree whose boxes belong to links."""

    def __init__(self, tree: SearchTree, links: IndexArray, n_links: int) -> None:
        """`links` has the link of each box, -1 for a box that nobody wants."""
        self.tree = tree
        self.n_links = n_links
        self.links = links.astype(np.int32)
        self._planes = np.zeros((len(tree), 2, _words(n_links)), np.uint64)
        self._leaf_of_row: IntArray | None = None
        kernels.annotate(tree.nodes, self.links, self._planes)

    def trits(self, node: int) -> Trits:
        """The annotation of one node; see `SearchTree.nodes`."""
        yes, maybe = self._planes[node]
        return Trits(self.n_links, as_mask(yes), as_mask(maybe))

    def search(self, codes: CodeArray, masks: Words) -> tuple[Words, IntArray]:
        """The links, of those in its row of `masks`, that need each event, and its steps."""
        codes = self.tree.check_codes(codes)
        pending = self.tree.pending
        found, steps = kernels.find_links(self.tree.nodes, self._planes, pending, codes, masks)
        return found, steps

    def retire(self, boxes: IntArray) -> int:
        """Take boxes away from their links, and update the trits; return the nodes visited."""
        self.links[boxes] = -1
        nodes = self.tree.nodes
        return sum(
            kernels.climb(nodes, self.links, self._planes, leaf) for leaf in self._leaves(boxes)
        )

    def _leaves(self, boxes: IntArray) -> IntArray:
        """The leaves that hold any of the boxes; a box has one per place in the index."""
        if self._leaf_of_row is None:
            self._by_box = np.argsort(self.tree.nodes.row_box, kind="stable")
            self._sorted_boxes = self.tree.nodes.row_box[self._by_box]
            self._leaf_of_row = _leaf_of_row(self.tree)
        found = [
            self._leaf_of_row[self._by_box[first:last]]
            for first, last in zip(
                np.searchsorted(self._sorted_boxes, boxes, side="left"),
                np.searchsorted(self._sorted_boxes, boxes, side="right"),
                strict=True,
            )
        ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def as_words(mask: int, n_links: int) -> Words:
    """Split a mask into 64-bit words, the lowest first."""
    return np.frombuffer(mask.to_bytes(8 * _words(n_links), "little"), "<u8").astype(np.uint64)


def as_mask(words: Words) -> int:
    """Join words into one mask."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def _words(n_links: int) -> int:
    return max(1, -(-n_links // 64))


def _parse_plane(text: str, letter: str) -> int:
    return sum(1 << link for link, found in enumerate(text) if found == letter)


def _leaf_of_row(tree: SearchTree) -> IntArray:
    nodes = tree.nodes
    leaves = np.flatnonzero(nodes.node[:, ATTRIBUTE] == LEAF)
    first, last = nodes.leaf_rows[leaves].T
    found = np.empty(len(nodes.row_box), np.int64)
    order = np.argsort(first)
    found[:] = np.repeat(leaves[order], (last - first)[order])
    return found
