"""What becomes of the plans that the stream proposes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from distributary.control.messages import DropPlan
from distributary.control.plan_codec import name_plan
from distributary.control.requests import Approve, Reject, SetMode
from tests.control.desks import (
    BAD,
    BAD_DROPPED,
    GOOD,
    GOOD_PLAN,
    GROUPS,
    RATES,
    SETTINGS,
    WANTS,
    make_desks,
)
from tests.control.plans import make_plan, make_system, read_places
from tests.control.store import PROPOSAL


def meet(places: dict[str, int]) -> set[frozenset[str]]:
    """Which flows share a session."""
    return {
        frozenset(flow for flow, at in places.items() if at == session)
        for session in places.values()
    }


def test_a_proposal_that_saves_takes_effect_at_once_and_says_what_it_saves() -> None:
    system = make_desks()
    assert system.force.version == 1
    system.propose(GOOD_PLAN)
    force = system.force
    assert (force.version, force.kind, force.by, force.moves) == (2, "planned", "control", 2)
    assert force.why == f"saves {3600 * BAD_DROPPED:,.0f} messages an hour; 2 flows move"
    assert meet(read_places(system.plan)) == meet(GOOD)
    assert force.predicted is not None
    assert force.predicted.dropped_first == force.predicted.dropped_second == 0.0
    assert force.predicted.wanted == 2 * 30 + 70
    assert [entry.version for entry in system.entries("in force")] == [1, 2]
    assert system.serving.stream.base is system.plan
    assert system.status.proposal is None


def test_with_approval_by_hand_a_proposal_waits_and_tells_what_moves_and_who_is_touched() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    assert system.force.version == 1
    proposal = system.status.proposal
    assert proposal is not None
    assert proposal.saves_per_hour == 3600 * BAD_DROPPED
    assert proposal.before.dropped_second == BAD_DROPPED
    assert proposal.after.dropped_second == 0.0
    assert (proposal.moves, proposal.receivers_touched) == (2, 3)
    moved = {move.flow: (move.from_group, move.to_group, move.receivers) for move in proposal.moved}
    assert moved in (
        {"GBP": (1, 0, 2), "AU": (0, 1, 1)},
        {"EUR": (0, 1, 2), "AG": (1, 0, 1)},
    )
    assert [move.receivers for move in proposal.moved] == [2, 1]  # those wanted most first
    assert proposal.touched == ["fx", "fx-2", "metals"]
    assert system.store.read(PROPOSAL).number == proposal.number
    assert system.store.read(PROPOSAL).plan in system.store.plans
    (entry,) = system.entries("proposed")
    assert entry.number == proposal.number


def test_an_approved_proposal_is_in_force_by_who_approved_it() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    proposal = system.status.proposal
    assert proposal is not None
    done = system.order(Approve(proposal.number, "ann"))
    assert done.version == system.force.version == 2
    assert (system.force.by, system.force.kind) == ("ann", "planned")
    assert meet(read_places(system.plan)) == meet(GOOD)
    (entry,) = system.entries("approved")
    assert (entry.who, entry.version) == ("ann", 2)
    assert system.status.proposal is None
    assert system.store.read(PROPOSAL) is None
    assert system.refuse(Approve(proposal.number, "ann")) == (
        f"proposal {proposal.number} is gone; no proposal waits"
    )


def test_a_rejected_proposal_is_gone_with_its_plan_and_the_reason_is_kept() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    number, name = system.store.read(PROPOSAL).number, system.store.read(PROPOSAL).plan
    system.order(Reject(number, "bob", "not before the close"))
    (entry,) = system.entries("rejected")
    assert (entry.who, entry.why) == ("bob", f"proposal {number}: not before the close")
    assert system.force.version == 1
    assert name not in system.store.plans
    assert "gone" in system.refuse(Reject(number, "bob"))


def test_a_newer_proposal_replaces_the_one_that_waits() -> None:
    system = make_desks(mode="manual", max_moves=10)
    some = make_plan(WANTS, {**BAD, "GBP": 0}, GROUPS)
    system.propose(some)
    first = system.status.proposal
    system.propose(GOOD_PLAN, version=2)
    second = system.status.proposal
    assert first is not None
    assert second is not None
    assert second.number > first.number
    assert second.saves_per_hour > first.saves_per_hour
    assert "replaces" in system.entries("proposed")[-1].why
    waits = f"proposal {first.number} is gone; proposal {second.number} waits now"
    assert system.refuse(Approve(first.number, "ann")) == waits
    assert system.store.read(PROPOSAL).plan in system.store.plans
    assert name_plan(some) not in system.store.plans


def test_the_same_proposal_again_keeps_its_number() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    number = system.store.read(PROPOSAL).number
    system.propose(GOOD_PLAN, version=2)
    assert system.store.read(PROPOSAL).number == number
    assert len(system.entries("proposed")) == 1


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_a_proposal_that_saves_nothing_is_ignored_without_a_word(mode: str) -> None:
    system = make_desks(mode=mode)
    before = list(system.store.audit)
    system.propose(make_plan(WANTS, BAD, GROUPS))
    renumbered = {flow: 1 - session for flow, session in BAD.items()}
    system.propose(make_plan(WANTS, renumbered, GROUPS), version=2)
    worse = dict.fromkeys(BAD, 0)
    system.propose(make_plan(WANTS, worse, (0,)), version=3)
    assert system.store.audit == before
    assert system.status.proposal is None


def test_no_more_flows_move_than_allowed() -> None:
    wants = {"a": frozenset({"f0", "f1", "f2"}), "b": frozenset({"g0", "g1", "g2"})}
    bad = {"f0": 0, "f1": 0, "g0": 0, "f2": 1, "g1": 1, "g2": 1}
    good = {flow: int(flow[0] == "g") for flow in bad}
    settings = msgspec.structs.replace(SETTINGS, max_moves=1)
    system = make_system(settings, wants, bad, GROUPS, dict.fromkeys(bad, 10.0))
    system.propose(make_plan(wants, good, GROUPS))
    assert system.force.moves == 1
    system.propose(make_plan(wants, good, GROUPS), version=2)
    assert system.force.moves == 1
    assert meet(read_places(system.plan)) == meet(good)


def test_a_proposal_is_completed_for_flows_that_came_to_be_wanted_since() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(2)
    assert "PT" in system.plan.flows
    proposal = system.status.proposal
    assert proposal is not None
    system.order(Approve(proposal.number, "ann"))
    places = read_places(system.plan)
    assert "PT" in places
    assert meet({flow: at for flow, at in places.items() if flow != "PT"}) == meet(GOOD)


def test_a_proposal_goes_on_waiting_when_another_service_takes_over() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    before = system.status.proposal
    assert before is not None
    system.serve("two")
    system.run(1)
    after = system.status.proposal
    assert after is not None
    assert (after.number, after.moves) == (before.number, before.moves)
    assert after.saves_per_hour == pytest.approx(before.saves_per_hour, rel=0.2)
    system.order(Approve(after.number, "ann"))
    assert meet(read_places(system.plan)) == meet(GOOD)


def test_a_proposal_that_saves_nothing_any_more_is_withdrawn() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    number = system.store.read(PROPOSAL).number
    for name in WANTS:  # everybody wants everything: no plan saves anything
        system.floor.want(name, frozenset(RATES), system.now)
    system.run(45)
    assert system.status.proposal is None
    assert system.store.read(PROPOSAL) is None
    (entry,) = system.entries("withdrawn")
    assert str(number) in entry.why


def test_approving_a_proposal_that_saves_nothing_any_more_withdraws_it() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    number = system.store.read(PROPOSAL).number
    for name in WANTS:
        system.floor.want(name, frozenset(RATES), system.now)
    says = system.refuse(Approve(number, "ann"))
    assert "saves nothing any more" in says
    assert system.store.read(PROPOSAL) is None


def test_mode_auto_puts_the_proposal_that_waits_in_force() -> None:
    system = make_desks(mode="manual")
    system.propose(GOOD_PLAN)
    done = system.order(SetMode("auto", "ann"))
    assert done.version == 2
    assert system.force.kind == "planned"
    assert system.machine.settings.mode == "auto"
    assert system.store.read("settings").mode == "auto"
    assert system.refuse(SetMode("sometimes", "ann")) == (
        "there is no mode 'sometimes'; choose auto or manual"
    )


def test_a_plan_that_is_none_of_ours_is_an_alarm_until_a_better_one_comes() -> None:
    system = make_desks(mode="manual")
    many = make_plan(WANTS, {"EUR": 0, "GBP": 1, "AU": 2, "AG": 2}, (0, 1, 2))
    system.propose(many)
    (alarm,) = system.alarms("no plan found")
    assert "more than 2 groups and 2 sessions" in alarm.says
    twice = replace(
        GOOD_PLAN,
        placement_flow=np.array([0, 0, 1, 2, 3], np.int32),
        placement_session=np.array([0, 1, 1, 0, 0], np.int32),
    )
    system.propose(twice, version=2)
    assert system.alarms("no plan found")
    assert system.status.proposal is None
    system.propose(GOOD_PLAN, version=3)
    assert not system.alarms("no plan found")
    assert system.status.proposal is not None


def test_the_plan_of_a_proposal_stays_stored_when_an_old_version_with_it_is_dropped() -> None:
    system = make_desks(mode="manual", keep_versions=2)
    system.propose(GOOD_PLAN)
    name = system.store.read(PROPOSAL).plan
    kept = system.machine._check([DropPlan(name), DropPlan("other")])
    assert kept == [DropPlan("other")]
