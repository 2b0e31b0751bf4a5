"""Reports of members add up to what happened, whatever is cut, repeated or kept for long."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.control.reporting import (
    PublisherFigures,
    PublisherReporter,
    ReceiverFigures,
    ReceiverReporter,
)
from distributary.control.reports import NAMES_EVERY, PublisherReport, ReceiverReport
from distributary.control.tally import FlowTally, TallyLimits

TIGHT = TallyLimits(flows=6, kept=12, seconds=5, counts=3, name_bytes=8, longest_name=6)
ROOMY = TallyLimits()
FLOWS = ["a", "b", "ü", "IBM", "", "a name", "too long a name", "\ud800", "x", "y"]


class Service:
    """What a control plane makes of reports: copies left out, names resolved, counts added up."""

    def __init__(self) -> None:
        self.next = 0
        self.names: dict[int, str] = {}
        self.messages: Counter[str] = Counter()
        self.by_second: Counter[tuple[int, str]] = Counter()
        self.uncounted = self.unplanned = 0

    def take(self, report: PublisherReport) -> None:
        encoded = msgspec.msgpack.encode(report)
        report = msgspec.msgpack.decode(encoded, type=PublisherReport)
        if report.number < self.next:
            return
        assert report.number == self.next
        self.next += 1
        self.names |= dict(enumerate(report.names, report.first_name))
        for after, number, messages in report.counts:
            assert messages > 0
            self.messages[self.names[number]] += messages
            self.by_second[report.first_second + after, self.names[number]] += messages
        self.uncounted += report.uncounted
        self.unplanned += report.unplanned


@dataclasses.dataclass(frozen=True)
class Publish:
    flow: str
    times: int


@dataclasses.dataclass(frozen=True)
class EndSecond:
    later: int
    """seconds; where it is negative the clock steps back"""


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A report goes to the service: it arrives, and the answer to that, or not."""

    arrives: bool
    answered: bool


STEPS = st.lists(
    st.one_of(
        st.builds(Publish, st.sampled_from(FLOWS), st.integers(1, 5)),
        st.builds(EndSecond, st.integers(-2, 4)),
        st.builds(Exchange, st.booleans(), st.booleans()),
    ),
    max_size=120,
)


def exchange(reporter: PublisherReporter, service: Service, step: Exchange) -> None:
    report = reporter.next_report()
    if report is not None and step.arrives:
        service.take(report)
        if step.answered:
            reporter.confirm()


def deliver_all(reporter: PublisherReporter, service: Service) -> None:
    for _ in range(1_000):
        report = reporter.next_report()
        if report is None:
            return
        service.take(report)
        reporter.confirm()
    raise AssertionError("the reports never end")


@given(steps=STEPS, limits=st.sampled_from([TIGHT, ROOMY]))
def test_counts_that_are_reported_are_the_messages_that_were_published(
    steps: list[Publish | EndSecond | Exchange], limits: TallyLimits
) -> None:
    reporter, service = PublisherReporter("i", limits), Service()
    published: Counter[str] = Counter()
    second, unplanned = 1_000, 0
    for step in steps:
        if isinstance(step, Publish):
            for _ in range(step.times):
                reporter.tally.count(step.flow)
            published[step.flow] += step.times
        elif isinstance(step, EndSecond):
            second, unplanned = second + step.later, unplanned + 1
            reporter.note(second, PublisherFigures(float(second), unplanned=unplanned))
        else:
            exchange(reporter, service, step)
        in_service = service.messages.total() + service.uncounted
        assert 0 <= published.total() - in_service <= reporter.kept <= published.total()
    reporter.note(second + 1, PublisherFigures(float(second + 1), unplanned=unplanned))
    deliver_all(reporter, service)
    assert reporter.kept == 0
    assert service.unplanned == unplanned
    assert service.messages.total() + service.uncounted == published.total()
    named = {flow: service.messages[flow] for flow in service.messages}
    assert named == {flow: n for flow, n in published.items() if flow in named}
    if limits is ROOMY:
        assert service.uncounted == published["\ud800"]
    else:
        assert len(named) <= limits.flows


