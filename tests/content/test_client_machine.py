"""The client's machine beside a plain model of its brokers: once, in order, nothing lost."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from distributary.content.client_actions import (
    ClientParams,
    Complete,
    Dial,
    EndClient,
    Fail,
    HandEvent,
    HandLoss,
    HangUp,
)
from distributary.content.client_inbox import EventInbox
from distributary.content.client_machine import ClientMachine
from distributary.content.client_move import MoveState
from distributary.content.protocol import (
    Accepted,
    Acknowledge,
    Dropped,
    Ended,
    Event,
    Goodbye,
    OpenSession,
    Publish,
    Refused,
    SendFrame,
    SessionOpened,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from distributary.machines.actions import SetTimer
from tests.content.plain_brokers import Schedule, Wish, matches

SCHEDULES = 150
STEPS = 400


def check_wish(schedule: Schedule, wish: Wish, *, complete: bool) -> None:
    """A subscription got what it must, once and in order, and nothing that it must not."""
    log = {(at, number): value for at, _, number, value, _ in schedule.network.log}
    got = [(event.broker, event.number) for event in wish.got]
    assert len(got) == len(set(got)), "twice"
    assert all(matches(wish.text, log[each]) for each in got), "unwanted"
    last: defaultdict[tuple[str, str], int] = defaultdict(int)
    for event in wish.got:
        assert event.number > last[event.broker, event.publisher], "out of order"
        last[event.broker, event.publisher] = event.number
    if complete and wish.since is not None:
        must = {
            (at, number)
            for at, _, number, value, _ in schedule.network.log[wish.since : wish.until]
            if matches(wish.text, value)
        }
        if wish.until is None:
            assert must <= set(got), "lost"


def check_publications(schedule: Schedule) -> None:
    stored = [payload for _, publisher, *_, payload in schedule.network.log if publisher == "me"]
    assert len(stored) == len(set(stored)), "published twice"
    order = [payload for payload in schedule.published.values() if payload in set(stored)]
    assert stored == order, "publications out of order"
    for ticket, payload in schedule.published.items():
        outcome = schedule.outcomes[ticket]
        if outcome == "done":
            assert payload in stored
        elif outcome == "refused":
            assert payload not in stored


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_a_client_gets_everything_once_and_in_order_across_cuts_and_moves(seed: int) -> None:
    schedule = Schedule(seed)
    schedule.run(STEPS)
    for wish in schedule.wishes:
        check_wish(schedule, wish, complete=True)
        assert not wish.lost
    check_publications(schedule)
    assert schedule.machine.moving is None
    assert schedule.machine.unstored == 0


@pytest.mark.parametrize("seed", range(SCHEDULES // 3))
def test_a_lost_session_is_reported_and_nothing_comes_twice(seed: int) -> None:
    schedule = Schedule(seed, names=("a",), loses_sessions=True)
    schedule.run(STEPS)
    for wish in schedule.wishes:
        check_wish(schedule, wish, complete=not wish.lost)
    check_publications(schedule)


@pytest.mark.parametrize("seed", range(SCHEDULES // 3))
def test_an_ephemeral_session_reports_each_interruption(seed: int) -> None:
    params = ClientParams(ephemeral=True, acknowledge_every=3)
    schedule = Schedule(seed, names=("a",), params=params)
    schedule.run(STEPS)
    for wish in schedule.wishes:
        check_wish(schedule, wish, complete=not wish.lost)
    check_publications(schedule)


@pytest.mark.parametrize("seed", range(SCHEDULES // 3))
def test_dropped_events_are_reported_also_during_moves(seed: int) -> None:
    schedule = Schedule(seed, drops=True)
    schedule.run(STEPS)
    for wish in schedule.wishes:
        check_wish(schedule, wish, complete=not wish.lost)
    check_publications(schedule)


def test_the_schedules_try_what_they_are_for() -> None:
    moves = got = duplicates = 0
    outcomes: Counter[str] = Counter()
    for seed in range(20):
        schedule = Schedule(seed)
        schedule.run(STEPS)
        moves += schedule.machine.broker != "a"
        got += sum(len(wish.got) for wish in schedule.wishes)
        duplicates += schedule.machine.deliveries.duplicates
        outcomes.update(schedule.outcomes.values())
    assert moves > 5
    assert got > 400
    assert duplicates > 20
    assert outcomes["refused"] > 20
    assert outcomes["done"] > 200


# --- one by one -----------------------------------------------------------------------------------


def open_machine(
    *, resumed: bool = False, subscriptions: tuple[int, ...] = (), ads: tuple[int, ...] = ()
) -> ClientMachine:
    machine = ClientMachine("a")
    assert machine.start(0.0) == [Dial(1, "a")]
    assert machine.on_open(1, 0.0) == [SendFrame(1, OpenSession())]
    machine.on_message(1, SessionOpened(7, resumed, 5, 2, subscriptions, ads), 0.0)
    return machine


def event(delivery: int, *subscriptions: int, number: int = 0) -> Event:
    return Event(delivery, subscriptions, "b", "pub", number or delivery, {"x": 1}, b"p", 0.0)


def test_a_restarted_client_takes_its_subscription_over_with_what_waited() -> None:
    before = open_machine()
    number, _, _ = before.subscribe("x < 3", 0.0)
    machine = open_machine(resumed=True, subscriptions=(number, 99))
    assert set(machine.unclaimed) == {number, 99}
    assert machine.on_message(1, event(11, number), 0.0) == []
    again, _, actions = machine.subscribe("x < 3", 0.0)
    assert again == number
    assert [a.event.number for a in actions if isinstance(a, HandEvent)] == [11]
    assert SendFrame(1, Unsubscribe(99)) in machine.end_unclaimed(1.0)


def test_a_subscription_that_nobody_takes_over_ends_and_its_events_are_acknowledged() -> None:
    machine = ClientMachine("a")
    machine.on_open(1, 0.0)
    timer = machine.on_message(1, SessionOpened(7, True, 0, 2, (99,)), 0.0)
    assert timer == [SetTimer("claim", machine.params.claim_within)]
    assert machine.on_message(1, event(4, 99), 1.0) == []
    actions = machine.on_timer("claim", 31.0)
    assert SendFrame(1, Unsubscribe(99)) in actions
    assert machine.on_timer("acknowledge 1", 31.1) == [SendFrame(1, Acknowledge(4))]


def test_a_number_is_not_used_again_for_the_same_filter() -> None:
    machine = open_machine()
    first, _, _ = machine.subscribe("x < 3", 0.0)
    machine.unsubscribe(first, 0.0)
    second, _, _ = machine.subscribe("x < 3", 0.0)
    assert first != second
    after_restart = open_machine(resumed=True, subscriptions=(second,))
    assert after_restart.subscribe("x < 3", 0.0)[0] == second


def test_publications_go_on_where_an_earlier_process_ended_and_keep_to_the_window() -> None:
    machine = open_machine(resumed=True, ads=(4,))
    ticket, actions = machine.publish({"x": 1}, b"", 0.0)
    assert actions == [SendFrame(1, Unadvertise(4)), SendFrame(1, Publish(6, {"x": 1}))]
    assert machine.publish({"x": 2}, b"", 0.0)[1] == [SendFrame(1, Publish(7, {"x": 2}))]
    assert machine.publish({"x": 3}, b"", 0.0)[1] == []
    actions = machine.on_message(1, Stored(6, 2), 0.0)
    assert actions == [Complete(ticket), SendFrame(1, Publish(8, {"x": 3}))]
    assert machine.unstored == 2


def test_nothing_is_acknowledged_before_every_subscription_has_processed_it() -> None:
    machine = open_machine()
    one, _, _ = machine.subscribe("x < 3", 0.0)
    two, _, _ = machine.subscribe("x < 4", 0.0)
    (handed,) = machine.on_message(1, event(1, one, two), 0.0)
    assert isinstance(handed, HandEvent)
    assert handed.subscriptions == (one, two)
    assert machine.finish(handed.event.taken_from, 0.0) == []
    timer = machine.finish(handed.event.taken_from, 0.0)
    assert timer == [SetTimer("acknowledge 1", machine.params.acknowledge_after)]
    assert machine.on_timer("acknowledge 1", 0.05) == [SendFrame(1, Acknowledge(1))]


def test_dropped_events_are_reported_at_their_place_and_acknowledged() -> None:
    machine = open_machine()
    one, _, _ = machine.subscribe("x < 3", 0.0)
    (loss,) = machine.on_message(1, Dropped(1, 3, "the outbox is full"), 0.0)
    assert isinstance(loss, HandLoss)
    assert (loss.subscriptions, loss.loss.count) == ((one,), 3)
    machine.finish(loss.loss.taken_from, 0.0)
    assert machine.leave(0.0) == [SendFrame(1, Acknowledge(3)), HangUp(1)]


def test_a_refused_filter_fails_its_request_and_is_not_repeated() -> None:
    machine = open_machine()
    number, ticket, _ = machine.subscribe("x <", 0.0)
    said = machine.on_message(1, Refused("subscription", number, "not SQL"), 0.0)
    assert said == [Fail(ticket, "not SQL")]
    machine.on_close(1, 0.0)
    machine.on_open(1, 0.0)
    assert machine.on_message(1, SessionOpened(7, True, 5, 2), 0.0) == []


def test_abandoning_a_broker_reports_what_it_may_have_kept() -> None:
    machine = open_machine()
    number, _, _ = machine.subscribe("x < 3", 0.0)
    machine.on_message(1, Accepted("subscription", number, settled=True), 0.0)
    lost, _ = machine.publish({"x": 1}, b"", 0.0)
    machine.on_close(1, 0.0)
    ticket, actions = machine.move("c", 0.0, abandon=True)
    assert actions == [Dial(2, "c")]
    machine.on_open(2, 0.0)
    assert machine.on_message(2, SessionOpened(1, False, 0, 2), 0.0) == [
        SendFrame(2, Subscribe(number, "x < 3"))
    ]
    actions = machine.on_message(2, Accepted("subscription", number, settled=True), 0.0)
    assert Complete(ticket) in actions
    assert HangUp(1) in actions
    assert any(
        isinstance(each, Fail) and each.ticket == lost and each.is_unknown for each in actions
    )
    assert any(isinstance(each, HandLoss) for each in actions)
    assert machine.moving is None


def test_an_old_broker_that_stays_away_is_given_up_and_reported() -> None:
    machine = open_machine()
    number, _, _ = machine.subscribe("x < 3", 0.0)
    machine.on_message(1, Accepted("subscription", number, settled=True), 0.0)
    ticket, _ = machine.move("c", 0.0)
    machine.on_open(2, 0.0)
    machine.on_message(2, SessionOpened(1, False, 0, 2), 0.0)
    actions = machine.on_message(2, Accepted("subscription", number, settled=True), 0.0)
    if machine.moving is MoveState.RELEASING:
        actions += machine.on_message(1, Ended("advertisement", 0), 0.0)
    assert Complete(ticket) in actions
    assert machine.moving is MoveState.DRAINING
    assert machine.on_message(2, event(1, number), 0.0) == []
    timer = machine.on_close(1, 5.0)
    assert timer == [SetTimer("abandon", 5.0 + machine.params.abandon_after)]
    actions = machine.on_timer("abandon", 65.0)
    kinds = [type(each) for each in actions]
    assert kinds == [HandLoss, HangUp, HandEvent]
    assert machine.moving is None


def test_a_broker_that_refuses_a_filter_ends_the_move_and_the_client_stays() -> None:
    machine = open_machine()
    number, _, _ = machine.subscribe("x < 3", 0.0)
    machine.on_message(1, Accepted("subscription", number, settled=True), 0.0)
    ticket, _ = machine.move("c", 0.0)
    machine.on_open(2, 0.0)
    machine.on_message(2, SessionOpened(1, False, 0, 2), 0.0)
    actions = machine.on_message(2, Refused("subscription", number, "no such attribute"), 0.0)
    assert Fail(ticket, "no such attribute") in actions
    assert HangUp(2) in actions
    assert (machine.broker, machine.moving) == ("a", None)
    assert machine.on_message(1, event(1, number), 0.0)


def test_a_late_answer_does_not_end_an_advertisement_that_is_being_withdrawn() -> None:
    machine = open_machine()
    number, _, _ = machine.advertise("x < 3", 0.0)
    machine.on_message(1, Accepted("advertisement", number, settled=False), 0.0)
    ticket, _ = machine.unadvertise(number, 0.0)
    late = Accepted("advertisement", number, settled=True)
    assert Complete(ticket) not in machine.on_message(1, late, 0.0)
    assert Complete(ticket) in machine.on_message(1, Ended("advertisement", number), 0.0)


def test_a_new_process_is_told_of_losses_before_it_subscribes() -> None:
    number, _, _ = open_machine().subscribe("x < 3", 0.0)
    machine = open_machine(resumed=True, subscriptions=(number,))
    assert machine.on_message(1, event(1, number), 0.0) == []
    assert machine.on_message(1, Dropped(2, 4, "full"), 0.0) == []
    claimed, _, actions = machine.subscribe("x < 3", 0.0)
    assert claimed == number
    handed, loss = (each for each in actions if isinstance(each, HandEvent | HandLoss))
    assert (handed.event.taken_from.delivery, loss.loss.count) == (1, 3)
    acknowledged = machine.finish(handed.event.taken_from, 0.0)
    acknowledged += machine.finish(loss.loss.taken_from, 0.0)
    acknowledged += machine.on_timer("acknowledge 1", 0.0)
    assert SendFrame(1, Acknowledge(4)) in acknowledged


def test_a_goodbye_is_final_and_a_connection_that_closes_is_not() -> None:
    machine = open_machine()
    assert machine.on_close(1, 0.0) == []
    assert any(isinstance(each.message, OpenSession) for each in machine.on_open(1, 1.0))
    assert machine.on_message(1, Goodbye("a rule is broken"), 1.0) == [
        EndClient("a rule is broken")
    ]


def test_a_second_move_waits_for_the_first() -> None:
    machine = open_machine()
    machine.move("c", 0.0)
    assert machine.moving is MoveState.MAKING
    with pytest.raises(ValueError, match="moving already"):
        machine.move("d", 0.0)


def test_the_inbox_forgets_those_who_are_silent_longest() -> None:
    inbox = EventInbox(most=2)
    assert inbox.take_new(event(1, 1, number=5)) == (1,)
    assert inbox.take_new(event(1, 1, number=5)) == ()
    for publisher in (2, 3):
        assert inbox.take_new(event(1, publisher, number=5)) == (publisher,)
    assert inbox.take_new(event(1, 1, number=5)) == (1,)
