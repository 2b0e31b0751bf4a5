"""Alarms: what an operator should look at, as long as it is so.

Each has the words of its cause, who it is about, and one sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from distributary.control.deciding import Deciding
from distributary.control.history import TrafficHistory, dropped
from distributary.control.members import Member
from distributary.control.plan_keeper import PlanKeeper, name_flows
from distributary.control.proposals import Proposals
from distributary.control.publishers import Publisher
from distributary.control.receivers import Receiver
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.control.roster import Roster
from distributary.control.settings import ControlSettings
from distributary.control.status import Alarm, StreamStatus

__all__ = ["SERVER_AWAY", "AlarmBoard", "Alarming", "Cause"]

_LATE = 5.0  # seconds in which a publisher takes a version, and a flow gets its place
_SHOWN = 60.0  # seconds after the last loss
_STREAM_LATE, _STREAM_TRIGGERS = 30.0, 6  # seconds at least, and triggers


@dataclass(frozen=True, slots=True)
class Cause:
    """Why there is an alarm; `since` None: since it was first noticed."""

    what: str
    who: str
    says: str
    since: float | None = None


SERVER_AWAY: Final = Cause(
    "server away",
    "",
    "the control service has no connection to its server: members go on by the plan that they "
    "have; look at the server",
)


class AlarmBoard:
    """The alarms by their cause, each since it began."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def show(self, causes: Iterable[Cause], now: float) -> list[Alarm]:
        """The alarms for the causes that there are now; those of other causes end."""
        alarms = []
        for cause in causes:
            since = self._since.get((cause.what, cause.who), now)
            since = since if cause.since is None else cause.since
            alarms.append(Alarm(cause.what, cause.who, since, cause.says))
        self._since = {(alarm.what, alarm.who): alarm.since for alarm in alarms}
        return alarms


