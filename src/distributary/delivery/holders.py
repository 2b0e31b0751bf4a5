"""Which publisher each flow is taken from: one at a time.

A receiver takes a flow from the publisher that offers it. When that one lets the flow go, leaves or
is gone, the receiver goes on with another one that offers it: at once if the flow's numbers go on
there, else when all that the first one sent has arrived or was given up. A publisher that claims a
flow which another one holds is reported, and nothing of the flow is taken from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from distributary.delivery.actions import Contested, HandedOver
from distributary.delivery.incoming import IncomingFlow, Numbering
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.subscriptions import Subscriptions

if TYPE_CHECKING:
    from distributary.delivery.followed import FollowedPublisher

__all__ = ["Holders"]


class Holders:
    """Gives flows to publishers; `publishers` has those that are followed, by row."""

    def __init__(self, subs: Subscriptions, reassembly: Reassembly) -> None:
        self._subs = subs
        self._reassembly = reassembly
        self.publishers: dict[int, FollowedPublisher] = {}
        self._contested: dict[tuple[str, str], list[str]] = {}  # by holder and claimant
        self._handed: dict[tuple[str, str, bool], list[str]] = {}  # by old, new, and whether anew
        self.dropped: set[str] = set()  # flows that a plan has dropped, until somebody takes note

    def take_route(
        self,
        publisher: FollowedPublisher,
        name: str,
        now: float,
        marks: Mapping[int, int] | None,
    ) -> None:
        """Take from a publisher's directory where a flow travels."""
        flow = self._subs.flows.get(name)
        if flow is None or flow.retired:
            return
        if marks is not None:
            publisher.marks_of[name] = marks
        if flow.row == publisher.row:
            if publisher.offers(name) and publisher.claim_on(name).since != flow.since:
                # It was let go and claimed again, which the journal has not told.
                publisher.give_up(flow)
                flow.row = -1
                self.choose(flow, now, publisher, marks)
                return
            publisher.follow(flow, now, marks)
            if not publisher.offers(name):
                flow.row = -1
                self.choose(flow, now)
                if flow.row < 0 and not publisher.has_released(name):
                    self.dropped.add(name)
        elif flow.row < 0:
            self.choose(flow, now, publisher, marks)
        else:
            self._decide_on_claim(flow, publisher, now, marks)

    def choose(
        self,
        flow: IncomingFlow,
        now: float,
        publisher: FollowedPublisher | None = None,
        marks: Mapping[int, int] | None = None,
    ) -> None:
        """Find a publisher for a flow that is taken from none; `marks` are those of `publisher`."""
        if flow.retired or flow.row >= 0:
            return
        found = [each for each in self.publishers.values() if each.offers(flow.name)]
        if not found:
            self._subs.changes += 1  # have it told if nobody has the flow
            return
        best, *others = sorted(found, key=lambda each: self._rank(flow, each))
        if flow.legs and self._numbering(flow, best) != flow.numbering:
            return  # it is chosen when these legs are complete
        self._take(flow, best, now, marks if best is publisher else None)
        for other in others:
            self._decide_on_claim(flow, other, now, None)

    def check_claims(self, claimant: FollowedPublisher, names: Iterable[str], now: float) -> None:
        """Decide again on the claims of a publisher, as it has begun to send or is back."""
        for name in sorted(names):
            flow = self._subs.flows.get(name)
            if flow is None or flow.retired or flow.row == claimant.row:
                continue
            if flow.row < 0:
                self.choose(flow, now)
            else:
                self._decide_on_claim(flow, claimant, now, None)

    def abandon(self, publisher: FollowedPublisher, now: float) -> tuple[str, ...]:
        """Find other publishers for the flows of one that is gone; returns these flows."""
        flows = [flow for flow in self._subs.flows.values() if flow.row == publisher.row]
        self._reassembly.abandon(publisher.row, "gone")
        for flow in flows:
            self.choose(flow, now)
        return tuple(sorted(flow.name for flow in flows))

    def report(self) -> None:
        """Report the flows that were handed over, and those that are contested."""
        actions = self._reassembly.actions
        for (old, new, anew), names in self._handed.items():
            actions.append(HandedOver(old, new, tuple(sorted(names)), anew))
        for (holder, claimant), names in self._contested.items():
            actions.append(Contested(holder, claimant, tuple(sorted(names))))
        if self._handed or self._contested:
            self._handed, self._contested = {}, {}

    def _rank(self, flow: IncomingFlow, publisher: FollowedPublisher) -> tuple[bool, int, str]:
        other = self._numbering(flow, publisher) != flow.numbering
        return other, publisher.claim_on(flow.name).since, publisher.identity.name

    def _numbering(self, flow: IncomingFlow, publisher: FollowedPublisher) -> Numbering:
        """With whom the numbers began by which a publisher sends a flow.

        A publisher that goes on with numbers which another one has given out already did not know
        of that one. Its numbers are others, then, although its claim says that they are the same.
        """
        claim = publisher.claim_on(flow.name)
        own = publisher.identity.number, claim.since
        if flow.numbering == own:
            return own
        taken = claim.next < abs(int(self._subs.state.next_of[flow.slot]))
        forks = taken and claim.since != flow.since and claim.numbering == flow.numbering
        return own if forks else claim.numbering

    def _take(
        self,
        flow: IncomingFlow,
        publisher: FollowedPublisher,
        now: float,
        marks: Mapping[int, int] | None,
    ) -> None:
        """Take a flow from a publisher from now on."""
        claim, new = publisher.claim_on(flow.name), publisher.identity.name
        numbering = self._numbering(flow, publisher)
        anew = numbering != flow.numbering
        again = anew and claim.since != publisher.incarnation  # else a restart was reported
        came = abs(int(self._subs.state.next_of[flow.slot])) > 1  # anything of the flow
        came |= self._subs.knows(flow, numbering)
        if flow.publisher and came and (flow.publisher != new or again):
            self._handed.setdefault((flow.publisher, new, anew), []).append(flow.name)
        first = claim.next if publisher.takes_from_start(flow) else 0
        self._subs.number(flow, numbering, first)
        flow.row, flow.publisher, flow.since = publisher.row, new, claim.since
        publisher.contested.discard(flow.name)
        publisher.follow(flow, now, publisher.marks_of.get(flow.name) if marks is None else marks)

    def _decide_on_claim(
        self,
        flow: IncomingFlow,
        claimant: FollowedPublisher,
        now: float,
        marks: Mapping[int, int] | None,
    ) -> None:
        """Decide on a publisher's claim on a flow that is taken from another one."""
        if not claimant.offers(flow.name):
            claimant.contested.discard(flow.name)
            return
        if not claimant.presence.is_proven:
            return  # it counts once it is
        holder = self.publishers[flow.row]
        earlier = self._rank(flow, claimant)[1:] < self._rank(flow, holder)[1:]
        doubtful = not holder.presence.is_proven
        if doubtful or (not holder.started and earlier and claimant.started):
            holder.note_lost(flow)
            self._reassembly.leave_publisher(flow, holder.row)
            flow.row = -1
            self._take(flow, claimant, now, marks)
        elif (
            claimant.started
            and flow.name not in claimant.contested
            and self._numbering(flow, claimant) != flow.numbering
        ):
            claimant.contested.add(flow.name)
            both = holder.identity.name, claimant.identity.name
            self._contested.setdefault(both, []).append(flow.name)
