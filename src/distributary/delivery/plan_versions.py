"""Which plan versions a receiver follows, and of which incarnation of the sender."""

from __future__ import annotations

from distributary.delivery.actions import NeedPlan, Restarted
from distributary.delivery.asking import Asking
from distributary.delivery.incoming import Following
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.subscriptions import MOST_VERSIONS, Progress, Subscriptions
from distributary.delivery.wire import Announcement

__all__ = ["PlanVersions"]

_NEVER = float("inf")
_MOST_PROGRESS = 4  # incarnations whose progress is kept


class PlanVersions:
    """Follows the announced versions, and drops those that are over."""

    def __init__(
        self, subs: Subscriptions, reassembly: Reassembly, asking: Asking, params: ReceiverParams
    ) -> None:
        self._subs = subs
        self._reassembly = reassembly
        self._asking = asking
        self._params = params
        self._present = False  # whether the receiver was there before the plan took effect
        self._progress: dict[int, Progress] = {}  # of incarnations that were followed before

    def change_incarnation(
        self, incarnation: int, announced: Announcement, *, restarted: bool
    ) -> None:
        """Change to another incarnation: give up what is missing of the old one, and drop it."""
        old, reassembly = self._reassembly.incarnation, self._reassembly
        progress = self._subs.progress()
        for following in list(self._subs.followings.values()):
            reassembly.abandon(following, "restart", end_matters=False)
            self._subs.forget(following.version)
        if restarted:
            reassembly.actions.append(Restarted(old, incarnation))
            self._progress[old] = self._subs.progress()._replace(last=progress.last)
            if len(self._progress) > _MOST_PROGRESS:
                del self._progress[next(iter(self._progress))]
        # A receiver that followed another incarnation, or was there before this one began, starts
        # with message 1 of each flow. Others begin with whatever message of a flow comes first.
        self._present = self._present or announced.current == 0
        known = self._progress.pop(incarnation, Progress({}, {}))
        self._subs.change_incarnation(1 if self._present else 0, known)
        reassembly.incarnation = incarnation

    def adopt(self, announced: Announcement, now: float) -> None:
        """Follow the announced plan versions, and drop those that the sender has dropped."""
        for version, following in list(self._subs.followings.items()):
            if version in (announced.current, announced.following):
                continue
            called_off = version > announced.previous
            if called_off or version < announced.floor:
                self._reassembly.abandon(following, "change", end_matters=not called_off)
                self._subs.forget(version)
            else:
                self._drain(following, now)
        self._follow(announced.current, announced.current_fingerprint, announced, now)
        self._follow(announced.following, announced.following_fingerprint, announced, now)
        self._reassembly.open_versions()

    def _follow(self, version: int, fingerprint: int, announced: Announcement, now: float) -> None:
        if not version or version in self._subs.followings:
            return
        plan = self._subs.find_plan(fingerprint)
        if plan is None:
            need = NeedPlan(version, fingerprint, announced.where)
            self._reassembly.actions.append(need)
            return
        if not self._reassembly.close_versions_after(version):
            return  # a later version has delivered messages already
        self._make_room_for_version()
        begins = version == announced.following
        from_start = begins or self._present or self._params.history
        self._subs.follow(version, plan, from_start=from_start)
        self._present = True
        if self._subs.silent:
            self._asking.begin(now)

    def _make_room_for_version(self) -> None:
        """Make room in the tables for another version."""
        while len(self._subs.followings) >= MOST_VERSIONS:
            oldest = next(iter(self._subs.followings.values()))
            self._reassembly.abandon(oldest, "change")
            self._subs.forget(oldest.version)

    def _drain(self, following: Following, now: float) -> None:
        """Ask where the sessions of this version end, since the sender uses a later one."""
        for stream in following.streams.values():
            if stream.end is None and stream.poll_at == _NEVER:
                stream.poll_at = now + self._params.repair_wait
                self._subs.troubled[stream] = None
