"""Events that are taken in at once are those that the long way would hand over."""

from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Deliver
from distributary.topics import OURS, Subscriber
from distributary.topics.attendance import Wanted
from distributary.topics.messages import Event

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
        taken = quick.takes(event)
        found = delivered(quick, event) if taken is None else [event] * taken
        assert found == delivered(plain, event)
        assert quick.wanted == plain.wanted


def test_the_next_event_is_taken_in_at_once_and_one_after_a_gap_is_not() -> None:
    machine = subscriber()
    assert machine.takes(Event("a", 1, b"")) is True
    assert machine.takes(Event("a", 3, b"")) is None
    assert machine.takes(Event("a", 1, b"")) is False
    assert machine.takes(Event("not wanted", 1, b"")) is False
