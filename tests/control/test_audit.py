"""The log of changes: what placing flows writes pushes nothing else out."""

from __future__ import annotations

from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.holding import ProposalPause
from distributary.control.requests import Changes, Rollback
from tests.control.desks import GOOD_PLAN, make_desks

PLACEMENTS = 3_000


def make_log() -> AuditLog:
    """A version that was planned, judged and rolled back, before thousands that place flows."""
    log = AuditLog()
    log.write(0.0, BY_CONTROL, "in force", "the first", version=1, kind="first")
    log.write(1.0, BY_CONTROL, "in force", "saves", version=2, kind="planned", moves=3)
    log.write(9.0, BY_CONTROL, "judged", "kept", version=2, kind="planned", lost=0)
    log.write(10.0, "ann", "in force", "back", version=3, kind="rolled back", moves=3)
    for version in range(4, 4 + PLACEMENTS):
        at = 10.0 + version / 2
        log.write(at, BY_CONTROL, "in force", "came", version=version, kind="placed")
        if version % 10 == 0:
            log.write(at, BY_CONTROL, "unserved", "flow 'f': no room")
    return log


def test_thousands_of_placements_push_no_other_entry_out():
    log = make_log()
    found = log.newest(500)
    assert len(found) == 500
    assert [entry.version for entry in found[-4:]] == [3, 2, 2, 1]
    assert [entry.lost for entry in found if entry.what == "judged"] == [0]
    numbers = [entry.number for entry in found]
    assert numbers == sorted(numbers, reverse=True)
    assert found[0].number == log.next_number - 1
    planned = log.find_version(2)
    assert planned is not None
    assert planned.kind == "planned"
    assert len(log.entries) < 1_100


def test_both_kinds_of_entries_have_room_among_the_newest():
    log = make_log()
    for number in range(300):
        log.write(9_000.0, "ann", "rejected", f"proposal {number}")
    whats = [entry.what for entry in log.newest(100)]
    assert (whats.count("rejected"), whats.count("in force") + whats.count("unserved")) == (50, 50)


def test_entries_go_on_in_order_after_a_restart():
    log = make_log()
    again = AuditLog(log.entries)
    assert again.entries == log.entries
    assert again.next_number == log.next_number
    assert [entry.number for entry in again.list_after(log.next_number - 4)] == [
        log.next_number - 3,
        log.next_number - 2,
        log.next_number - 1,
    ]


def test_a_pause_of_proposals_outlasts_placements_and_a_restart():
    before = ProposalPause(make_log()).until()
    assert before == 310.0
    assert ProposalPause(AuditLog(make_log().entries)).until() == before


def test_versions_that_moved_flows_can_be_rolled_back_to_after_many_that_placed_some():
    system = make_desks(keep_versions=4)
    system.propose(GOOD_PLAN)
    system.order(Rollback(1, "ann"))
    for number in range(12):
        system.floor.want("new", frozenset({f"N{at}" for at in range(number + 1)}), system.now)
        system.run(2)
    last = system.force.version
    assert system.status.kept == [2, 3, last - 3, last - 2, last - 1]
    assert {entry.version for entry in system.ask(Changes(10))} >= {2, 3}
    system.order(Rollback(2, "ann"))
    assert system.force.kind == "rolled back"
    assert len(system.store.plans) <= 7
