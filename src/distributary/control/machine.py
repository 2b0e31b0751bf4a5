"""The machine of a control plane: what members write and report in, decisions out.

Its host serves it alone: it holds the lease. The machine does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distributary.control.alarms import AlarmBoard, Alarming, Cause
from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.counts import FlowCounts
from distributary.control.deciding import Deciding
from distributary.control.history import TrafficHistory
from distributary.control.interest import InterestCopy, LiveInterest
from distributary.control.judging import Judge
from distributary.control.messages import (
    AnswerRequest,
    Ask,
    ConnectionChanged,
    ControlAction,
    ControlMessage,
    Decide,
    DropPlan,
    HostTrouble,
    InterestChanged,
    PlanFetched,
    Proposed,
    PublisherChanged,
    PublisherReported,
    ReceiverReported,
    Restored,
    StandBysCounted,
    StreamChanged,
    WriteCounts,
    WriteInterest,
)
from distributary.control.orders import Orders
from distributary.control.plan_keeper import PlanKeeper
from distributary.control.proposals import Proposals
from distributary.control.publishers import Publisher
from distributary.control.requests import (
    Answer,
    Changes,
    FlowRequest,
    History,
    Look,
    LookRequest,
    PlanRequest,
    ReceiverRequest,
)
from distributary.control.roster import Roster
from distributary.control.settings import ControlSettings
from distributary.control.status import (
    ControlStatus,
    HistoryPoint,
    ServiceStatus,
    StreamStatus,
    VersionStatus,
    Waste,
)
from distributary.control.views import Views
from distributary.machines import SetTimer

__all__ = ["ControlMachine"]

TICK, PLACE = "tick", "place"
TICK_S = 1.0
SETTLE_S = 1.0  # what changes nothing that anybody misses waits for more of its kind
APART_S = 0.5  # between two versions that place flows, since each costs all members something
JUDGE_LATE = 30.0  # seconds of counts that are kept after the window of a judgement


class ControlMachine:
    """Decides which plan is in force. Before `start` it only takes in what there is.

    `addresses` gives the address of a group by its number.
    """

    def __init__(
        self,
        settings: ControlSettings,
        restored: Restored,
        *,
        addresses: Callable[[int], str],
    ) -> None:
        self._interest = LiveInterest()
        self._counts = FlowCounts(settings.rate_window, settings.judge_over + JUDGE_LATE)
        self._written = InterestCopy(self._interest)
        self._audit = AuditLog(restored.audit)
        self._roster = Roster(settings)
        self._history = TrafficHistory()
        keeper = PlanKeeper(settings, restored, self._interest, self._counts, self._audit)
        proposals = Proposals(keeper, self._interest, self._audit, restored)
        judge = Judge(settings, self._roster, self._history)
        self._keeper, self._proposals, self._judge = keeper, proposals, judge
        self._deciding = Deciding(keeper, proposals, judge, self._audit, self._counts)
        self._orders = Orders(
            keeper, self._deciding, proposals, self._audit, self._interest, restored.most_bytes
        )
        self._alarming = Alarming(self._roster, keeper, proposals, self._deciding, self._history)
        self._board = AlarmBoard()
        self._views = Views(keeper, self._interest, self._counts, self._roster, addresses)
        self._stream = StreamStatus("off")
        self._troubles: dict[tuple[str, str], Cause] = {}
        self._where, self._since = restored.where, 0.0
        self._stand_bys, self._cpu_seconds = 0, 0.0
        self._is_serving = False
        self._place_at: float | None = None

    @property
    def settings(self) -> ControlSettings:
        """The settings now."""
        return self._keeper.settings

    def start(self, now: float) -> list[ControlAction]:
        """Begin to serve, with all interest and the last reports there."""
        self._is_serving, self._since = True, now
        self._roster.tick(now)
        if self._keeper.plan is not None:
            self._judge.note_plan(self._keeper.plan, now)
        actions = [*self._keeper.catch_up(), *self._keeper.place(now), *self._deciding.resume(now)]
        return self._check([*actions, *self._write_logs(now), SetTimer(TICK, now + TICK_S)])

    def on_message(self, sender: str, message: ControlMessage, now: float) -> list[ControlAction]:
        """Handle a message of the host."""
        match message:
            case ReceiverReported():
                self._roster.take_receiver(message, now)
            case PublisherReported():
                for second, flow, messages in self._roster.take_publisher(message, now):
                    self._counts.add(second, flow, messages, now)
            case InterestChanged():
                return self._take_interest(message, now)
            case PublisherChanged():
                self._roster.write_publisher(message, now)
            case Proposed():
                return self._take_proposal(message, now)
            case PlanFetched(name, plan):
                actions = self._orders.take_fetched(message, now)
                return self._check([*actions, *self._deciding.take_fetched(name, plan, now)])
            case ConnectionChanged(is_connected):
                self._note_connection(is_connected=is_connected, now=now)
            case StreamChanged(status):
                self._stream = status
            case StandBysCounted(count, cpu_seconds):
                self._stand_bys, self._cpu_seconds = count, cpu_seconds
            case HostTrouble(what, who, says):
                self._note_trouble(what, who, says, now)
            case Ask(ticket, request):
                if isinstance(request, LookRequest):
                    return [AnswerRequest(ticket, self._look(request, now))]
                return self._check(self._orders.carry_out(ticket, request, now))
        return []

    def on_timer(self, name: str, now: float) -> list[ControlAction]:
        """Handle a timer that has expired."""
        if name == PLACE:
            self._place_at = None
            return self._check(self._keeper.place(now))
        self._counts.expire(now)
        self._keeper.weigh()
        self._roster.tick(now)
        actions = [*self._keeper.check(now), *self._deciding.judge(now)]
        if self._proposals.number is not None:
            actions += [*self._keeper.place(now), *self._deciding.look_after_pending(now)]
        actions += self._forget(now)
        self._history.add(self._measure(now))
        self._board.show(self._find_causes(now), now)
        return self._check([*actions, *self._write_logs(now), SetTimer(TICK, now + TICK_S)])

    def status(self, now: float) -> ControlStatus:
        """Everything about the control plane, now."""
        settings = self.settings
        return ControlStatus(
            prefix=settings.prefix,
            now=now,
            service=ServiceStatus(self._where, self._since, self._stand_bys, self._cpu_seconds),
            mode=settings.mode,
            tolerance=settings.tolerance,
            group_limit=settings.groups,
            session_limit=settings.sessions,
            limits=settings.limits,
            pins=settings.pins,
            force=self._describe_force(now),
            proposal=self._proposals.status,
            waste=self._roster.measure(now),
            publishers=self._roster.describe_publishers(now, self._keeper.version),
            receivers=self._roster.describe_receivers(now),
            stream=self._stream,
            alarms=self._board.show(self._find_causes(now), now),
            predicted=None if self._keeper.plan is None else self._keeper.waste(now),
            kept=self._keeper.versions.list_earlier(),
        )

    # --- what comes in ----------------------------------------------------------------------------

    def _take_interest(self, message: InterestChanged, now: float) -> list[ControlAction]:
        record, name = message.record, message.receiver
        self._roster.write_receiver(message, now)
        gained = self._interest.write(name, () if record is None else record.flows)
        self._written.note(name)
        self._keeper.note(name)
        if not self._is_serving:
            return []
        is_missed = not all(map(self._keeper.carries, gained))
        return self._place_within(self.settings.place_after if is_missed else SETTLE_S, now)

    def _place_within(self, seconds: float, now: float) -> list[ControlAction]:
        at = max(now + seconds, self._keeper.since(self._keeper.version) + APART_S)
        if self._place_at is not None and self._place_at <= at:
            return []
        self._place_at = at
        return [SetTimer(PLACE, at)]

    def _take_proposal(self, message: Proposed, now: float) -> list[ControlAction]:
        if not self._is_serving:
            return []
        actions = self._keeper.place(now)
        return self._check([*actions, *self._deciding.take_proposal(message, now)])

    def _note_connection(self, *, is_connected: bool, now: float) -> None:
        self._roster.note_connection(is_connected=is_connected, now=now)
        self._judge.disturb("the service could not hear its members", now)

    def _note_trouble(self, what: str, who: str, says: str | None, now: float) -> None:
        before = self._troubles.pop((what, who), None)
        if says is not None:
            since = now if before is None else before.since
            self._troubles[what, who] = Cause(what, who, says, since)

    # --- over time --------------------------------------------------------------------------------

    def _forget(self, now: float) -> list[ControlAction]:
        """Drop the keys of members that have been gone for long."""
        actions: list[ControlAction] = []
        for action, member, is_news in self._roster.forget(now):
            actions.append(action)
            if is_news:
                role = "publisher" if isinstance(member, Publisher) else "receiver"
                silence = member.silence(now)
                why = f"{role} {member.name!r} has not reported for {silence:,.0f} seconds"
                actions.append(self._audit.write(now, BY_CONTROL, "forgotten", why))
        return actions

    def _write_logs(self, now: float) -> list[ControlAction]:
        """What the stream does not know yet."""
        actions: list[ControlAction] = []
        changes = self._written.catch_up()
        if changes:
            rows = [(*pair, True) for pair in changes.gained]
            rows += [(*pair, False) for pair in changes.lost]
            actions.append(WriteInterest(now, tuple(rows)))
        counts = self._counts.take_rows()
        return [*actions, WriteCounts(counts)] if counts else actions

    def _measure(self, now: float) -> HistoryPoint:
        measured, predicted = self._roster.measure(now), self._keeper.waste(now)
        return HistoryPoint(now, self._keeper.version, measured, predicted)

    def _find_causes(self, now: float) -> Iterable[Cause]:
        yield from self._troubles.values()
        yield from self._alarming.find(self._stream, now)

    def _check(self, actions: list[ControlAction]) -> list[ControlAction]:
        """Note which plans come into force, and leave that of a proposal in the store."""
        waits = self._proposals.plan_name
        for action in actions:
            if isinstance(action, Decide) and action.plan is not None:
                self._judge.note_plan(action.plan, action.decision.at)
        return [a for a in actions if not (isinstance(a, DropPlan) and a.name == waits)]

    # --- looking ----------------------------------------------------------------------------------

    def _look(self, request: LookRequest, now: float) -> Answer:
        match request:
            case Look():
                return self.status(now)
            case History(after):
                return self._history.list_after(after)
            case Changes(most):
                return self._audit.newest(most)
            case PlanRequest():
                return self._views.describe_plan(now)
            case FlowRequest(flow):
                return self._views.describe_flow(flow, now)
            case ReceiverRequest(name):
                return self._views.describe_receiver(name, now)

    def _describe_force(self, now: float) -> VersionStatus | None:
        decision, plan = self._keeper.decision, self._keeper.plan
        if decision is None or plan is None:
            return None
        return VersionStatus(
            version=decision.version,
            kind=decision.kind,
            at=decision.at,
            by=decision.by,
            why=decision.why,
            flows=len(plan.flows),
            sessions=plan.n_sessions,
            groups=plan.n_groups,
            moves=decision.moves,
            predicted=decision.predicted,
            measured=self._measure_version(decision.at, now),
        )

    def _measure_version(self, at: float, now: float) -> Waste | None:
        """What receivers measured lately, once the version has been in force for long enough."""
        settings = self.settings
        after = now - settings.judge_over
        if after < at + settings.judge_after:
            return None
        measured, _, points = self._history.average(after, now)
        return measured if points >= settings.judge_over / 2 else None
