"""What a link sends when subscriptions end: everything needed stays covered, in small steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES, Pacing
from distributary.content.merge_plan import MOST_BOXES
from distributary.content.messages import Name, Statement, SubscribeStatement
from distributary.content.outlink import NO_FURTHER, OutLink
from distributary.matching import CoverIndex
from distributary.model import Filter, equivalent
from tests.content.test_schedules import homes_for, play
from tests.content.worlds import EVENTS, SCHEMA, World, box, random_box, random_tree

MERGING = COVERING_POLICIES["merging"]
TINY_STEPS = replace(MERGING, pacing=Pacing(compared=2, unions=1))


class PlainOutLink(OutLink):
    """Replaces a loose subscription in a single step, whatever that takes."""

    def step(self) -> list[Statement]:
        while self.loose:
            name = next(iter(self.loose))
            if name in self.needed and not self.sent.is_covered(self.needed[name], but=name):
                self._tighten(name)
                continue
            roots = {root: self.needed[root] for root in self._find_roots(name)}
            boxes = [each for filter in roots.values() for each in filter.boxes]
            union = Filter.of(boxes, SCHEMA)
            if len(roots) > 1 and equivalent(union, self.sent[name]):
                self._tighten(name)
                continue
            said: list[Statement] = []
            if len(roots) == 1:
                said = self._reveal(next(iter(roots)), instead_of=name)
            elif roots:
                said = self._announce(self._new_name(), union, True, instead_of=name)
            return [*said, self._retract(name, NO_FURTHER)]
        return []


class Ends:
    """A link, and what its neighbour holds after each statement."""

    def __init__(self, link: type[OutLink], policy: str | None = None) -> None:
        numbers = count(10_000)
        chosen = TINY_STEPS if policy is None else COVERING_POLICIES[policy]
        self.link = link(SCHEMA, chosen, lambda: Name("here", next(numbers)))
        self.held: dict[Name, Filter] = {}

    def tell(self, statements: list[Statement]) -> None:
        """Apply statements one by one; nothing that is needed may lack in between."""
        for statement in statements:
            if isinstance(statement, SubscribeStatement):
                self.held[statement.name] = statement.filter
            else:
                del self.held[statement.name]
            self.check()
        assert len(self.held) == len(self.link.sent)

    def check(self) -> None:
        """Everything needed is held."""
        assert self.let_through() >= find_wanted(self.link.needed.values())

    def let_through(self) -> set[tuple[int, int]]:
        """The events that the neighbour would send."""
        return find_wanted(self.held.values())

    def finish(self) -> int:
        """Do all deferred work; how many steps it took."""
        for steps in range(10_000):
            if not self.link.loose:
                return steps
            self.tell(self.link.step())
        raise AssertionError("deferred work goes on for ever")


def find_wanted(filters: object) -> set[tuple[int, int]]:
    """The events that some filter matches."""
    assert hasattr(filters, "__iter__")
    given = list(filters)
    return {event for event in EVENTS if any(each.matches(event) for each in given)}


def change(rng: np.random.Generator, ends: list[Ends], names: count[int]) -> None:
    """The same change on all links: a subscription begins, ends, or is still there."""
    needed = list(ends[0].link.needed)
    draw = rng.random()
    if draw < 0.5 or not needed:
        name, filter = Name("client", next(names)), random_box(rng)
        for end in ends:
            end.tell(end.link.need(name, filter))
        return
    name = needed[int(rng.integers(len(needed)))]
    if draw < 0.9:
        for end in ends:
            end.tell(end.link.drop(name))
        return
    filter = ends[0].link.needed[name]
    again = name if rng.random() < 0.7 else Name("client", next(names))
    for end in ends:  # it ends while nothing may be retracted, and begins again
        end.link.preserve(name)
        end.tell(end.link.need(again, filter))


@pytest.mark.parametrize("seed", range(60))
def test_small_steps_lead_where_a_single_one_does(seed: int) -> None:
    rng = np.random.default_rng([seed, 71])
    ends = [Ends(OutLink), Ends(PlainOutLink)]
    names = count()
    for _ in range(60):
        if rng.random() < 0.4:
            for end in ends:
                end.tell(end.link.step())
        else:
            change(rng, ends, names)
        for end in ends:
            end.check()
    for end in ends:
        end.finish()
    small, plain = ends
    assert small.let_through() == plain.let_through() == find_wanted(small.link.needed.values())


WIDE, OTHER, COVER, INNER = (Name("client", at) for at in range(4))


def begin_to_merge(steps: int) -> Ends:
    """The widest has ended, after which some steps were done."""
    ends = Ends(OutLink)
    ends.tell(ends.link.need(WIDE, box((0, 6))))
    ends.tell(ends.link.need(OTHER, box((4, 6), (0, 1))))
    ends.tell(ends.link.need(COVER, box((0, 3))))
    ends.tell(ends.link.need(INNER, box((1, 2))))
    ends.tell(ends.link.drop(WIDE))
    for _ in range(steps):
        ends.tell(ends.link.step())
    return ends


@pytest.mark.parametrize("steps", range(8))
def test_what_would_have_covered_another_may_end_between_any_two_steps(steps: int) -> None:
    ends = begin_to_merge(steps)
    ends.tell(ends.link.drop(COVER))
    ends.finish()
    assert ends.let_through() == find_wanted([box((1, 2)), box((4, 6), (0, 1))])


@pytest.mark.parametrize("steps", range(8))
def test_a_remnant_may_be_needed_and_end_again_between_any_two_steps(steps: int) -> None:
    ends = Ends(OutLink)
    ends.tell(ends.link.need(WIDE, box((0, 6))))
    ends.tell(ends.link.need(INNER, box((1, 2))))
    ends.tell(ends.link.need(OTHER, box((4, 6), (0, 1))))
    ends.held[COVER] = box((0, 3))  # from a previous incarnation
    ends.link.adopt({COVER: ends.held[COVER]})
    ends.tell(ends.link.drop(WIDE))
    ends.link.loose.pop(COVER)  # its turn comes later
    ends.link.loose[COVER] = None
    for _ in range(steps):
        ends.tell(ends.link.step())
    ends.tell(ends.link.need(COVER, box((0, 3))))
    ends.tell(ends.link.drop(COVER))
    ends.finish()
    assert ends.let_through() == find_wanted([box((1, 2)), box((4, 6), (0, 1))])


@pytest.mark.parametrize("seed", range(40))
def test_networks_that_merge_in_tiny_steps_lose_and_leak_nothing(seed: int) -> None:
    rng = np.random.default_rng([seed, 72])
    world = World(TINY_STEPS, random_tree(rng, int(rng.integers(2, 7))), rng)
    play(world, rng, int(rng.integers(20, 80)), homes_for(world, rng))
    world.run()
    assert world.watch.under_way == 0
    assert [*world.watch.problems(), *world.table_problems()] == []


@pytest.mark.parametrize("hidden", [2_000, 4_000])
def test_a_step_is_as_small_however_much_a_subscription_hid(
    hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(OutLink, "merging")
    ends.check = lambda: None  # type: ignore[method-assign]  # it is quadratic
    ends.tell(ends.link.need(Name("wide", 1), box((0, hidden * 2))))
    for at in range(hidden):  # no two of them make one box
        ends.tell(ends.link.need(Name("narrow", at), box((2 * at, 2 * at + 1), (0, 3 + at % 2))))
    assert len(ends.held) == 1
    compared = 0
    is_covered = CoverIndex.is_covered

    def count_comparisons(index: CoverIndex[Name], filter: Filter, but: Name | None = None) -> bool:
        nonlocal compared
        compared += 1
        return is_covered(index, filter, but)

    monkeypatch.setattr(CoverIndex, "is_covered", count_comparisons)
    ends.tell(ends.link.drop(Name("wide", 1)))
    steps = 0
    while ends.link.loose:
        compared = 0
        said = ends.link.step()
        assert compared <= MERGING.pacing.compared
        assert len(said) <= MERGING.pacing.unions + 1
        assert all(len(each.filter.boxes) <= MOST_BOXES for each in said if hasattr(each, "filter"))
        ends.tell(said)
        steps += 1
    assert steps >= 2 * hidden / MERGING.pacing.compared
    assert len(ends.held) == -(-hidden // MOST_BOXES)
    for x in range(0, 2 * hidden, 37):
        is_held = any(each.matches((x, 3)) for each in ends.held.values())
        assert is_held == (x % 4 == 2)


@pytest.mark.parametrize("wrong", [{"compared": 0}, {"unions": 0}])
def test_a_step_does_something(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pacing(**wrong)  # type: ignore[arg-type]
