"""Follows flows from stream to stream, as a publisher's directory says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributary.delivery.directory_wire import FlowEntry, Place, receiver_key
from distributary.delivery.incoming import IncomingFlow, Leg, PublisherIdentity
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.subscriptions import Subscriptions

__all__ = ["FlowRouter"]

_MOST_LEGS = 16  # of a flow that moves on before its last move is complete


class FlowRouter:
    """Chooses the stream from which each flow is taken, now and by the upcoming plan."""

    def __init__(self, receiver: str, subs: Subscriptions, reassembly: Reassembly) -> None:
        self.key = receiver_key(receiver)
        self._subs = subs
        self._reassembly = reassembly
        self.preferred: frozenset[int] = frozenset()  # groups that the plan means for the receiver

    def follow(
        self,
        flow: IncomingFlow,
        publisher: PublisherIdentity,
        entry: FlowEntry | None,
        now: float,
        *,
        marks: Mapping[int, int] | None = None,
        from_start: bool = False,
    ) -> None:
        """Take a flow from where it travels now, and make ready for where it will travel.

        `marks` has the last packets before the flow moved; without them it is not known what the
        receiver missed, which is reported. `from_start` has all packets of a stream, from 1 on. A
        flow that moves from one publisher to another is left by the first before it is followed
        to the second.
        """
        planned = flow.legs.pop() if flow.prepared else None
        flow.prepared = False
        current = flow.legs[-1] if flow.legs and flow.legs[-1].until is None else None
        place = None if entry is None else self._choose(publisher, entry.places, current, planned)
        same = current is not None and entry is not None and current.number == entry.number
        if place is None or current is None or place.stream != current.stream.number or not same:
            blind = False
            if current is not None:
                if entry is not None and entry.released and entry.claim is not None:
                    current.final = entry.claim.next
                blind = self._end_leg(flow, current, marks, now)
            current = None
            if entry is not None and place is not None:
                current = self._make_leg(publisher, entry.number, place, planned)
                planned = None if planned is current else planned
                flow.legs.append(current)
                self._begin_leg(current, marks, from_start, now)
                if blind:
                    self._reassembly.report_passed(current)
        if entry is not None and entry.upcoming is not None:
            later = self._choose(publisher, entry.upcoming, current, planned)
            if later is not None and (current is None or later.stream != current.stream.number):
                leg = self._make_leg(publisher, entry.number, later, planned)
                planned = None if planned is leg else planned
                flow.legs.append(leg)
                flow.prepared = True
        if planned is not None:
            flow.legs.append(planned)
            self._reassembly.drop_leg(flow, planned)
        self._subs.place(flow)
        self._reassembly.settle(flow)
        self._keep_limits(flow)

    def is_offered(self, entry: FlowEntry | None) -> bool:
        """Whether the flow travels to this receiver, or will by the upcoming plan."""
        return entry is not None and any(
            place.group is not None or place.receiver == self.key
            for place in (*entry.places, *(entry.upcoming or ()))
        )

    def retire(self, flow: IncomingFlow) -> None:
        """Stop wanting a flow behind the last packet that is known of its stream."""
        for leg in flow.legs[1:]:
            self._reassembly.drop_leg(flow, leg)
        flow.prepared, flow.retired = False, True
        for leg in flow.legs:
            if leg.until is None:
                leg.until = int(self._subs.state.last[leg.stream.slot])
        self._reassembly.settle(flow)

    def _choose(
        self, publisher: PublisherIdentity, places: Iterable[Place], *legs: Leg | None
    ) -> Place | None:
        """The stream to take a flow from: that of the first leg that it can be taken from.

        Else the receiver's unicast stream, else one in a group that the plan means for the
        receiver, that is followed, or that is joined; the one with the lowest number of those.
        """
        usable = [
            place for place in places if place.group is not None or place.receiver == self.key
        ]
        if self._subs.full:
            known = [place for place in usable if self._subs.find(publisher.row, place.stream)]
            if usable and not known:
                self._reassembly.note_refused()
            usable = known
        for leg in legs:
            for place in usable:
                if leg is not None and place.stream == leg.stream.number:
                    return place
        return min(
            usable,
            key=lambda place: (
                place.group is not None,
                place.group not in self.preferred,
                self._subs.find(publisher.row, place.stream) is None,
                place.group is None or not self._subs.has_joined(place.group),
                place.stream,
            ),
            default=None,
        )

    def _make_leg(
        self, publisher: PublisherIdentity, number: int, place: Place, planned: Leg | None
    ) -> Leg:
        """The leg that was planned, if it is in this stream, or a new one."""
        if planned is not None and planned.stream.number == place.stream:
            return planned
        stream = self._subs.find(publisher.row, place.stream)
        if stream is None:
            stream = self._subs.begin(publisher, place)
        stream.legs += 1
        since = int(self._subs.state.last[stream.slot]) if stream.started else None
        return Leg(stream, number, since)

    def _keep_limits(self, flow: IncomingFlow) -> None:
        """Give up what is missing while a flow has too many legs, or one of its streams gaps."""
        while len(flow.legs) > _MOST_LEGS:
            self._reassembly.give_up_leg(flow)
        for stream in {leg.stream: None for leg in flow.legs}:
            if stream.legs:
                self._reassembly.make_room(stream)

    def _begin_leg(
        self, leg: Leg, marks: Mapping[int, int] | None, from_start: bool, now: float
    ) -> None:
        mark = None if marks is None else marks.get(leg.stream.number)
        if mark is not None:
            self._reassembly.start_leg(leg, mark, now)
        elif from_start and not leg.stream.resumed:
            self._reassembly.start_leg(leg, 0, now)

    def _end_leg(
        self, flow: IncomingFlow, leg: Leg, marks: Mapping[int, int] | None, now: float
    ) -> bool:
        """End a leg at its mark; returns whether it is not known what was sent since elsewhere."""
        stream = leg.stream
        mark = None if marks is None else marks.get(stream.number)
        if mark is not None:
            leg.until = mark
            self._reassembly.note_sent(stream, mark, now)
            return False
        leg.until = int(self._subs.state.last[stream.slot])
        told = leg.final is not None and self._subs.state.next_of[flow.slot] > 0
        blind = stream.started and not told  # else what is missing is known to the message
        if blind:
            self._reassembly.report_gap(stream, leg.until + 1, None, "change")
        return blind
