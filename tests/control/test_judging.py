"""Versions that moved flows are judged by what receivers measure, as far as it is their doing."""

from __future__ import annotations

import msgspec
import pytest

from distributary.control.history import dropped
from distributary.control.messages import PlanFetched
from distributary.control.requests import Pin, Rollback, SetMode
from distributary.control.status import AuditEntry
from tests.control.desks import (
    BAD,
    BAD_DROPPED,
    GOOD,
    GOOD_PLAN,
    GROUPS,
    SETTINGS,
    WANTS,
    make_desks,
)
from tests.control.plans import make_plan, make_system, read_places
from tests.control.system import System
from tests.control.test_proposals import meet

JUDGED_AFTER = 3 + 10 + 2 + 2  # until receivers measure, over what, for the last counts, and ticks

# Better than the bad plan, though not as good as the best: all three drop 30 a second.
HALF = {"EUR": 0, "GBP": 0, "AU": 0, "AG": 1}
HALF_PLAN = make_plan(WANTS, HALF, GROUPS)


def judged(system: System) -> AuditEntry:
    return system.entries("judged")[-1]


def test_a_version_that_keeps_its_promise_stays_and_the_log_says_what_was_measured() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    at = system.force.at
    system.run(12)
    assert not system.entries("judged")
    system.run(JUDGED_AFTER - 12)
    entry = judged(system)
    assert (entry.version, entry.who, entry.kind, entry.lost) == (2, "control", "planned", 0)
    assert at + 15 <= entry.at <= at + JUDGED_AFTER
    assert entry.measured is not None
    assert entry.predicted is not None
    assert dropped(entry.measured) == dropped(entry.predicted) == 0.0
    assert entry.measured.wanted == entry.predicted.wanted == 130.0
    assert "3 receivers dropped 0.0 messages a second" in entry.why
    assert system.force.version == 2
    system.run(60)
    assert len(system.entries("judged")) == 1


def test_a_version_that_turns_out_worse_is_rolled_back_by_itself_and_says_so() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.floor.receivers["fx"].besides = 40.0
    system.run(JUDGED_AFTER)
    entry = judged(system)
    assert entry.measured is not None
    assert dropped(entry.measured) == pytest.approx(40.0)
    force = system.force
    assert (force.version, force.kind, force.by) == (3, "rolled back", "control")
    assert meet(read_places(system.plan)) == meet(BAD)
    assert force.why.startswith("back to version 1: under 2, 3 receivers dropped 40.0 messages")


def test_what_is_tolerated_follows_from_tolerance_and_slack() -> None:
    """The plan is predicted to drop 90 a second; 50 % and 5 besides are tolerated."""
    for besides, version in ((49.0, 2), (51.0, 3)):
        system = make_desks()
        system.propose(HALF_PLAN)
        system.floor.receivers["fx"].besides = besides
        system.run(JUDGED_AFTER)
        assert system.force.version == version, besides


def test_messages_that_receivers_miss_while_a_version_takes_over_are_in_the_log() -> None:
    system = make_desks()
    system.floor.receivers["fx"].missing = 5
    system.run(3)
    system.propose(GOOD_PLAN)
    system.floor.receivers["fx"].missing = 12
    system.floor.receivers["metals"].missing = 2
    system.run(JUDGED_AFTER)
    assert judged(system).lost == 9
    system.floor.receivers["metals"].missing = 30
    system.run(60)
    assert judged(system).lost == 9


def test_rates_that_rise_do_not_speak_against_a_plan() -> None:
    system = make_desks(rate_window=60.0)
    system.propose(HALF_PLAN)
    system.run(5)
    for flow in system.floor.rates:
        system.floor.rates[flow] *= 10
    system.run(30)
    entry = judged(system)
    assert entry.measured is not None
    assert dropped(entry.measured) > 400  # 90 were predicted when it came into force
    assert system.force.version == 2


@pytest.mark.parametrize("shift", [-1, 1, 2])
def test_clocks_that_differ_do_not_speak_against_a_plan(shift: int) -> None:
    """Rates rise at the very end of the window, so that a second more or less counts."""
    system = make_desks()
    system.propose(HALF_PLAN)
    system.run(12)
    taken = system.floor.pass_second
    system.floor.pass_second = lambda second, now: taken(second + shift, now)  # type: ignore[method-assign]
    for flow in system.floor.rates:
        system.floor.rates[flow] *= 20
    system.run(20)
    assert system.force.version == 2
    assert judged(system).measured is not None


