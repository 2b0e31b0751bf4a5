"""Finds what replaces a subscription that ends, in small portions, while others come and go.

A plan works in rounds. It tries the hidden subscriptions one by one, and keeps those that nothing
else covers; then drops of these what another one covers; then hands out the rest, similar ones
together. What changes in the meantime is tried in the next round. The plan is finished when
everything that its subscription hides is covered by something else too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

from distributary.content.messages import Name
from distributary.matching.covering import CoverIndex
from distributary.model import Filter

__all__ = ["MOST_BOXES", "MergePlan"]

# A union of more boxes is sent in parts, which bounds the size of a message.
MOST_BOXES = 64

_Placed = tuple[tuple[object, ...], Name]  # a place in the order of all filters


class MergePlan:
    """The replacement of the sent subscription `name`, which hides some of `hidden`.

    Call `note_hidden` and `note_gone` for every change of `hidden`.
    """

    def __init__(self, name: Name, sent: CoverIndex[Name], hidden: CoverIndex[Name]) -> None:
        self.name = name
        self.has_begun = False  # something was taken
        self._sent = sent
        self._hidden = hidden
        self._untried = dict.fromkeys(hidden.find_covered(sent[name]))
        self._freed: CoverIndex[Name] = CoverIndex(sent.schema)  # only `name` hides these
        self._unchecked: list[Name] = []  # of the freed ones
        self._sorted: list[list[_Placed]] = []  # checked ones, in sorted portions
        self._ordered: Iterator[_Placed] = iter(())
        self._ahead: Name | None = None  # the next one of those

    @property
    def is_ready(self) -> bool:
        """Whether parts can be taken, until there are no more."""
        return not self._unchecked and (self._ahead is not None or not self._untried)

    @property
    def is_finished(self) -> bool:
        """Whether something else covers everything that the subscription hides."""
        return not (self._untried or self._freed)

    def note_hidden(self, names: Iterable[Name]) -> None:
        """These are hidden now, or something that covered them is not sent any more."""
        self._untried.update(dict.fromkeys(names))

    def note_gone(self, name: Name, filter: Filter) -> None:
        """A subscription is not hidden any more; what it would have covered is tried again."""
        if name in self._freed:
            self._freed.remove(name)
            self.note_hidden(self._hidden.find_covered(filter))

    def prepare(self, most: int) -> int:
        """Compare at most so many subscriptions with others; return how many it were."""
        left = most
        while left > 0 and not self.is_ready:
            if self._unchecked:
                left -= self._check(left)
            else:
                left -= self._try(left)
        return most - left

    def _try(self, most: int) -> int:
        """Find subscriptions that only this one hides."""
        tried = 0
        while self._untried and tried < most:
            name = next(iter(self._untried))
            del self._untried[name]
            tried += 1
            if name not in self._hidden or name in self._freed:
                continue
            filter = self._hidden[name]
            if not self._sent.is_covered(filter, but=self.name):
                self._freed.add(filter, name)
        if not self._untried:
            self._unchecked = list(self._freed)
        return tried

    def _check(self, most: int) -> int:
        """Drop each freed subscription that another one covers; of equal ones, one stays."""
        portion: list[_Placed] = []
        checked = 0
        while self._unchecked and checked < most:
            name = self._unchecked.pop()
            checked += 1
            if name not in self._freed:
                continue
            filter = self._freed[name]
            if self._freed.is_covered(filter, but=name):
                self._freed.remove(name)
            else:
                portion.append((tuple(box.order() for box in filter.boxes), name))
        self._sorted.append(sorted(portion))
        if not self._unchecked:
            self._ordered, self._sorted = merge(*self._sorted), []
            self._look_ahead()
        return checked

    def _look_ahead(self) -> None:
        self._ahead = next((name for _, name in self._ordered if name in self._freed), None)

    def take_part(self) -> dict[Name, Filter]:
        """Take subscriptions to be united: as many as have `MOST_BOXES` boxes, or a single one."""
        part: dict[Name, Filter] = {}
        boxes = 0
        while self._ahead is not None:
            if self._ahead in self._freed:
                boxes += len(self._freed[self._ahead].boxes)
                if part and boxes > MOST_BOXES:
                    break
                part[self._ahead] = self._freed.remove(self._ahead)
                self.has_begun = True
            self._look_ahead()
        return part
