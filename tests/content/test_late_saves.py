"""What a broker saves late: in portions, and as it is when it is saved."""

from __future__ import annotations

from math import inf

import pytest

from distributary.content import COVERING_POLICIES, Pruning
from distributary.content.durable import DurableBroker, Recovery, StartBroker
from distributary.content.history import History, Seen
from distributary.content.late_saves import LateSaves
from distributary.content.messages import Name
from distributary.machines import Save, SetTimer
from tests.content.worlds import SCHEMA, box

S, AD = Name("b", 1), Name("p", 1)


class Parts:
    """Parts that have changed."""

    def __init__(self, *parts: str) -> None:
        self.changed = [*parts]

    def __len__(self) -> int:
        return len(self.changed)

    def save(self, most: int | None = None) -> list[Save]:
        taken, self.changed = self.changed[:most], self.changed[most:]
        return [Save(part, 1) for part in taken]


def test_changes_are_saved_in_portions_after_a_pause() -> None:
    parts = Parts("a", "b", "c")
    late = LateSaves("late", parts, 2.0, most=2, rest=0.5)
    assert late.set_timer(10.0) == [SetTimer("late", 12.0)]
    assert late.set_timer(11.0) == []
    assert late.on_timer(12.0) == [Save("a", 1), Save("b", 1), SetTimer("late", 12.5)]
    assert late.set_timer(12.1) == []
    assert late.on_timer(12.5) == [Save("c", 1)]
    assert late.set_timer(13.0) == []
    parts.changed.append("d")
    assert late.set_timer(14.0) == [SetTimer("late", 16.0)]
    assert LateSaves("late", parts, inf, most=2, rest=0.5).set_timer(0.0) == []


# --- history --------------------------------------------------------------------------------------


def seen(at: float, distance: float = 2.0) -> Seen:
    return Seen(AD, distance, 5, at)


def test_publications_expire_and_only_then() -> None:
    for now, expected in ((10.0, 6.0), (10.5, 2.0), (14.0, 2.0)):
        history = History(Pruning(few=0, expires=10.0))
        history.note(S, seen(0.0, distance=6.0))
        history.note(S, seen(4.0))
        history.now = now
        assert history.prune(S, {AD: "p"}) == ((AD, expected),)
    history = History(Pruning(few=0, expires=10.0))
    history.note(S, seen(4.0))
    history.now = 14.5
    assert history.prune(S, {AD: "p"}) is None


def test_what_has_expired_is_dropped_when_the_next_publication_comes() -> None:
    history = History(Pruning(few=0, expires=10.0))
    history.begin_saving()
    for at in (0.0, 4.0, 12.0):
        history.note(S, seen(at))
    assert history.save() == [Save(("history", S), (seen(4.0), seen(12.0)))]
    assert [history.count_entries(now) for now in (12.0, 14.0, 14.5, 23.0)] == [2, 2, 1, 0]


@pytest.mark.parametrize("expires", [0.0, -1.0, float("nan")])
def test_publications_that_expire_at_once_are_refused(expires: float) -> None:
    with pytest.raises(ValueError, match="publications must expire after more than 0 s, not"):
        Pruning(expires=expires)


def test_a_window_is_saved_as_it_is_and_deleted_with_its_subscription() -> None:
    history = History(Pruning(few=0, window=2))
    history.begin_saving()
    for at in (1.0, 2.0, 3.0):
        history.note(S, seen(at))
    assert history.save() == [Save(("history", S), (seen(2.0), seen(3.0)))]
    assert history.save() == []
    history.prune(S, {AD: "p"})
    assert history.save() == [Save(("history", S), None)]


def start(policy: str, saved: dict[tuple[object, ...], object]) -> tuple[DurableBroker, list[Save]]:
    """A broker that starts with what was saved, and what it deletes by and by."""
    broker = DurableBroker(
        "b", ["p"], SCHEMA, COVERING_POLICIES[policy], recovery=Recovery(2, saved)
    )
    actions = broker.on_message("b", StartBroker(), 0.0)
    saves = [each for each in actions if isinstance(each, Save)]
    return broker, [*saves, *broker.save_rest()]


def test_a_restart_has_the_history_of_the_subscriptions_that_are_left() -> None:
    gone = Name("b", 2)
    saved: dict[tuple[object, ...], object] = {
        ("own", "ann", "subscription", 1): (S, box((0, 3))),
        ("history", S): (seen(1.0),),
        ("history", gone): (seen(1.0),),
    }
    broker, saves = start("pruning", saved)
    assert saves == [Save(("history", gone), None)]
    assert broker.core.history is not None
    broker.core.history.note(S, seen(2.0))
    assert broker.save_rest() == [Save(("history", S), (seen(1.0), seen(2.0)))]


def test_a_policy_without_a_history_deletes_what_another_saved() -> None:
    saved: dict[tuple[object, ...], object] = {("history", S): (seen(1.0),)}
    assert start("merging", saved)[1] == [Save(("history", S), None)]