def test_interest_that_changes_does_not_speak_against_a_plan() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    for more in ("AU", "AG", "AU"):  # then they drop 40 and 30 a second
        system.run(3)
        system.floor.want("fx", frozenset({"EUR", "GBP", more}), system.now)
        system.run(1)
        system.floor.want("fx-2", frozenset({"EUR", "GBP", more}), system.now)
    system.run(30)
    assert system.force.version == 2
    entry = judged(system)
    assert entry.measured is not None
    assert entry.why.startswith("1 receiver dropped")  # the others wanted something else meanwhile


def test_interest_that_changed_before_the_window_is_predicted_as_it_is_now() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.run(1)
    system.floor.want("fx", frozenset({"EUR", "AU"}), system.now)  # drops 20 + 40
    system.run(JUDGED_AFTER)
    entry = judged(system)
    assert entry.measured is not None
    assert entry.predicted is not None
    assert dropped(entry.measured) == dropped(entry.predicted) == 60.0
    assert system.force.version == 2


def test_interest_that_changes_before_the_verdict_does_not_speak_against_a_plan() -> None:
    system = make_desks()
    system.propose(HALF_PLAN)
    system.run(14)  # receivers have measured, and the verdict is still to come
    for name in ("fx", "fx-2", "metals"):
        system.floor.want(name, frozenset({"EUR", "GBP", "AU"}), system.now)
    system.run(JUDGED_AFTER - 14)
    entry = judged(system)
    assert entry.measured is not None
    assert entry.predicted is not None
    assert dropped(entry.measured) == dropped(entry.predicted) == 90.0
    assert system.force.version < 4


def test_what_was_measured_beyond_the_prediction_before_is_not_the_fault_of_a_version() -> None:
    """Half of what receivers drop is other traffic, before and after."""
    system = make_desks()
    system.floor.receivers["fx"].besides = BAD_DROPPED
    system.run(15)
    system.propose(HALF_PLAN)
    system.floor.receivers["fx"].besides = 60.0
    system.run(JUDGED_AFTER)
    entry = judged(system)
    assert entry.measured is not None
    assert dropped(entry.measured) == pytest.approx(90.0 + 60.0)  # 140 would be tolerated
    assert system.force.version == 2


def test_nothing_is_judged_while_a_publisher_cannot_be_heard() -> None:
    system = make_desks()
    system.propose(HALF_PLAN)
    system.run(4)
    system.floor.cut("feed")  # it goes on publishing, but nobody counts it
    system.run(60)
    assert not system.entries("judged")
    system.floor.heal("feed", system.now)
    system.run(2 * JUDGED_AFTER)
    assert judged(system).measured is not None
    assert system.force.version == 2


def test_counts_that_are_missing_begin_a_new_window() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.run(5)
    system.floor.publishers["feed"].number += 1  # a report is lost
    system.run(JUDGED_AFTER - 5)
    assert not system.entries("judged")
    system.run(JUDGED_AFTER)
    assert judged(system).measured is not None


def test_a_lost_connection_begins_a_new_window() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.run(5)
    system.serving.cut()
    system.run(6)
    system.serving.heal()
    healed = system.now
    system.run(JUDGED_AFTER - 4)
    assert not system.entries("judged")
    system.run(5)
    assert judged(system).at >= healed + 15
    assert judged(system).measured is not None


def test_a_version_that_nobody_can_judge_is_given_up_with_the_reason() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    for name in WANTS:
        system.floor.kill(name)
    system.run(12 * JUDGED_AFTER)
    entry = judged(system)
    assert entry.measured is None
    assert entry.why == ("not measured: no receiver wanted the same, and reported, all the time")
    assert entry.lost == 0
    assert system.force.version == 2


# --- versions that follow each other faster than one is judged ------------------------------------

MIXED_WANTS = {
    "a": frozenset(f"a{at}" for at in range(8)),
    "b": frozenset(f"b{at}" for at in range(8)),
}
SORTED = {flow: int(name == "b") for name, flows in MIXED_WANTS.items() for flow in flows}
MIXED = {**dict.fromkeys(SORTED, 0), "b7": 1}  # each other flow of b saves a 10 messages a second
SORTED_PLAN = make_plan(MIXED_WANTS, SORTED, GROUPS)


def make_mixed() -> System:
    """One flow may move at a time, and seven have to."""
    settings = msgspec.structs.replace(SETTINGS, max_moves=1)
    return make_system(settings, MIXED_WANTS, MIXED, GROUPS, dict.fromkeys(MIXED, 10.0))


