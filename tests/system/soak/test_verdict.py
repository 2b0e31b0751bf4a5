"""The judge of the soak, on made-up diaries: it must see each fault, and excuse nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.soak.diary import Line
from tests.system.soak.runs import PublisherRun, ReceiverRun
from tests.system.soak.verdict import PATIENCE, Verdict, judge

FLOW, FIRST, SECOND = "t0.0", 111, 222  # a flow, and the incarnations of its publisher's runs


def published(
    *numbers: int, run: int = 1, at: float = 10.0, dropped: tuple[int, ...] = (), well: bool = True
) -> PublisherRun:
    """A run that publishes a message a second, from `at` on."""
    lines: list[Line] = [["begin", at, "p0", run, FIRST if run == 1 else SECOND]]
    for number in numbers:
        lines.append(["sent", at + number, FLOW, number])
        if number in dropped:
            lines.append(["dropped", at + number, FLOW, number])
    lines.append(["end" if well else "stopped", at + max(numbers, default=0) + 1])
    return PublisherRun(lines)


def got(number: int, *, run: int = 1, sequence: int | None = None, at: float | None = None) -> Line:
    when = 10.1 + number if at is None else at
    return ["got", when, FLOW, number if sequence is None else sequence, run, number]


def received(*lines: Line, subscribed: float | None = 10.5, end: Line | None = None) -> ReceiverRun:
    begin: list[Line] = [["begin", 0.0, "r0", 1], ["want", 5.0, [FLOW]]]
    if subscribed is not None:
        begin.append(["subscribed", subscribed, [FLOW]])
    return ReceiverRun([*begin, *lines, end or ["end", 100.0]])


def fault(verdict: Verdict) -> dict[str, int]:
    found: dict[str, list[Any]] = {
        name: getattr(verdict, name) for name in ("lost", "doubled", "disordered", "strange")
    }
    return {name: len(listed) for name, listed in found.items() if listed}


WHOLE = [got(1), got(2), got(3), got(4)]


def test_a_view_without_faults_is_clean() -> None:
    verdict = judge([published(1, 2, 3, 4)], [received(*WHOLE)])
    assert verdict.is_clean
    assert (verdict.published, verdict.delivered, verdict.due) == (4, 4, 4)


@pytest.mark.parametrize("lacking", range(4))
def test_a_message_that_does_not_come_is_lost(lacking: int) -> None:
    came = [line for at, line in enumerate(WHOLE) if at != lacking]
    assert fault(judge([published(1, 2, 3, 4)], [received(*came)])) == {"lost": 1}


def test_nothing_is_due_before_the_subscription_is_confirmed_or_after_it_ends() -> None:
    sent = published(1, 2, 3, 4)
    assert judge([sent], [received(subscribed=None)]).is_clean
    assert judge([sent], [received(got(3), got(4), subscribed=12.5)]).is_clean
    left: list[Line] = [["leave", 12.5, [FLOW]], ["left", 12.6, [FLOW]]]
    assert judge([sent], [received(got(1), got(2), *left)]).is_clean


def test_a_message_after_the_flow_was_left_is_strange() -> None:
    left: list[Line] = [["leave", 12.5, [FLOW]], ["left", 12.6, [FLOW]]]
    view = received(got(1), got(2), *left, got(3))
    assert fault(judge([published(1, 2, 3)], [view])) == {"strange": 1}


def test_a_message_that_comes_twice_is_doubled_also_after_another_subscription() -> None:
    assert fault(judge([published(1, 2, 3, 4)], [received(*WHOLE, got(2, at=20.0))])) == {
        "doubled": 1
    }
    again: list[Line] = [
        *([got(1), got(2)]),
        *(["leave", 12.3, [FLOW]], ["left", 12.4, [FLOW]], ["want", 12.5, [FLOW]]),
        ["subscribed", 12.6, [FLOW]],
        *([got(2, at=12.7), got(3), got(4)]),
    ]
    assert fault(judge([published(1, 2, 3, 4)], [received(*again)])) == {"doubled": 1}


def test_a_message_after_a_later_one_is_disordered() -> None:
    assert fault(judge([published(1, 2, 3)], [received(got(1), got(3), got(2))])) == {
        "disordered": 1
    }
    runs = [published(1, 2, well=False), published(1, run=2, at=20.0)]
    view = received(got(1), got(1, run=2, at=21.0), got(2, at=22.0))
    assert fault(judge(runs, [view])) == {"disordered": 1}


def test_a_message_that_was_never_published_is_strange() -> None:
    for line in (got(4), got(1, run=2), got(3, sequence=2)):
        view = received(*(got(number) for number in (1, 2, 3) if number != line[5]), line)
        assert "strange" in fault(judge([published(1, 2, 3)], [view]))


def test_a_report_excuses_exactly_the_messages_that_it_names() -> None:
    def view(first: int, last: int, incarnation: int = FIRST, flow: str = FLOW) -> ReceiverRun:
        return received(got(1), ["missing", 13.5, "p0", incarnation, flow, first, last], got(4))

    sent = [published(1, 2, 3, 4)]
    assert judge(sent, [view(2, 3)]).excused == {"missing": 2}
    assert fault(judge(sent, [view(2, 2)])) == {"lost": 1}
    assert fault(judge(sent, [view(2, 3, SECOND)])) == {"lost": 2}
    assert fault(judge(sent, [view(2, 3, flow="t0.1")])) == {"lost": 2}


def test_sequence_numbers_do_not_count_dropped_messages() -> None:
    sent = [published(1, 2, 3, 4, dropped=(2,))]
    unserved: list[Line] = [["unserved", 12.2, [FLOW]], ["unserved", 12.6, []]]
    view = received(got(1), *unserved, got(3, sequence=2), got(4, sequence=3))
    assert judge(sent, [view]).is_clean
    assert "strange" in fault(judge(sent, [received(got(1), *unserved, got(3), got(4))]))


def test_a_dropped_message_is_excused_only_while_the_flow_was_reported_as_unserved() -> None:
    sent = [published(1, 2, 3, 4, dropped=(2,))]
    rest = [got(3, sequence=2), got(4, sequence=3)]
    assert fault(judge(sent, [received(got(1), *rest)])) == {"lost": 1}
    too_early: list[Line] = [["unserved", 10.6, [FLOW]], ["unserved", 10.7, []]]
    assert fault(judge(sent, [received(*too_early, got(1), *rest)])) == {"lost": 1}
    too_late: list[Line] = [["unserved", 13.2, [FLOW]], ["unserved", 13.3, []]]
    view = received(got(1), rest[0], *too_late, rest[1])
    assert fault(judge(sent, [view])) == {"lost": 1}
    others: list[Line] = [["unserved", 12.2, ["t0.1"]]]
    assert fault(judge(sent, [received(got(1), *others, *rest)])) == {"lost": 1}
    still: list[Line] = [["unserved", 12.2, [FLOW]], ["unserved", 12.3, [FLOW, "t0.1"]]]
    last = [published(1, 2, dropped=(2,))]
    assert judge(last, [received(got(1), *still)]).excused == {"unserved": 1}


def test_the_end_of_a_killed_run_is_excused_if_the_receiver_was_told() -> None:
    runs = [published(1, 2, 3, 4, 5, well=False), published(1, 2, run=2, at=30.0)]
    rest = [got(1, run=2, at=31.1), got(2, run=2, at=32.1)]
    over: Line = ["over", 31.0, "p0", FIRST]
    told = received(got(1), got(2), over, *rest)
    assert judge(runs, [told]).excused == {"over": 2}  # the fifth was perhaps never handed over
    assert fault(judge(runs, [received(got(1), got(2), *rest)])) == {"lost": 2}
    hole = received(got(1), got(3), over, *rest)
    assert fault(judge(runs, [hole])) == {"lost": 1}
    later = received(got(1), got(2), over, rest[1])
    assert fault(judge(runs, [later])) == {"lost": 1}  # the first message of the new run


def test_a_run_that_ended_in_good_order_has_no_such_excuse() -> None:
    view = received(got(1), ["over", 31.0, "p0", FIRST])
    assert fault(judge([published(1, 2)], [view])) == {"lost": 1}


def test_a_gap_excuses_what_has_no_number_yet_and_what_nothing_follows() -> None:
    sent = [published(1, 2, 3, 4)]
    gap: Line = ["gap", 13.0, "p0", FIRST, [FLOW], 0]
    assert judge(sent, [received(gap, got(3), got(4))]).excused == {"gap": 2}
    assert judge(sent, [received(got(1), got(2), gap)]).excused == {"gap": 2}
    assert fault(judge(sent, [received(got(1), gap, got(3), got(4))])) == {"lost": 1}
    other: Line = ["gap", 13.0, "p0", FIRST, ["t0.1"], 0]
    assert fault(judge(sent, [received(other, got(3), got(4))])) == {"lost": 2}
    many: Line = ["gap", 13.0, "p0", FIRST, ["t0.1"], 7]
    assert judge(sent, [received(many, got(3), got(4))]).is_clean


def test_what_was_on_its_way_when_a_flow_was_left_or_a_receiver_killed_is_excused() -> None:
    sent = [published(1, 2, 3, 4)]
    killed = received(got(1), got(2), end=["state", 14.5])
    assert judge(sent, [killed]).excused == {"ending": 2}
    assert fault(judge(sent, [received(got(1), got(3), end=["state", 14.5])])) == {"lost": 1}
    left: list[Line] = [["leave", 14.5, [FLOW]], ["left", 14.6, [FLOW]]]
    assert judge(sent, [received(got(1), got(2), *left)]).excused == {"ending": 2}


def test_nobody_may_be_cut_off_for_long_without_knowing() -> None:
    sent = [published(1, 2, 3, 4, well=False)]
    late = 13.5 + PATIENCE
    killed = received(got(1), end=["state", late])
    assert fault(judge([published(1, 2, 3, 4)], [killed])) == {"lost": 2}
    numbers = tuple(range(1, int(PATIENCE) + 5))
    sent = [published(*numbers, well=False)]
    told = received(got(1), ["over", 99.0, "p0", FIRST])
    assert fault(judge(sent, [told])) == {"lost": 4}


def test_a_killed_receiver_starts_anew() -> None:
    sent = [published(1, 2, 3, 4)]
    first = received(got(1), end=["state", 11.5])
    second = ReceiverRun(
        [
            *(["begin", 12.4, "r0", 2], ["want", 12.4, [FLOW]], ["subscribed", 12.5, [FLOW]]),
            *([got(3), got(4)], ["end", 100.0])[0],
            ["end", 100.0],
        ]
    )
    assert judge(sent, [first, second]).is_clean
