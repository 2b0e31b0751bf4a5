"""Which plan versions a receiver follows, and of which incarnation of the sender."""

from __future__ import annotations

from distributary.delivery.actions import NeedPlan, Restarted
from distributary.delivery.feedback import Feedback
from distributary.delivery.incoming import FollowedVersion
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.subscriptions import MOST_VERSIONS, Progress, Subscriptions
from distributary.delivery.wire import Announcement

__all__ = ["PlanVersions"]

_NEVER = float("inf")
_MOST_PROGRESS = 4  # incarnations whose progress is kept


class PlanVersions:
    """Follows the announced versions, and drops those that the sender has dropped."""

    def __init__(
        self,
        subs: Subscriptions,
        reassembly: Reassembly,
        feedback: Feedback,
        params: ReceiverParams,
    ) -> None:
        self._subs = subs
        self._reassembly = reassembly
        self._feedback = feedback
        self._params = params
        self._from_start = False  # whether streams start at packet 1: it followed the sender before
        self._progress: dict[int, Progress] = {}  # of incarnations that were followed before

    def change_incarnation(
        self, incarnation: int, announced: Announcement, *, restarted: bool
    ) -> None:
        """Change to another incarnation: give up what is missing of the old one, and drop it."""
        old, reassembly = self._reassembly.incarnation, self._reassembly
        progress = self._subs.progress()
        for followed in list(self._subs.versions.values()):
            reassembly.abandon(followed, "restart", end_matters=False)
            self._subs.forget(followed.version)
        if restarted:
            reassembly.actions.append(Restarted(old, incarnation))
            self._progress[old] = self._subs.progress()._replace(last=progress.last)
            if len(self._progress) > _MOST_PROGRESS:
                del self._progress[next(iter(self._progress))]
        # A receiver that followed another incarnation, or heard this one before its first packet,
        # starts with message 1 of each flow. Others start with the first message that arrives.
        self._from_start = self._from_start or announced.current == 0
        known = self._progress.pop(incarnation, Progress({}, {}))
        self._subs.change_incarnation(1 if self._from_start else 0, known)
        reassembly.incarnation = incarnation

    def adopt(self, announced: Announcement, now: float) -> None:
        """Follow the announced plan versions, and drop those that the sender has dropped."""
        for version, followed in list(self._subs.versions.items()):
            if version in (announced.current, announced.upcoming):
                continue
            cancelled = version > announced.previous
            if cancelled or version < announced.floor:
                self._reassembly.abandon(followed, "change", end_matters=not cancelled)
                self._subs.forget(version)
            else:
                self._drain(followed, now)
        self._follow(announced.current, announced.current_fingerprint, announced, now)
        self._follow(announced.upcoming, announced.upcoming_fingerprint, announced, now)
        self._reassembly.open_versions()

    def _follow(self, version: int, fingerprint: int, announced: Announcement, now: float) -> None:
        if not version or version in self._subs.versions:
            return
        plan = self._subs.find_plan(fingerprint)
        if plan is None:
            need = NeedPlan(version, fingerprint, announced.where)
            self._reassembly.actions.append(need)
            return
        if not self._reassembly.close_versions_after(version):
            return  # a later version has delivered messages already
        self._make_room_for_version()
        begins = version == announced.upcoming
        from_start = begins or self._from_start or self._params.history
        self._subs.follow(version, plan, from_start=from_start)
        self._from_start = True
        if self._subs.unheard:
            self._feedback.start_plan_requests(now)

    def _make_room_for_version(self) -> None:
        """Make room in the tables for another version."""
        while len(self._subs.versions) >= MOST_VERSIONS:
            oldest = next(iter(self._subs.versions.values()))
            self._reassembly.abandon(oldest, "change")
            self._subs.forget(oldest.version)

    def _drain(self, followed: FollowedVersion, now: float) -> None:
        """Ask where the sessions of this version end, since the sender uses a later one."""
        for stream in followed.streams.values():
            if stream.end is None and stream.poll_at == _NEVER:
                stream.poll_at = now + self._params.repair_wait
                self._subs.pending[stream] = None