def drift(system: System, seconds: int) -> None:
    """Propose a better plan at every trigger of the stream."""
    for _ in range(seconds // 5):
        system.propose(SORTED_PLAN)
        system.run(5)


def test_planned_versions_that_come_meanwhile_are_judged_together_right_after() -> None:
    system = make_mixed()
    began = system.now
    drift(system, 35)
    assert system.force.version == 8  # none has waited
    entries = system.entries("judged")
    assert [entry.version for entry in entries] == [2, 4]
    assert all(entry.measured is not None for entry in entries)
    assert entries[1].why.startswith("versions 3 to 4 together: 2 receivers dropped")
    assert entries[1].at <= began + 35
    system.run(2 * JUDGED_AFTER)
    assert [entry.version for entry in system.entries("judged")] == [2, 4, 7, 8]


def test_what_turns_out_worse_under_drift_is_rolled_back_with_all_that_followed() -> None:
    system = make_mixed()
    system.propose(SORTED_PLAN)
    system.floor.receivers["a"].besides = 2_000.0
    drift(system, 20)
    rolled = next(e for e in system.entries("in force") if e.kind == "rolled back")
    assert rolled.who == "control"
    assert rolled.why.startswith("back to version 1: under 2, 2 receivers dropped")
    assert meet(read_places(system.plan)) == meet(MIXED)
    first, later = sorted(system.entries("judged"), key=lambda entry: entry.version or 0)
    assert (first.version, first.kind) == (2, "planned")
    assert later.why == f"not measured: version {rolled.version} replaced it too soon"
    assert system.status.proposal is not None  # they wait from now on


def test_versions_judged_together_are_rolled_back_to_the_last_that_kept_its_promise() -> None:
    system = make_mixed()
    drift(system, 20)
    assert judged(system).version == 2
    kept = read_places(system.store.accepted[0].plan)
    system.floor.receivers["a"].besides = 2_000.0
    drift(system, 15)
    rolled = next(e for e in system.entries("in force") if e.kind == "rolled back")
    assert rolled.why.startswith("back to version 2: under 3 to 4, 2 receivers dropped")
    assert meet(read_places(system.plan)) == meet(kept)


def test_a_successor_judges_planned_versions_together() -> None:
    system = make_mixed()
    drift(system, 10)
    system.floor.receivers["a"].besides = 2_000.0
    system.serve("two")
    system.run(JUDGED_AFTER)
    assert judged(system).version == 3
    assert system.force.why.startswith("back to version 1: under 2 to 3, 2 receivers dropped")
    assert meet(read_places(system.plan)) == meet(MIXED)


def test_the_version_to_go_back_to_is_kept_however_many_follow() -> None:
    """Flows are placed all the time, and the version before the unjudged one only placed some."""
    system = make_desks(keep_versions=2)
    system.floor.want("new", frozenset({"N"}), system.now)
    system.run(2)
    system.propose(HALF_PLAN)
    system.floor.receivers["fx"].besides = 200.0
    system.run(5)
    system.propose(GOOD_PLAN)
    for number in range(6):
        system.floor.want("new", frozenset({"N", f"N{number}"}), system.now)
        system.run(1)
    system.run(JUDGED_AFTER - 11)
    assert system.force.why.startswith("back to version 2: under 3, ")
    assert not system.entries("kept")


def test_an_order_ends_the_judgement_of_planned_versions_and_their_losses_are_told() -> None:
    system = make_mixed()
    system.propose(SORTED_PLAN)
    system.floor.receivers["a"].missing = 3
    system.run(5)
    system.propose(SORTED_PLAN)
    system.run(2)
    system.order(Rollback(2, "ann"))
    entry = judged(system)
    assert (entry.version, entry.measured, entry.lost) == (3, None, 3)
    assert entry.why == "not measured: version 4 replaced it too soon"
    system.run(JUDGED_AFTER)
    assert judged(system).version == 4
    assert judged(system).measured is not None


def test_no_proposal_comes_into_force_while_a_plan_to_go_back_to_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = make_desks()
    system.propose(HALF_PLAN)
    system.floor.receivers["fx"].besides = 200.0
    service, fetched = system.serve("two"), []
    take = service._take
    monkeypatch.setattr(
        service,
        "_take",
        lambda message: (
            fetched.append(message) if isinstance(message, PlanFetched) else take(message)
        ),
    )
    system.run(JUDGED_AFTER)
    system.propose(GOOD_PLAN)
    assert system.force.version == 2
    take(fetched.pop())
    system.run(1)
    assert (system.force.version, system.force.kind) == (3, "rolled back")
    assert system.status.proposal is not None


def test_flows_that_are_placed_meanwhile_do_not_disturb_the_judgement() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    for number in range(5):
        system.run(2)
        system.floor.want("new", frozenset({f"N{at}" for at in range(number + 1)}), system.now)
    system.floor.receivers["fx"].besides = 200.0
    system.run(JUDGED_AFTER)
    assert judged(system).version == 2
    assert system.force.kind == "rolled back"
    places = read_places(system.plan)
    assert meet({flow: at for flow, at in places.items() if flow in BAD}) == meet(BAD)
    assert {"N0", "N4"} <= places.keys()


def test_placing_flows_is_not_judged() -> None:
    system = make_desks()
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(60)
    assert system.force.version == 2
    assert not system.entries("judged")


def test_what_an_operator_ordered_is_judged_but_not_rolled_back() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    group = int(system.plan.session_group[read_places(system.plan)["EUR"]])
    system.order(Pin("EUR", 1 - group, "ann"))
    system.floor.receivers["fx"].besides = 500.0
    system.run(JUDGED_AFTER)
    assert (judged(system).version, judged(system).kind) == (3, "pinned")
    assert judged(system).measured is not None
    assert system.force.version == 3


def test_a_successor_goes_on_judging_and_rolls_back() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.floor.receivers["fx"].besides = 60.0
    system.floor.receivers["metals"].missing = 4
    system.run(2)
    system.services["one"].end()
    system.serve("two")
    system.run(JUDGED_AFTER)
    assert judged(system).version == 2
    assert judged(system).lost == 4
    assert (system.force.version, system.force.kind) == (3, "rolled back")
    assert meet(read_places(system.plan)) == meet(BAD)


def test_a_successor_does_not_judge_what_was_judged() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.run(JUDGED_AFTER)
    system.serve("two")
    system.run(60)
    assert len(system.entries("judged")) == 1


def test_a_version_whose_predecessor_the_store_has_lost_stays_and_is_an_alarm() -> None:
    system = make_desks()
    first = system.force.plan
    system.propose(GOOD_PLAN)
    system.floor.receivers["fx"].besides = 60.0
    system.serve("two")
    del system.store.plans[first]
    system.run(JUDGED_AFTER)
    assert system.force.version == 2
    (entry,) = system.entries("kept")
    assert entry.why == ("version 2 turned out worse, but stays: its plan is gone from the store")
    (alarm,) = system.alarms("version not rolled back")
    assert entry.why in alarm.says


# --- the pause after a roll-back ------------------------------------------------------------------


def roll_back_by_itself(system: System) -> None:
    version = system.force.version
    system.floor.receivers["fx"].besides = 60.0
    system.run(JUDGED_AFTER)
    assert system.force.version == version + 1
    assert system.force.by == "control"
    system.floor.receivers["fx"].besides = 0.0


def test_after_a_rollback_proposals_wait_and_then_take_effect_by_themselves() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    roll_back_by_itself(system)
    rolled = system.force.at
    system.propose(GOOD_PLAN)
    assert system.force.version == 3
    assert system.status.proposal is not None
    (alarm,) = system.alarms("proposals wait")
    assert "approve" in alarm.says
    system.run(rolled + 299 - system.now)
    assert system.force.version == 3
    system.run(2)
    assert (system.force.version, system.force.kind) == (4, "planned")
    assert not system.alarms("proposals wait")
    assert system.status.proposal is None


def test_the_pause_doubles_while_versions_go_on_being_rolled_back() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    roll_back_by_itself(system)
    for pause in (300.0, 600.0, 1200.0):
        rolled = system.force.at
        assert system.machine._deciding.paused_until() == rolled + pause
        system.propose(GOOD_PLAN)
        system.run(rolled + pause + 1.5 - system.now)
        assert system.force.kind == "planned"
        roll_back_by_itself(system)
    system.serve("two")
    system.run(1)
    assert system.machine._deciding.paused_until() == system.force.at + 2400.0


def test_a_version_that_keeps_its_promise_ends_the_doubling() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    roll_back_by_itself(system)
    system.order(SetMode("auto", "ann"))
    system.propose(GOOD_PLAN)
    assert system.force.kind == "planned"  # the operator ended the pause
    system.run(JUDGED_AFTER)
    system.order(Rollback(None, "ann"))
    assert system.machine._deciding.paused_until() == system.force.at + 300.0
    system.order(SetMode("auto", "ann"))
    system.propose(GOOD_PLAN)
    roll_back_by_itself(system)
    assert system.machine._deciding.paused_until() == system.force.at + 300.0


def test_the_plan_in_force_after_all_is_the_better_one() -> None:
    """With time, and nothing besides, the loop ends at the good plan."""
    system = make_desks()
    system.propose(GOOD_PLAN)
    roll_back_by_itself(system)
    system.propose(GOOD_PLAN)
    system.run(400)
    assert meet(read_places(system.plan)) == meet(GOOD)
    assert judged(system).measured is not None
