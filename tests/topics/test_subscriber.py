"""How a subscriber puts events in order, closes gaps, and reports what is lost."""

from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.topics import OURS, Subscriber
from distributary.topics.attendance import Wanted
from distributary.topics.codec import Expired, Resume
from distributary.topics.errors import EventsForgottenError, EventsLostError
from distributary.topics.messages import Event, Repair

events = st.lists(st.tuples(st.sampled_from(["a", "b", "not wanted"]), st.integers(1, 8)))


def subscriber() -> Subscriber:
    machine = Subscriber("s", OURS)
    machine.wanted = {"a": Wanted(expected=1), "b": Wanted(expected=3)}
    return machine


def delivered(machine: Subscriber, event: Event) -> list[Event]:
    actions = machine.on_message("t", event, 0.0)
    return [action.message for action in actions if isinstance(action, Deliver)]


@given(events)
def test_what_is_taken_in_at_once_is_handed_over_as_by_the_long_way(
    said: list[tuple[str, int]],
) -> None:
    quick, plain = subscriber(), subscriber()
    for topic, number in said:
        event = Event(topic, number, b"%d" % number)
        taken = quick.take_next(event)
        found = delivered(quick, event) if taken is None else [event] * taken
        assert found == delivered(plain, event)
        assert quick.wanted == plain.wanted


def test_the_next_event_is_taken_in_at_once_and_one_after_a_gap_is_not() -> None:
    machine = subscriber()
    assert machine.take_next(Event("a", 1, b"")) is True
    assert machine.take_next(Event("a", 3, b"")) is None
    assert machine.take_next(Event("a", 1, b"")) is False
    assert machine.take_next(Event("not wanted", 1, b"")) is False


# --- gaps ----------------------------------------------------------------------------------------


def requests(actions: list[Action]) -> list[int]:
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [message.first for message in sent if isinstance(message, Repair)]


def test_a_subscriber_asks_until_its_gap_is_closed() -> None:
    machine = subscriber()
    actions = machine.on_message("t", Event("a", 3, b""), 0.0)
    assert requests(actions) == [1]
    assert SetTimer("chase", OURS.retry) in actions
    assert machine.on_message("t", Event("a", 4, b""), 0.1) == []  # asked just now
    actions = machine.on_timer("chase", OURS.retry)
    assert requests(actions) == [1]
    assert SetTimer("chase", 2 * OURS.retry) in actions
    for number in (1, 2):
        machine.on_message("t", Event("a", number, b""), 1.5)
    assert machine.on_timer("chase", 2 * OURS.retry) == []


def test_a_gap_longer_than_one_answer_is_asked_for_on_as_answers_come() -> None:
    machine = subscriber()
    machine.on_message("t", Event("a", 1_000, b""), 0.0)
    asked = [
        first
        for number in range(1, 1_000)
        for first in requests(machine.on_message("t", Event("a", number, b""), 0.0))
    ]
    assert asked == [201, 401, 601, 801]
    assert machine.wanted["a"].expected == 1_001


def test_events_that_are_kept_no_more_are_reported_in_their_place() -> None:
    machine = subscriber()
    for number in (3, 4, 6):
        machine.on_message("t", Event("a", number, b""), 0.0)
    actions = machine.on_message("service", Expired("a", 1, 6), 0.0)
    found = [action.message for action in actions if isinstance(action, Deliver)]
    shown = [(e.first, e.last) if isinstance(e, EventsLostError) else e.number for e in found]
    assert shown == [(1, 2), 3, 4, (5, 5), 6]


def test_an_answer_that_overtook_a_later_one_reports_no_loss() -> None:
    """Two restarts: the first answer repeated, after the subscriber has read on in between."""
    machine = subscriber()
    machine.on_message("t", Resume("a", 5, 1, after=0), 0.0)
    assert delivered(machine, Event("a", 1, b"", epoch=5))
    late = machine.on_message("t", Resume("a", 6, 1, after=0), 1.0)
    assert late == []
    assert machine.on_message("t", Resume("a", 6, 2, after=5), 1.0) == []
    assert delivered(machine, Event("a", 2, b"", epoch=6))
    lost = machine.on_message("t", Resume("a", 7, 2, after=6), 2.0)
    (forgotten,) = [action.message for action in lost if isinstance(action, Deliver)]
    assert isinstance(forgotten, EventsForgottenError)
    assert (forgotten.first, forgotten.last) == (2, 2)
