"""What operators order, and what is refused."""

from __future__ import annotations

import pytest

from distributary.control.requests import Pin, Rollback, SetLimits
from tests.control.desks import BAD, GOOD, GOOD_PLAN, WANTS, make_desks
from tests.control.plans import make_plan, read_places
from tests.control.system import System
from tests.control.test_proposals import meet


def group_of(system: System, flow: str) -> int:
    return int(system.plan.session_group[read_places(system.plan)[flow]])


# --- roll-back ------------------------------------------------------------------------------------


def test_a_rollback_goes_back_to_before_the_last_version_that_moved_flows() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(2)
    assert system.force.kind == "placed"
    done = system.order(Rollback(None, "ann"))
    assert done.version == system.force.version == 4
    assert (system.force.kind, system.force.by) == ("rolled back", "ann")
    assert system.force.why.startswith("back to version 1")
    places = read_places(system.plan)
    assert meet({flow: at for flow, at in places.items() if flow != "PT"}) == meet(BAD)
    assert "PT" in places  # what came since keeps a place


def test_a_version_is_rolled_back_to_by_its_number() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.order(Rollback(1, "ann"))
    assert meet(read_places(system.plan)) == meet(BAD)
    system.order(Rollback(2, "ann"))
    assert meet(read_places(system.plan)) == meet(GOOD)
    assert system.force.version == 4


def test_a_rollback_that_changes_nothing_or_has_no_version_is_refused() -> None:
    system = make_desks()
    assert system.refuse(Rollback(None, "ann")) == "there is no version before the one in force"
    assert system.refuse(Rollback(1, "ann")) == "version 1 is in force already"
    assert system.refuse(Rollback(7, "ann")) == "there is no version 7; the one in force is 1"
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(2)
    assert system.refuse(Rollback(1, "ann")) == (
        "all flows are where version 1 has them already; nothing was changed"
    )


def test_a_version_that_is_gone_is_refused_with_those_that_are_there() -> None:
    system = make_desks(keep_versions=3)
    for number in range(6):
        system.floor.want("new", frozenset({f"N{at}" for at in range(number + 1)}), system.now)
        system.run(2)
    assert system.force.version == 7
    assert system.refuse(Rollback(2, "ann")) == (
        "version 2 is gone: it is not kept any more; choose one of 5 to 6"
    )
    assert len(system.store.plans) == 3


def test_the_version_before_the_last_one_that_moved_flows_is_always_kept() -> None:
    system = make_desks(keep_versions=2)
    system.propose(GOOD_PLAN)
    for number in range(6):
        system.floor.want("new", frozenset({f"N{at}" for at in range(number + 1)}), system.now)
        system.run(2)
    assert "choose one of 1 to 2, 7" in system.refuse(Rollback(4, "ann"))
    system.order(Rollback(None, "ann"))
    old = {flow: at for flow, at in read_places(system.plan).items() if flow in BAD}
    assert meet(old) == meet(BAD)


def test_a_successor_fetches_the_plan_of_the_version_that_is_asked_for() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.serve("two")
    system.run(1)
    done = system.order(Rollback(1, "ann"))
    assert done.version == 3
    assert meet(read_places(system.plan)) == meet(BAD)


def test_a_plan_that_the_store_has_lost_is_refused() -> None:
    system = make_desks()
    first = system.force.plan
    system.propose(GOOD_PLAN)
    system.serve("two")
    system.run(1)
    del system.store.plans[first]
    assert system.refuse(Rollback(1, "ann")) == (
        "the plan of version 1 is gone from the store, or damaged; choose another version"
    )


def test_without_a_plan_there_is_nothing_to_roll_back() -> None:
    system = System(make_desks().settings, {})
    system.serve()
    system.run(1)
    assert system.refuse(Rollback(None, "ann")) == (
        "no plan is in force yet, so there is none to roll back"
    )


# --- pins -----------------------------------------------------------------------------------------


def test_a_pinned_flow_goes_to_its_group_and_stays_there() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    group = 1 - group_of(system, "EUR")
    done = system.order(Pin("EUR", group, "ann"))
    assert (system.force.kind, system.force.by, done.version) == ("pinned", "ann", 3)
    assert group_of(system, "EUR") == group
    assert system.store.read("settings").pins == {"EUR": group}
    (entry,) = system.entries("pinned")
    assert entry.who == "ann"
    system.propose(GOOD_PLAN, version=2)
    assert group_of(system, "EUR") == group
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(3)
    assert group_of(system, "EUR") == group


def test_a_pin_to_where_a_flow_is_already_moves_nothing() -> None:
    system = make_desks()
    group = group_of(system, "EUR")
    done = system.order(Pin("EUR", group, "ann"))
    assert done.version == 1
    assert done.says == f"flow 'EUR' stays in group {group}"
    assert system.status.pins == {"EUR": group}


def test_an_unpinned_flow_may_move_again() -> None:
    system = make_desks()
    group = group_of(system, "EUR")
    system.order(Pin("EUR", group, "ann"))
    system.order(Pin("EUR", None, "bob"))
    assert system.status.pins == {}
    (entry,) = system.entries("unpinned")
    assert entry.who == "bob"
    assert system.refuse(Pin("EUR", None, "bob")) == "flow 'EUR' is not pinned"