class Alarming:
    """Finds the causes of alarms."""

    def __init__(
        self,
        roster: Roster,
        keeper: PlanKeeper,
        proposals: Proposals,
        deciding: Deciding,
        history: TrafficHistory,
    ) -> None:
        self._roster, self._keeper = roster, keeper
        self._proposals, self._deciding, self._history = proposals, deciding, history

    def find(self, stream: StreamStatus, now: float) -> Iterator[Cause]:
        """All causes that there are now, the ones about everybody first."""
        yield from self._find_deafness()
        yield from self._find_terms()
        yield from self._find_waste(now)
        yield from self._find_stream(stream)
        for publisher in self._roster.list_publishers():
            yield from self._look_at_publisher(publisher, now)
        for receiver in self._roster.list_receivers():
            yield from self._look_at_receiver(receiver, now)

    @property
    def _settings(self) -> ControlSettings:
        return self._keeper.settings

    # --- the control plane ------------------------------------------------------------------------

    def _find_deafness(self) -> Iterator[Cause]:
        deaf_at = self._roster.hearing.deaf_at
        if deaf_at is not None:
            yield replace(SERVER_AWAY, since=deaf_at)

    def _find_terms(self) -> Iterator[Cause]:
        keeper = self._keeper
        if keeper.held:
            flows = name_flows(sorted(keeper.held))
            says = f"{flows} cannot be placed: {keeper.refusal}; loosen the limits or the pins"
            yield Cause("flows held back", "", says)
        if keeper.broken:
            more = f" (and {len(keeper.broken) - 1:,} more)" if len(keeper.broken) > 1 else ""
            says = f"the plan in force breaks the limits: {keeper.broken[0]}{more}"
            remedy = "raise that limit, or take interest away"
            yield Cause("limits broken", "", f"{says}; {remedy}")

    def _find_waste(self, now: float) -> Iterator[Cause]:
        settings, window = self._settings, max(30.0, self._settings.rate_window)
        measured, predicted, points = self._history.average(now - window, now)
        expected = max(dropped(predicted), dropped(self._keeper.waste(now)))
        allowed = expected * (1 + settings.tolerance) + settings.slack
        if points >= window / 2 and dropped(measured) > allowed:
            yield Cause(
                "waste above prediction",
                "",
                f"receivers drop {dropped(measured):,.1f} messages a second, and {expected:,.1f} "
                "are predicted; look for a receiver that drops much more than others, and for "
                "other traffic on the plan's addresses",
            )
        until = self._deciding.paused_until()
        if settings.mode == "auto" and now < until:
            yield Cause(
                "proposals wait",
                "",
                "a version was rolled back, so proposals do not take effect by themselves for "
                f"another {until - now:,.0f} seconds; approve the next one, or set the mode to "
                "auto again",
            )
        if self._deciding.stuck:
            yield Cause("version not rolled back", "", f"{self._deciding.stuck}; roll back by hand")

    # --- the stream -------------------------------------------------------------------------------

    def _find_stream(self, stream: StreamStatus) -> Iterator[Cause]:
        late = max(_STREAM_LATE, _STREAM_TRIGGERS * self._settings.trigger)
        if stream.state == "restarting":
            yield Cause(
                "stream down",
                "",
                f"the stream {stream.last_error or 'ended'}; it is started again by itself, and "
                "nothing is planned meanwhile, only placed",
            )
        if stream.behind_s > late:
            yield Cause(
                "stream behind",
                "",
                f"{stream.behind_rows:,} rows wait for the stream, the oldest for "
                f"{stream.behind_s:,.0f} seconds; give Spark more cores, or a longer trigger",
            )
        refused = stream.refused or self._proposals.refused
        if refused:
            yield Cause("no plan found", "", f"{refused}; loosen the limits or the pins")

    # --- members ----------------------------------------------------------------------------------

    def _look_at_publisher(self, publisher: Publisher, now: float) -> Iterator[Cause]:
        name, roster, record = publisher.name, self._roster, publisher.record
        if roster.is_gone(publisher, now):
            flows = None if record is None or record.flows is None else len(record.flows)
            which = "what it publishes is" if flows is None else f"its {_count(flows, 'flow')} are"
            says = (
                f"publisher {name!r} has not reported for {now - publisher.heard_at:,.0f} "
                f"seconds; {which} silent: start it again"
            )
            yield Cause("publisher gone", name, says, publisher.heard_at)
        else:
            yield from self._look_at_version(publisher, now)
        yield from _look_at_claims(publisher, "publisher", record, now)
        if _is_recent(publisher.missing_at, now):
            yield Cause(
                "reports missing",
                name,
                f"reports of publisher {name!r} are missing, so its rates are too low; look at the "
                "disk and the limits of the server",
            )
        if _is_recent(publisher.uncounted_at, now):
            yield Cause(
                "messages uncounted",
                name,
                f"{publisher.uncounted:,} messages of publisher {name!r} are in no rate: it has "
                "too many flows, or its clock is off by more than a day; give some flows to "
                "another publisher, or set the clock",
            )

    def _look_at_version(self, publisher: Publisher, now: float) -> Iterator[Cause]:
        behind = self._keeper.version - publisher.plan_version
        if behind <= 0 or publisher.last is None or publisher.record is None:
            return
        since = max(self._keeper.since(publisher.plan_version + 1), publisher.record.at)
        if now - since > _LATE:
            yield Cause(
                "publisher behind",
                publisher.name,
                f"publisher {publisher.name!r} goes by version {publisher.plan_version}, "
                f"{_count(behind, 'version')} behind; look at its log and its connection",
                since,
            )

    def _look_at_receiver(self, receiver: Receiver, now: float) -> Iterator[Cause]:
        name, roster = receiver.name, self._roster
        if roster.is_gone(receiver, now):
            left = roster.forget_after - receiver.silence(roster.hearing.limit(now))
            says = (
                f"receiver {name!r} has not reported for {now - receiver.heard_at:,.0f} seconds; "
                f"its interest is dropped in {max(0.0, left):,.0f} seconds unless it comes back"
            )
            yield Cause("receiver gone", name, says, receiver.heard_at)
        elif receiver.unserved_since is not None and now - receiver.unserved_since > _LATE:
            yield from self._explain_unserved(receiver)
        yield from _look_at_claims(receiver, "receiver", receiver.record, now)
        if _is_recent(receiver.lost_at, now):
            yield Cause(
                "messages lost",
                name,
                f"receiver {name!r} reports {_count(receiver.lost, 'message')} as missing; look at "
                "its CPU and its network, and at the publishers' buffers for retransmission",
            )

    def _explain_unserved(self, receiver: Receiver) -> Iterator[Cause]:
        keeper = self._keeper
        flows = [] if receiver.last is None else list(receiver.last.unserved)
        flows = [flow for flow in flows if flow not in keeper.held]  # they have an alarm
        if not flows:
            return
        first = flows[0]
        if not keeper.carries(first):
            why = "the plan has no place for it yet"
        elif self._is_published(first):
            why = "its publishers do not carry it yet; look whether they are behind"
        else:
            why = "no publisher has it; start one"
        says = f"receiver {receiver.name!r} does not get {name_flows(flows)}: {why}"
        yield Cause("flow unserved", receiver.name, says, receiver.unserved_since)

    def _is_published(self, flow: str) -> bool:
        records = (publisher.record for publisher in self._roster.publishers.values())
        return any(
            record is not None and (record.flows is None or flow in record.flows)
            for record in records
        )


def _look_at_claims(
    member: Member, role: str, record: InterestRecord | PublisherRecord | None, now: float
) -> Iterator[Cause]:
    if record is not None and _is_recent(member.claimed_at, now):
        yield Cause(
            "name taken",
            member.name,
            f"{member.claimed_by or 'another process'} asked for the name of {role} "
            f"{member.name!r}, which {record.where} has, and was refused; stop one of them, or "
            "choose another name",
            member.claimed_at,
        )


def _is_recent(at: float | None, now: float) -> bool:
    return at is not None and now - at <= _SHOWN


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
