"""Who counts as gone, what raises an alarm, and that each alarm ends with its cause."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from distributary.control.messages import HostTrouble, StandBysCounted, StreamChanged
from distributary.control.status import StreamStatus
from tests.control.desks import BAD, BAD_DROPPED, GOOD_PLAN, make_desks
from tests.control.system import System


def alarms(system: System) -> set[tuple[str, str]]:
    return {(alarm.what, alarm.who) for alarm in system.status.alarms}


def test_all_is_quiet_while_nothing_is_wrong() -> None:
    assert not alarms(make_desks())


# --- members --------------------------------------------------------------------------------------


def test_a_receiver_that_is_gone_is_an_alarm_and_then_its_interest_is_dropped() -> None:
    system = make_desks(forget_after=30.0)
    killed = system.now
    system.floor.kill("metals")
    system.run(7)
    (alarm,) = system.alarms("receiver gone")
    assert alarm.who == "metals"
    assert killed - 1 <= alarm.since <= killed
    assert "its interest is dropped in 2" in alarm.says
    receivers = {each.name: each for each in system.status.receivers}
    assert [receivers[name].alive for name in ("fx", "metals")] == [True, False]
    assert receivers["metals"].waste.wanted == 0.0
    assert {"AU", "AG"} <= set(system.plan.flows)
    system.run(28)
    assert ("receiver", "metals") not in system.store.members
    assert set(system.plan.flows) == {"EUR", "GBP"}
    assert not alarms(system)
    (entry,) = system.entries("forgotten")
    assert entry.why == "receiver 'metals' has not reported for 30 seconds"


def test_a_receiver_that_comes_back_in_time_keeps_its_interest() -> None:
    system = make_desks(forget_after=30.0)
    system.floor.kill("metals")
    system.run(20)
    system.floor.want("metals", frozenset({"AU", "AG"}), system.now)
    system.run(30)
    assert not alarms(system)
    assert not system.entries("forgotten")
    assert system.force.version == 1


def test_a_publisher_that_is_gone_is_an_alarm_and_then_forgotten() -> None:
    system = make_desks(forget_after=30.0)
    system.floor.kill("feed")
    system.run(7)
    (alarm,) = system.alarms("publisher gone")
    assert "its 4 flows are silent: start it again" in alarm.says
    assert not system.status.publishers[0].alive
    system.run(30)
    assert not system.status.publishers
    assert ("publisher", "feed") not in system.store.members
    assert "publisher 'feed'" in system.entries("forgotten")[0].why
    assert ("publisher gone", "feed") not in alarms(system)


def test_a_member_that_leaves_is_no_alarm() -> None:
    system = make_desks()
    system.floor.leave("metals")
    system.floor.leave("feed")
    system.run(20)
    assert not {what for what, _ in alarms(system)} & {"receiver gone", "publisher gone"}


def test_nobody_counts_as_gone_for_what_could_not_be_heard() -> None:
    system = make_desks(forget_after=30.0)
    system.floor.kill("metals")
    system.run(8)
    system.serving.cut()
    system.run(60)
    assert alarms(system) == {("server away", ""), ("receiver gone", "metals")}
    system.serving.heal()
    system.run(2)
    assert alarms(system) == {("receiver gone", "metals")}
    assert not system.entries("forgotten")  # it gets another chance
    system.run(30)
    assert system.entries("forgotten")


def test_a_service_that_was_suspended_excuses_everybody_for_that_time() -> None:
    system = make_desks(forget_after=30.0)
    service = system.serving
    service.sleep()
    system.run(100)
    service._missed.clear()  # the server gave up on it
    service.wake()
    system.run(0.5)
    assert not {what for what, _ in alarms(system)} & {"receiver gone", "publisher gone"}
    system.run(20)
    assert alarms(system) == {("reports missing", "feed")}
    assert not system.entries("forgotten")


def test_who_is_silent_when_a_service_begins_counts_as_gone_only_after_a_while() -> None:
    system = make_desks()
    system.floor.kill("metals")
    system.run(60)
    system.serve("two")
    system.run(3)
    assert not system.alarms("receiver gone")
    system.run(4)
    assert system.alarms("receiver gone")


def test_a_publisher_that_stays_behind_is_an_alarm() -> None:
    system = make_desks()
    system.floor.edits["feed"] = lambda report: replace(report, plan_version=1)
    system.propose(GOOD_PLAN)
    system.run(4)
    assert not system.alarms("publisher behind")
    system.run(3)
    (alarm,) = system.alarms("publisher behind")
    assert "goes by version 1, 1 version behind" in alarm.says
    assert alarm.since == system.force.at
    system.floor.edits.clear()
    system.run(2)
    assert not alarms(system)


def test_reports_that_are_missing_and_messages_without_a_count_are_alarms_for_a_minute() -> None:
    system = make_desks()
    system.floor.publishers["feed"].number += 1
    system.run(3)
    assert alarms(system) == {("reports missing", "feed")}
    system.run(60)
    assert not alarms(system)
    system.floor.edits["feed"] = lambda report: replace(report, uncounted=7)
    system.run(1)
    system.floor.edits.clear()
    system.run(2)
    (alarm,) = system.alarms("messages uncounted")
    assert alarm.says.startswith("7 messages of publisher 'feed' are in no rate")
    system.run(60)
    assert not alarms(system)


@pytest.mark.parametrize(
    ("after", "messages"), [(-100_000, 5), (100_000, 5), (1 << 40, 5), (0, 1 << 41)]
)
def test_counts_of_no_sensible_second_or_number_are_in_no_rate(after: int, messages: int) -> None:
    """What a service writes for its stream, and what a successor reads again, stays sensible."""
    system = make_desks()
    system.floor.edits["feed"] = lambda report: replace(report, counts=((after, 0, messages),))
    system.run(1)
    began = int(system.now)
    system.floor.edits.clear()
    system.run(2)
    (alarm,) = system.alarms("messages uncounted")
    assert alarm.says.startswith(f"{messages:,} messages of publisher 'feed' are in no rate")
    counts = system.serving.stream.counts
    assert max(second for second, _ in counts) <= system.now
    assert min(second for second, _ in counts) >= began - 60
    assert max(counts.values()) <= 40
    msgspec.json.encode(system.status)


def test_a_name_that_somebody_else_asks_for_is_an_alarm_for_a_minute() -> None:
    """Whoever starts under a name that is taken is refused; its holder tells."""
    system = make_desks()
    for name, role in (("feed", "publisher"), ("fx", "receiver")):
        system.floor.edits[name] = lambda report: replace(
            report, claims=1, claimed_by="process 7 on floor-2"
        )
        system.run(2)
        (alarm,) = system.alarms("name taken")
        assert alarm.who == name
        assert alarm.says == (
            f"process 7 on floor-2 asked for the name of {role} {name!r}, which {name} on "
            f"{'feed' if role == 'publisher' else 'floor'}-1 has, and was refused; stop one of "
            "them, or choose another name"
        )
        system.run(61)
        assert not alarms(system)  # it was told once
        system.serve("two")
        system.run(2)
        assert not alarms(system)  # nor is it news for a successor
        system.floor.edits.clear()
        system.run(2)


def test_lost_messages_are_an_alarm_for_a_minute() -> None:
    system = make_desks()
    system.floor.receivers["fx"].missing = 3
    system.run(2)
    (alarm,) = system.alarms("messages lost")
    assert alarm.who == "fx"
    assert "reports 3 messages as missing" in alarm.says
    assert {each.name: each.missing for each in system.status.receivers}["fx"] == 3
    system.run(61)
    assert not alarms(system)


def test_a_flow_that_no_publisher_has_is_an_alarm_of_who_wants_it() -> None:
    system = make_desks()
    system.floor.want("metals", frozenset({"AU", "AG", "PT"}), system.now)
    system.floor.edits["metals"] = lambda report: replace(report, unserved=("PT",))
    system.run(4)
    assert not alarms(system)
    system.run(4)
    (alarm,) = system.alarms("flow unserved")
    assert alarm.who == "metals"
    assert alarm.says == (
        "receiver 'metals' does not get flow 'PT': no publisher has it; start one"
    )
    system.floor.publish("mint", ("PT",), system.now)
    system.run(1)
    assert "its publishers do not carry it yet" in system.alarms("flow unserved")[0].says
    system.floor.edits.clear()
    system.run(2)
    assert not alarms(system)


# --- the plan -------------------------------------------------------------------------------------


def test_waste_that_stays_above_the_prediction_is_an_alarm() -> None:
    system = make_desks(rate_window=10.0)
    system.floor.receivers["fx"].besides = BAD_DROPPED
    system.run(40)
    (alarm,) = system.alarms("waste above prediction")
    assert "170.0 are predicted" in alarm.says
    system.floor.receivers["fx"].besides = 0.0
    system.run(40)
    assert not alarms(system)


def test_a_burst_of_messages_is_no_waste_above_prediction() -> None:
    system = make_desks(rate_window=60.0)
    for factor in (50, 1 / 50, 20):
        for flow in BAD:
            system.floor.rates[flow] *= factor
        for _ in range(70):
            system.run(1)
            assert not alarms(system)


# --- the stream and the host ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "what", "says"),
    [
        (
            StreamStatus("restarting", restarts=2, last_error="was killed by signal 9"),
            "stream down",
            "the stream was killed by signal 9; it is started again by itself",
        ),
        (
            StreamStatus("running", behind_rows=1_234, behind_s=61.0),
            "stream behind",
            "1,234 rows wait for the stream, the oldest for 61 seconds; give Spark more cores",
        ),
        (
            StreamStatus("running", refused="no plan found: group 1 has 3 members, over 2"),
            "no plan found",
            "no plan found: group 1 has 3 members, over 2; loosen the limits",
        ),
    ],
)
def test_a_stream_in_trouble_is_an_alarm_until_it_is_well(
    status: StreamStatus, what: str, says: str
) -> None:
    system = make_desks()
    system.serving.tell(StreamChanged(status))
    system.run(2)
    (alarm,) = system.status.alarms
    assert alarm.what == what
    assert alarm.says.startswith(says)
    assert system.status.stream == status
    began = alarm.since
    system.run(10)
    assert system.status.alarms[0].since == began
    system.serving.tell(StreamChanged(StreamStatus("running", behind_s=3.0)))
    system.run(1)
    assert not system.status.alarms


def test_troubles_of_the_host_are_alarms_until_it_ends_them() -> None:
    system = make_desks()
    system.serving.tell(HostTrouble("damaged key", "force", "it cannot be read"))
    system.run(5)
    system.serving.tell(HostTrouble("damaged key", "force", "it still cannot be read"))
    system.serving.tell(StandBysCounted(2, 41.5))
    system.run(1)
    (alarm,) = system.status.alarms
    assert (alarm.what, alarm.who, alarm.says) == (
        "damaged key",
        "force",
        "it still cannot be read",
    )
    assert alarm.since == pytest.approx(system.now - 6, abs=0.1)
    service = system.status.service
    assert (service.stand_bys, service.cpu_seconds, service.where) == (2, 41.5, "one")
    system.serving.tell(HostTrouble("damaged key", "force", None))
    system.run(1)
    assert not system.status.alarms
