"""What one sees of the plan in force: groups, the path of a flow, a receiver, history, changes."""

from __future__ import annotations

import msgspec
import pytest

from distributary.control.requests import (
    Changes,
    FlowRequest,
    History,
    Look,
    PlanRequest,
    ReceiverRequest,
    SetLimits,
)
from distributary.control.status import SessionView
from tests.control.desks import GOOD_PLAN, SETTINGS, make_desks
from tests.control.plans import make_system
from tests.control.system import System

WANTS = {
    "ann": frozenset({"f", "g"}),
    "bob": frozenset({"g"}),
    "cleo": frozenset({"h"}),
    "dan": frozenset({"i"}),
}
PLACES = {"f": 0, "g": 0, "h": 1, "i": 2}
RATES = {"f": 1.0, "g": 2.0, "h": 4.0, "i": 8.0}


def make_views() -> System:
    """Sessions 0 and 1 share group 0; session 2 is alone in group 1."""
    settings = msgspec.structs.replace(SETTINGS, sessions=3)
    return make_system(settings, WANTS, PLACES, (0, 0, 1), RATES)


def test_the_plan_is_shown_by_groups_with_rates_members_and_addresses() -> None:
    system = make_views()
    view = system.ask(PlanRequest())
    assert view.version == system.force.version
    first, second = view.groups
    assert (first.group, first.address, first.flows, first.rate) == (0, "239.0.0.0", 3, 7.0)
    assert (first.members, first.most_members, first.most_rate) == (3, None, None)
    assert first.sessions == [
        SessionView(0, 2, 3.0, 2, ["f", "g"]),
        SessionView(1, 1, 4.0, 1, ["h"]),
    ]
    assert (second.group, second.members, second.rate) == (1, 1, 8.0)
    system.order(SetLimits("[groups]\nmembers = 5\nrate = 100\n", "ann"))
    (first, _) = system.ask(PlanRequest()).groups
    assert (first.most_members, first.most_rate) == (5, 100.0)


def test_a_session_names_its_first_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = {f"f{number:03}" for number in range(70)}
    system = make_system(SETTINGS, {"ann": frozenset(flows)}, dict.fromkeys(flows, 0), (0,), {})
    (session,) = system.ask(PlanRequest()).groups[0].sessions
    assert (session.flows, session.names) == (70, sorted(flows)[:50])
    monkeypatch.setattr("distributary.control.views._ALL_NAMED", 7)  # of so many in all sessions
    (session,) = system.ask(PlanRequest()).groups[0].sessions
    assert (session.flows, session.names) == (70, sorted(flows)[:7])


def test_the_plan_shows_who_wants_what_now() -> None:
    system = make_views()
    system.floor.want("dan", frozenset({"f", "i"}), system.now)
    system.run(0.01)  # before any new version, since nothing has to be placed
    assert system.ask(PlanRequest()).groups[0].members == 4


def test_the_path_of_a_flow_tells_who_gets_it_and_who_throws_it_away() -> None:
    path = make_views().ask(FlowRequest("f"))
    assert (path.session, path.group, path.address, path.rate) == (0, 0, "239.0.0.0", 1.0)
    assert path.wanted_by == ["ann"]
    assert path.dropped_second_by == ["bob"]
    assert path.dropped_first_by == ["cleo"]


def test_a_flow_without_a_place_has_no_session_and_an_unknown_one_is_refused() -> None:
    system = make_views()
    system.floor.want("dan", frozenset({"new"}), system.now)
    system.run(0.01)
    path = system.ask(FlowRequest("new"))
    assert (path.session, path.group, path.address, path.wanted_by) == (None, None, "", ["dan"])
    assert system.refuse(FlowRequest("nix")) == "flow 'nix' is not in the plan, and nobody wants it"


def test_a_receiver_is_shown_with_its_flows_groups_and_last_minutes() -> None:
    system = make_views()
    system.run(60)
    view = system.ask(ReceiverRequest("ann"))
    assert view.flows == ["f", "g"]
    assert view.joined == [0]
    assert view.status.name == "ann"
    assert view.status.waste.dropped_first == 4.0
    assert len(view.history) == 8
    assert {block.waste.wanted for block in view.history} == {3.0}
    assert system.refuse(ReceiverRequest("eve")) == "no receiver is called 'eve'"


def test_the_history_has_a_point_for_each_second_of_a_quarter_of_an_hour() -> None:
    system = make_views()
    began = system.now
    points = system.ask(History())
    assert len(points) == 20
    assert {point.measured.wanted for point in points[2:]} == {17.0}
    system.run(1_000)
    points = system.ask(History())
    assert len(points) == 900
    assert points == sorted(points, key=lambda point: point.at)
    assert points[-1].measured == points[-1].predicted
    later = system.ask(History(points[-10].at))
    assert later == points[-9:]
    assert began < points[0].at


def test_the_changes_are_told_newest_first() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    changes = system.ask(Changes())
    assert [entry.version for entry in changes] == [2, 1]
    assert changes == system.store.audit[::-1]
    assert system.ask(Changes(1)) == changes[:1]


def test_a_version_that_moved_flows_tells_which_and_from_where() -> None:
    system = make_desks()
    system.propose(GOOD_PLAN)
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.run(2)
    placed, planned, first = system.ask(Changes())
    assert (placed.kind, placed.moved, first.moved) == ("placed", [], [])
    assert planned.moves == len(planned.moved) == 2
    groups = {move.flow: (move.from_group, move.to_group) for move in planned.moved}
    assert sorted(groups) in (["AG", "EUR"], ["AU", "GBP"], ["AU", "EUR"], ["AG", "GBP"])
    assert sorted(groups.values()) == [(0, 1), (1, 0)]
    assert sorted(move.receivers for move in planned.moved) == [1, 2]


def test_the_status_tells_version_waste_and_members() -> None:
    system = make_views()
    system.run(20)
    status = system.ask(Look())
    force = status.force
    assert force is not None
    assert (force.version, force.flows, force.sessions, force.groups) == (1, 4, 3, 2)
    # ann drops h; bob f, h; cleo f, g.
    assert (force.measured.wanted, force.measured.dropped_first) == (17.0, 4.0 + 4.0 + 3.0)
    assert force.measured.dropped_second == 1.0
    assert status.waste == force.measured
    assert status.predicted == system.ask(History())[-1].predicted
    assert [publisher.name for publisher in status.publishers] == ["feed"]
    assert status.publishers[0].rate == 15.0
    assert [receiver.wants for receiver in status.receivers] == [2, 1, 1, 1]


def test_before_there_is_a_plan_that_is_said() -> None:
    system = System(make_desks().settings, {})
    system.serve()
    system.run(5)
    assert system.refuse(PlanRequest()) == (
        "no plan is in force yet; wait until receivers want something"
    )
    assert system.status.force is None
    assert system.status.predicted is None
    assert system.ask(History())[-1].predicted.wanted == 0.0
