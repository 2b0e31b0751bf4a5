"""The receiver: packets in, messages of wanted flows out, each once and in its flow's order.

Packets pass two filters (`_wire_kernels.py`): by stream, then by flow. The filters accept packets
that arrive in order; `reassembly.py` handles the others. Messages behind a gap are delivered if
they are next in their flow, else held until the gap is closed or given up. The receiver reports a
gap that it gives up at once, as a range of packets, and again as a range of messages of a flow when
the flow's next message arrives.

Which streams carry the wanted flows the publishers say themselves (`followed.py`); each flow is
taken from one publisher at a time (`holders.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery import _wire_reference as reference
from distributary.delivery._wire_kernels import Arrivals, Expected, PacketBatch
from distributary.delivery.actions import Brought, MulticastAction, Subscribed, Unserved
from distributary.delivery.authentication import Authenticator
from distributary.delivery.feedback import Feedback
from distributary.delivery.filters import Filters
from distributary.delivery.flow_router import FlowRouter
from distributary.delivery.incoming import Entry
from distributary.delivery.latency import Latencies, LatencyStatistics
from distributary.delivery.lines import Lines, LineStatistics
from distributary.delivery.plan_interest import PlanInterest
from distributary.delivery.portion_wire import Portion
from distributary.delivery.publishers import Publishers
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.receiver_parts import ReceiverParts
from distributary.delivery.receiver_statistics import FollowedStatistics, ReceiverMachineStatistics
from distributary.delivery.subscriptions import Subscriptions
from distributary.delivery.wire import (
    HEADER_SIZE,
    KIND_AT,
    Announcement,
    PacketKind,
    WireError,
    decode_header,
    decode_ranges,
)
from distributary.machines.actions import SetTimer
from distributary.model import IntArray, Plan

__all__ = ["ReceiverMachine"]

WAKE = "wake"
_NEVER = float("inf")


class ReceiverMachine:
    """The receiver's state machine. Call `start` once, then `on_packet` or `on_packets`."""

    def __init__(
        self,
        name: str,
        wanted: Iterable[str] | None,
        *,
        rng: np.random.Generator,
        params: ReceiverParams | None = None,
        key: bytes | None = None,
        incarnations: Mapping[str, int] | None = None,
    ) -> None:
        """With `wanted` None the receiver wants all that each plan carries to it.

        Publishers tell what that is, unless the caller gives plans: then `NeedPlan` asks for those
        that lack. `incarnations` has the last ones known of some publishers, by name; packets of
        earlier ones are refused as
        replayed.
        """
        self.name = name
        self.params = params = ReceiverParams() if params is None else params
        self._authenticator = Authenticator(key)
        self._subs = Subscriptions(params, rng)
        self._feedback = Feedback(name, params, self._authenticator)
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._latencies = Latencies(params.publishers)
        self._filters = Filters(self._subs, self._authenticator, self._counts, self._latencies)
        self._lines = Lines(params, self._counts)
        self._reassembly = Reassembly(
            self._subs, params, self._counts, self._lines, self._latencies
        )
        self._router = FlowRouter(name, self._subs, self._reassembly)
        self._publishers = Publishers(
            ReceiverParts(
                params,
                self._subs,
                self._reassembly,
                self._router,
                self._feedback,
                self._lines,
                self._latencies,
                self._counts,
                rng,
            ),
            {} if incarnations is None else dict(incarnations),
        )
        self._interest = PlanInterest(name, everything=wanted is None)
        self._strangers = 0
        self._packets = 0
        self._wake_at = _NEVER
        self._handled = False  # whether the filters left a packet to Python
        self._changes_seen = 0
        self._unserved: tuple[str, ...] = ()  # as last reported
        self._brought: tuple[str, ...] | None = None  # as last reported
        self._awaited: set[str] = set()  # flows that were subscribed, and not `Subscribed` yet
        self._want(() if wanted is None else wanted, 0.0)

    # --- calls ---------------------------------------------------------------------------------

    @property
    def incarnations(self) -> dict[str, int]:
        """The incarnations of the publishers that are followed, by name."""
        return {each.identity.name: each.incarnation for each in self._publishers}

    @property
    def statistics(self) -> ReceiverMachineStatistics:
        """A snapshot of the counters."""
        counts = self._counts.tolist()
        return ReceiverMachineStatistics(
            messages=counts[kernels.DELIVERED],
            packets=self._packets,
            unwanted_packets=counts[kernels.UNWANTED_PACKETS],
            unwanted_messages=counts[kernels.UNWANTED_MESSAGES],
            duplicates=counts[kernels.DUPLICATE],
            malformed=counts[kernels.MALFORMED],
            unauthenticated=self._filters.unauthenticated,
            stale=counts[kernels.STALE],
            unfollowed=self._publishers.unfollowed,
            strangers=self._strangers + self._publishers.count_strangers(),
            naks=self._feedback.naks,
            lookups=self._feedback.lookups,
            gaps=self._reassembly.gaps,
            gap_packets=self._reassembly.gap_packets,
            missing_messages=counts[kernels.MISSED],
            over_limit=counts[kernels.OVER_LIMIT] + self._publishers.count_forgotten(),
            streams=sum(1 for _ in self._subs.streams()),
            held_packets=self._reassembly.held_packets,
            missing_ranges=sum(len(stream.gaps.ranges) for stream in self._subs.streams()),
        )

    def line_statistics(self, now: float) -> tuple[LineStatistics, ...]:
        """A snapshot of the counters of each line, A and B."""
        return self._lines.make_statistics(now)

    def publisher_statistics(self) -> tuple[FollowedStatistics, ...]:
        """A snapshot of the publishers that are followed."""
        return self._publishers.make_statistics()

    def latency_statistics(self, now: float) -> tuple[LatencyStatistics, ...]:
        """A snapshot of the latencies of each publisher; none before packets have stamps."""
        return self._publishers.make_latency_statistics(now)

    @property
    def version(self) -> int:
        """The highest plan version that a publisher uses; 0 before one is known."""
        return self._publishers.version

    @property
    def flows(self) -> tuple[str, ...]:
        """The wanted flows."""
        return tuple(sorted(name for name, flow in self._subs.flows.items() if not flow.retired))

    @property
    def following(self) -> tuple[str, ...]:
        """The wanted flows of which it is known where they travel."""
        return tuple(sorted(name for name, flow in self._subs.flows.items() if flow.served))

    @property
    def unserved(self) -> tuple[str, ...]:
        """Wanted flows that no publisher carries."""
        if not self._publishers.complete:
            following = set(self.following)
            return tuple(name for name in self._unserved if name not in following)
        lost = self._interest.lost
        return lost or tuple(name for name in self.flows if self._publishers.lack(name))

    def prepare(self) -> None:
        """Compile the filters, or load them compiled, before the first packets arrive."""
        self._filters.prepare()

    def start(self, now: float) -> list[MulticastAction]:
        """Join the control group, and ask for announcements."""
        self._reassembly.actions += self._subs.change_groups()
        self._feedback.start_requests(now)
        self._reassembly.actions += self._feedback.make_due_request(now)
        return self._finish(now)

    def learn_plan(self, plan: Plan, now: float) -> list[MulticastAction]:
        """Take a plan, before or after the sender announces it."""
        self._interest.learn(plan)
        if not self._publishers.heard:
            self._unserved = self._report_unserved_by(plan)
        self._follow_plans(now)
        return self._finish(now)

    def learn_portion(
        self, fingerprint: int, portion: Portion, now: float
    ) -> list[MulticastAction]:
        """Take what the caller wants of a plan, instead of all that the plan brings."""
        self._interest.give_portion(fingerprint, portion)
        self._follow_plans(now)
        return self._finish(now)

    def knows(self, fingerprint: int) -> bool:
        """Whether the receiver has the plan of that fingerprint."""
        return self._interest.knows(fingerprint)

    def subscribe(self, flows: Iterable[str], now: float) -> list[MulticastAction]:
        """Want these flows too; `Subscribed` says from when on none of their messages is lost.

        So it does for flows that were wanted before, if that is not so of them yet.
        """
        self._interest.fix()
        flows = set(flows)
        self._want(flows, now)
        awaited = {name for name in flows if not self._has_started(name)}
        self._publishers.hasten(awaited - self._awaited, now)
        self._awaited |= awaited
        return self._finish(now)

    def awaits(self, flows: Iterable[str]) -> bool:
        """Whether it is not known yet of all these flows that they are served, or are not."""
        undecided = self._awaited.intersection(flows)
        return any(not self._publishers.lack(flow) for flow in undecided)

    def unsubscribe(self, flows: Iterable[str], now: float) -> list[MulticastAction]:
        """Stop wanting these flows; nothing of them is delivered from now on."""
        self._interest.fix()
        gone = [flow for flow in set(flows) if flow in self._subs.flows]
        self._awaited.difference_update(gone)
        for flow in sorted(gone):
            self._reassembly.drop_flow(self._subs.flows[flow])
        self._publishers.forget(gone)
        return self._finish(now)

    def want(self, wanted: Iterable[str], now: float) -> list[MulticastAction]:
        """Want these flows and no others."""
        flows = set(wanted)
        return [
            *self.unsubscribe(set(self.flows) - flows, now),
            *self.subscribe(flows, now),
        ]

    def on_message(self, sender: str, message: bytes, now: float) -> list[MulticastAction]:
        """Take a packet from `sender`."""
        return self.on_packet(message, now, sender)

    def on_packet(
        self,
        packet: bytes,
        now: float,
        source: str | None = None,
        *,
        line: int | None = None,
        stamp: int = 0,
    ) -> list[MulticastAction]:
        """Take one packet, with the plain filters; `line` and `stamp` as in `on_packets`."""
        self._packets += 1
        self._latencies.take_stamp(stamp)
        self._lines.hear(line, 1, now)
        subs = self._subs
        kept = reference.keep_streams([packet], subs.tables, self._counts)
        if kept and self._filters.accepts(packet):
            at, found, waiting, missed = reference.take_packets(
                [packet],
                kept,
                Expected(self._authenticator.size, self._lines.first, self._lines.again),
                subs.tables,
                subs.state,
                self._counts,
                Arrivals(*self._latencies.arrivals),
            )
            self._reassembly.report_missed(missed)
            buffer = np.frombuffer(packet, np.uint8)
            self._reassembly.deliver(buffer, [entry for _, entry in found])
            if at == 0:
                self._handle_packet(packet, kept[0][2], waiting, now, source)
        return self._finish(now)

    def on_packets(
        self,
        batch: PacketBatch,
        now: float,
        sources: Sequence[str] | None = None,
        *,
        control: bool = True,
        line: int | None = None,
        stamps: IntArray | None = None,
    ) -> list[MulticastAction]:
        """Take a batch of packets, in order, with the compiled filters.

        Packets of no stream other than heartbeats are accepted only with `control`: from the
        control group or from the sender's own address. `line` is where all of them came: 0 for A,
        1 for B, None by unicast or where groups have one line. `stamps` are the times of their
        arrival in nanoseconds since 1970. The resulting `Messages` refer to the buffer of the
        batch, and are valid until the next call.
        """
        self._packets += len(batch.offsets)
        self._latencies.take_stamps(stamps)
        if line is not None or self._lines.line is not None:  # spare the call where there are none
            self._lines.hear(line, len(batch.offsets), now)
        at = 0
        while at < len(batch.offsets):
            at = self._take_until_change(batch, at, now, sources, control)
            if at < len(batch.offsets):
                self._filters.renew()
        if not self._handled:  # the filters took them all, and nothing else has changed
            actions, self._reassembly.actions = self._reassembly.actions, []
            return actions
        return self._finish(now)

    def on_stranger(self, packet: bytes, source: str, now: float) -> list[MulticastAction]:
        """Take a unicast packet that does not come from a publisher that is followed.

        Only a reply to a request of this receiver is accepted; it may come from a rival.
        """
        self._packets += 1
        self._latencies.take_stamp(0)
        tag = self._authenticator.size
        if packet[KIND_AT : KIND_AT + 1] != bytes([PacketKind.REPLY]):
            self._strangers += 1
        elif self._filters.accepts(packet):
            try:
                self._publishers.take_reply(decode_header(packet, tag), now, source)
            except WireError:
                self._counts[kernels.MALFORMED] += 1
        return self._finish(now)

    def is_sender(self, address: str) -> bool:
        """Whether a publisher that is followed is at that address."""
        return self._publishers.is_sender(address)

    def on_timer(self, name: str, now: float) -> list[MulticastAction]:
        """The machine's only timer has expired."""
        if name != WAKE:
            raise ValueError(f"there is no timer {name!r}")
        actions = self._reassembly.actions
        self._wake_at = _NEVER
        if self._publishers.heard and not self._subs.unheard:
            self._feedback.stop_requests()
        actions += self._feedback.make_due_request(now)
        self._publishers.on_timer(now)
        for stream in list(self._subs.pending):
            if stream not in self._subs.pending:
                continue  # it ended together with another stream
            self._reassembly.give_up_unanswered(stream, now)
            if stream in self._subs.pending:
                actions += self._feedback.make_due_naks(stream, now)
                if stream.poll_at <= now:
                    actions += self._feedback.make_poll(stream, now)
        return self._finish(now)

    # --- filters ----------------------------------------------------------------------------------

    def _take_until_change(
        self,
        batch: PacketBatch,
        begin: int,
        now: float,
        sources: Sequence[str] | None,
        control: bool,
    ) -> int:
        """Take packets from `begin` on until the tables change; returns where to continue."""
        filters, subs, reassembly = self._filters, self._subs, self._reassembly
        changes, first, again = subs.changes, self._lines.first, self._lines.again
        tag = self._authenticator.size
        kept, found = filters.keep(batch, begin), filters.found
        at = used = 0
        while at < len(kept.packets):
            start = used
            expected = tag, first, again
            at, used, end, n_missed = filters.take(batch, kept, (at, used), expected)
            if n_missed:
                reassembly.report_missed(found.missed[:n_missed].tolist())
            reassembly.deliver_found(batch.buffer, found, start, used)
            if at < len(kept.packets):
                packet, stream = int(kept.packets[at]), int(kept.streams[at])
                offset = int(batch.offsets[packet])
                kind = int(batch.buffer[offset + KIND_AT])
                if stream == kernels.CONTROL and not control and kind != PacketKind.HEARTBEAT:
                    self._strangers += 1
                else:
                    copied = batch.buffer[offset : offset + int(batch.lengths[packet])].tobytes()
                    source = None if sources is None else sources[packet]
                    entries = filters.entries(used, end, offset)
                    self._latencies.choose(packet)
                    self._handle_packet(copied, stream, entries, now, source)
                at += 1
                if subs.changes != changes:
                    filters.uncount(kept, packet + 1)
                    return packet + 1
        return len(batch.offsets)

    # --- packets that the filters leave to Python ---------------------------------------------

    def _handle_packet(
        self, packet: bytes, slot: int, entries: list[Entry], now: float, source: str | None
    ) -> None:
        self._handled = True
        header = decode_header(packet)
        body = packet[HEADER_SIZE : len(packet) - self._authenticator.size]
        try:
            if slot == kernels.CONTROL:
                news = self._publishers.take_packet(header, body, now, source)
                found = self._publishers.take_portions(header.publisher)
                for fingerprint, portion in found:
                    self._interest.take_portion(fingerprint, portion)
                if found or news:
                    self._follow_plans(now)
                return
            stream = self._subs.stream(slot)
            if header.kind <= PacketKind.REPAIR:
                self._subs.note_heard(stream)
                self._reassembly.take_data(stream, header, packet, entries, now)
            elif header.kind == PacketKind.CONFIRM:
                for first, last in decode_ranges(body, header.items):
                    stream.gaps.confirm(first, last, now)
            else:  # it belongs to no stream, or only senders accept it
                self._counts[kernels.MALFORMED] += 1
        except WireError:
            self._counts[kernels.MALFORMED] += 1

    # --- interest ---------------------------------------------------------------------------------

    def _want(self, flows: Iterable[str], now: float) -> set[str]:
        """Want these flows too; returns those that were not wanted before."""
        new = set()
        for name in set(flows):
            flow = self._subs.flows.get(name)
            if flow is not None and flow.retired:
                self._reassembly.drop_flow(flow)
                self._publishers.forget([name])
            if name not in self._subs.flows:
                new.add(name)
        ordered = sorted(new)
        self._subs.want(ordered)
        self._publishers.want(ordered, now)
        return new

    def _follow_plans(self, now: float) -> None:
        """Prefer the groups that the plan means for the receiver; want what it brings, if asked."""
        announced = self._publishers.announced()
        if not announced:
            if self._interest.everything:
                self._want(self._interest.latest_flows(), now)
            return
        for publisher in self._publishers:
            if publisher.announced is not None:
                unknown = self._interest.find_unknown(publisher.announced)
                publisher.portions.need(unknown, now)
        self._reassembly.actions += self._interest.find_needs(announced)
        if not self._interest.note_announced(announced):
            return
        self._router.preferred = self._interest.groups_of(announced)
        wanted = self._interest.flows_of(announced)
        if wanted is None:
            return
        if self._interest.asks:
            self._report_brought(tuple(sorted(wanted)), announced)
        self._subs.changes += 1  # have it told if nothing is brought any more
        self._want(wanted, now)
        for name in sorted(set(self.flows) - wanted):
            self._router.retire(self._subs.flows[name])

    def _report_brought(self, flows: tuple[str, ...], announced: list[Announcement]) -> None:
        """Report what plans bring, as the sender says it, if that has changed."""
        if flows != self._brought:
            self._brought = flows
            version = max(found.current or found.upcoming for found in announced)
            self._reassembly.actions.append(Brought(version, flows))

    def _report_unserved_by(self, plan: Plan) -> tuple[str, ...]:
        """Report wanted flows that a plan lacks, before the sender is heard."""
        unserved = self._interest.unserved_by(plan, self.flows)
        if unserved != self._unserved:
            self._reassembly.actions.append(Unserved(0, unserved))
        return unserved

    def _report_subscribed(self) -> None:
        """Report subscribed flows whose streams have started."""
        ready = [name for name in self._awaited if self._has_started(name)]
        if ready:
            self._awaited.difference_update(ready)
            self._reassembly.actions.append(Subscribed(tuple(sorted(ready))))

    def _has_started(self, name: str) -> bool:
        """Whether it is known with which packet a flow begins: nothing of it is missed now."""
        flow = self._subs.flows[name]
        return flow.served and flow.legs[0].stream.started

    def _report_unserved(self) -> None:
        """Report the wanted flows that no plan carries, if they changed."""
        unserved = self.unserved
        if unserved != self._unserved:
            self._reassembly.actions.append(Unserved(self.version, unserved))
        self._unserved = unserved

    def _report_dropped(self) -> None:
        """Report flows that a plan has dropped, even if one carries them again by now.

        What was published in between went to nobody. It does not matter what publishers carry that
        have not answered: none has the flow.
        """
        dropped, flows = self._publishers.holders.dropped, self._subs.flows
        over = {name for name in dropped if name not in flows or flows[name].row >= 0}
        told = {name for name in dropped if name in over or not flows[name].served}
        dropped -= told
        unserved = tuple(sorted({*self._unserved, *told.intersection(flows)}))
        if unserved != self._unserved:
            self._reassembly.actions.append(Unserved(self.version, unserved))
            self._unserved = unserved
            self._subs.changes += 1  # have it told what somebody has by now

    # --- the end of each call ---------------------------------------------------------------------

    def _finish(self, now: float) -> list[MulticastAction]:
        """Update groups and timer, and return all actions."""
        reassembly, subs = self._reassembly, self._subs
        self._handled = False
        self._publishers.settle(now)
        if reassembly.retired:
            self._publishers.forget(reassembly.retired)
            reassembly.retired = []
        if self._awaited:
            self._report_subscribed()
        if self._publishers.holders.dropped:
            self._report_dropped()
        if subs.changes != self._changes_seen:
            self._changes_seen = subs.changes
            reassembly.actions += subs.change_groups()
            self._report_unserved()
        at = min(self._feedback.next_at(subs.pending), self._publishers.next_at())
        if at != self._wake_at:
            self._wake_at = at
            reassembly.actions.append(SetTimer(WAKE, None if at == _NEVER else at))
        actions, reassembly.actions = reassembly.actions, []
        return actions