def test_a_pin_that_cannot_hold_is_refused_and_changes_nothing() -> None:
    system = make_desks()
    before = list(system.store.audit)
    assert system.refuse(Pin("EUR", 7, "ann")) == (
        "flow 'EUR' cannot be pinned to group 7: there are groups 0 to 1; nothing was changed"
    )
    assert "-1" in system.refuse(Pin("EUR", -1, "ann"))
    assert system.store.audit == before
    assert system.status.pins == {}


def test_pins_beyond_what_the_server_stores_in_one_value_are_refused() -> None:
    system = make_desks()
    system.store.most_bytes = 1_000
    system.serve("two")
    system.run(1)
    system.order(Pin("f" * 300, 0, "ann"))
    says = system.refuse(Pin("g" * 400, 0, "ann"))
    assert "bytes, and the NATS server stores 1,000" in says
    assert says.endswith("nothing was changed")
    assert system.status.pins == {"f" * 300: 0}
    system.order(SetLimits("[groups]\nmembers = 3\n", "ann"))


def test_a_flow_that_nobody_wants_yet_goes_to_its_group_when_it_comes() -> None:
    system = make_desks()
    for group in (0, 1):
        flow = f"N{group}"
        done = system.order(Pin(flow, group, "ann"))
        assert done.says == f"flow {flow!r} stays in group {group}, once somebody wants it"
    system.floor.want("new", frozenset({"N0", "N1"}), system.now)
    system.run(2)
    assert (group_of(system, "N0"), group_of(system, "N1")) == (0, 1)


# --- limits ---------------------------------------------------------------------------------------


def test_limits_take_effect_with_the_moves_that_they_need() -> None:
    system = make_desks()
    text = "[groups]\nmembers = 2\n"
    done = system.order(SetLimits(text, "ann"))
    assert (system.force.kind, system.force.by) == ("limited", "ann")
    assert done.version == 2
    assert meet(read_places(system.plan)) == meet(GOOD)  # the only way
    assert system.status.limits == system.store.read("settings").limits == text
    assert system.entries("limits")[0].who == "ann"
    system.order(SetLimits("", "ann"))
    assert system.status.limits == ""


def test_limits_that_cannot_hold_are_refused_with_the_limit_that_must_give() -> None:
    system = make_desks()
    says = system.refuse(SetLimits("[groups]\nmembers = 1\n", "ann"))
    assert "'EUR'" in says
    assert "raise members of [groups]" in says
    assert says.endswith("nothing was changed")
    says = system.refuse(SetLimits("[receivers]\nrate = 20\n", "ann"))
    assert "raise its cap" in says
    assert system.status.limits == ""
    assert not system.entries("limits")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("members = ", "does not parse as TOML"),
        ("[group]\nmembers = 1", "'group' is no section"),
        ("[groups]\nmembers = -3", "members"),
        ("[groups]\nrate = 0", "rate"),
    ],
)
def test_limits_that_cannot_be_read_are_refused(text: str, part: str) -> None:
    assert part in make_desks().refuse(SetLimits(text, "ann"))


def test_the_limits_that_hold_already_are_refused() -> None:
    assert make_desks().refuse(SetLimits("", "ann")) == (
        "these are the limits already; nothing was changed"
    )


def test_flows_that_limits_leave_no_place_for_are_held_back_until_there_is_one() -> None:
    system = make_desks()
    system.order(SetLimits("[receivers]\nrate = 100\n", "ann"))
    system.floor.rates["PT"] = 60.0
    system.floor.publish("feed-2", ("PT",), system.now)
    system.run(12)
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(3)
    assert "PT" not in system.plan.flows
    assert set(system.plan.flows) == set(BAD)
    (alarm,) = system.alarms("flows held back")
    assert "'PT'" in alarm.says
    assert "raise its cap" in alarm.says
    (entry,) = system.entries("unserved")
    assert "'PT'" in entry.why
    system.order(SetLimits("[receivers]\nrate = 200\n", "ann"))
    assert "PT" in system.plan.flows
    assert not system.alarms("flows held back")


def test_a_rollback_that_would_break_the_limits_is_refused() -> None:
    system = make_desks()
    system.order(SetLimits("[groups]\nmembers = 2\n", "ann"))
    says = system.refuse(Rollback(1, "ann"))
    assert says.startswith("version 1 breaks what holds now")


def test_rates_that_come_to_break_a_limit_are_mended_or_an_alarm() -> None:
    system = make_desks(max_moves=10)
    system.propose(make_plan(WANTS, GOOD, (0, 1)))
    system.order(SetLimits("[groups]\nrate = 80\n", "ann"))
    version = system.force.version
    system.floor.rates.update(AU=50.0, AG=5.0, EUR=1.0, GBP=45.0)
    system.run(60)
    assert system.force.version == version  # 55 and 46: all is well
    system.floor.rates.update(AU=70.0, AG=70.0, EUR=1.0, GBP=1.0)
    system.run(60)
    assert {"AU", "AG"} not in meet(read_places(system.plan))
    assert not system.alarms("limits broken")
    system.floor.rates.update(AU=90.0)
    system.run(60)
    (alarm,) = system.alarms("limits broken")
    assert "over 80" in alarm.says
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(2)  # nothing can be placed within limits that are broken already
    assert "PT" not in system.plan.flows
    assert "'PT'" in system.alarms("flows held back")[0].says
    system.floor.rates.update(AU=10.0)
    system.run(45)
    assert not system.status.alarms
    assert "PT" in system.plan.flows