def test_each_second_is_counted_apart_while_that_is_not_too_much() -> None:
    reporter, service = PublisherReporter("i"), Service()
    for second in range(3_600):
        reporter.tally.count("a")
        reporter.tally.count("b")
        reporter.note(second, PublisherFigures(float(second)))
    deliver_all(reporter, service)
    assert service.by_second == Counter(
        {(second, flow): 1 for second in range(3_600) for flow in "ab"}
    )


def test_more_than_an_hour_is_kept_in_coarser_seconds() -> None:
    tally = FlowTally()
    for second in range(10_000):
        tally.count("a")
        tally.close_second(second)
    assert tally.messages == 10_000
    portion = tally.take_portion()
    assert tally.is_empty
    assert len(portion.counts) <= 3_600
    assert sum(messages for _, _, messages in portion.counts) == 10_000
    assert max(messages for _, _, messages in portion.counts) <= 16


def test_a_service_that_begins_with_the_last_minute_of_reports_knows_all_names() -> None:
    reporter, late = PublisherReporter("i", TIGHT._replace(name_bytes=2)), Service()
    reports = []
    for second in range(100):
        if second < 5:
            reporter.tally.count(f"f{second}")
        reporter.tally.count("f0")
        reporter.note(second, PublisherFigures(float(second)))
        while (report := reporter.next_report()) is not None:
            reports.append((second, report))
            reporter.confirm()
    latest = [report for second, report in reports if second >= 40]
    late.next = latest[0].number
    late.names = {0: "not known yet"}
    for report in latest:
        late.take(report)
    assert [late.names[number] for number in range(5)] == [f"f{number}" for number in range(5)]
    assert len(latest) <= 60 + 5 * (60 // NAMES_EVERY + 1)


@given(
    totals=st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40),
)
def test_what_receivers_report_adds_up(totals: list[tuple[int, bool]]) -> None:
    reporter = ReceiverReporter("i")
    delivered = heard = seconds = at = 0
    expected = 0
    for more, answered in [*totals, (0, True), (0, True)]:
        at += 1
        delivered += more
        reporter.note(ReceiverFigures(float(at), wanted=delivered))
        report = reporter.next_report()
        assert report is not None
        assert report.number == expected
        if answered:
            heard, seconds = heard + report.wanted, seconds + int(report.seconds)
            reporter.confirm()
            expected += 1
        assert reporter.kept == delivered - heard
    assert heard == delivered
    assert seconds <= at


@pytest.mark.parametrize("wrong", [-1, (1 << 40) + 1, 1 << 63])
def test_reports_with_numbers_out_of_bounds_cannot_be_read(wrong: int) -> None:
    published = PublisherReport("i", 0, ("a",), 1_000, ((0, 0, 5),), 1, 0, 1.0, 0.0)
    received = ReceiverReport("i", 0, 1.0, 5, 0, 0, 1, 0, 0, 0, (), 0.0)
    for report in (published, received):
        encoded = msgspec.msgpack.encode(report)
        assert msgspec.msgpack.decode(encoded, type=type(report)) == report
        for name, value in msgspec.structs.asdict(report).items():
            if isinstance(value, int):
                bad = msgspec.msgpack.encode(msgspec.structs.replace(report, **{name: wrong}))
                with pytest.raises(msgspec.ValidationError):
                    msgspec.msgpack.decode(bad, type=type(report))
    counts = msgspec.structs.replace(published, counts=((0, 0, wrong),))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(counts), type=PublisherReport)


def test_a_publisher_reports_how_full_its_packets_are_and_what_it_costs() -> None:
    reporter = PublisherReporter("i")
    reporter.note(1, PublisherFigures(10.0, 3, 0, 0, 0, 5.0))
    first = reporter.next_report()
    reporter.confirm()
    reporter.note(2, PublisherFigures(12.0, 4, 7, 100, 25, 6.0))
    second = reporter.next_report()
    assert first is not None
    assert second is not None
    assert (second.plan_version, second.unplanned) == (4, 7)
    assert (second.messages_per_packet, second.cpu_share) == (4.0, 0.5)
