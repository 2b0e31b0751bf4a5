"""The publishers that a receiver follows: all that it hears, up to a limit.

Packets that belong to no stream, or to a journal, go to the publisher that they name. A publisher
that is heard for the first time is followed. When there are too many, it takes the place of one
that is gone, has left, or has not shown that it is alive. Without such a place it is left out. That
is counted, and reported once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.actions import Unfollowed
from distributary.delivery.followed import OF_RECEIVERS, FollowedPublisher
from distributary.delivery.holders import Holders
from distributary.delivery.incoming import PublisherIdentity
from distributary.delivery.latency import LatencyStatistics
from distributary.delivery.portion_wire import Portion
from distributary.delivery.presence import PresenceState
from distributary.delivery.receiver_parts import ReceiverParts
from distributary.delivery.receiver_statistics import FollowedStatistics
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_announcement,
)

__all__ = ["Publishers"]


class Publishers:
    """Follows publishers, each in a row of the tables."""

    def __init__(self, parts: ReceiverParts, incarnations: Mapping[str, int]) -> None:
        """`incarnations` has the last ones known of some publishers; earlier ones are refused."""
        self._parts = parts
        self._incarnations = incarnations
        self._subs, self._reassembly = parts.subs, parts.reassembly
        self.holders = Holders(parts.subs, parts.reassembly)
        self._of: dict[int, FollowedPublisher] = {}  # by number
        self.strangers = 0  # packets of nobody that is known
        self._forgotten = 0  # rivals of publishers that are not followed any more
        self.unfollowed = 0  # announcements of publishers beyond the limit

    def __iter__(self) -> Iterator[FollowedPublisher]:
        return iter(self._of.values())

    def __len__(self) -> int:
        return len(self._of)

    # --- packets ----------------------------------------------------------------------------------

    def take_packet(self, header: Header, body: bytes, now: float, source: str | None) -> bool:
        """Take a packet that belongs to no stream, or to a journal.

        Returns whether it was an announcement that said something new.
        """
        publisher = self._of.get(header.publisher)
        if header.kind in OF_RECEIVERS:
            raise WireError("a packet that only senders accept")
        if header.kind == PacketKind.ANNOUNCEMENT:
            announced = decode_announcement(body)
            if publisher_number(announced.publisher) != header.publisher:
                raise WireError("a publisher's number that is not of its name")
            publisher = publisher or self._follow(header, announced.publisher)
            if publisher is None:
                return False
        if publisher is not None:
            before = publisher.announced
            publisher.take_packet(header, body, now, source)
            return publisher.announced is not before
        if header.kind == PacketKind.REPLY:
            self.strangers += 1
        else:
            self._parts.counts[kernels.STALE] += 1
        return False

    def take_reply(self, header: Header, now: float, source: str) -> None:
        """Take a reply that came by unicast, from anybody."""
        publisher = self._of.get(header.publisher)
        if publisher is None:
            self.strangers += 1
        else:
            publisher.take_reply(header, now, source)

    def count_strangers(self) -> int:
        """How many packets were not accepted from where they came."""
        return self.strangers + sum(publisher.strangers for publisher in self)

    def count_forgotten(self) -> int:
        """How many rivals of publishers were forgotten, since there were too many."""
        return self._forgotten + sum(publisher.senders.forgotten for publisher in self)

    def make_latency_statistics(self, now: float) -> tuple[LatencyStatistics, ...]:
        """The latencies of each publisher; none before packets have stamps."""
        latencies = self._parts.latencies
        if not latencies.measures:
            return ()
        return tuple(
            latencies.make_statistics(each.row, each.identity.name, each.clock.estimate(now))
            for each in self
            if each.announced is not None
        )

    def make_statistics(self) -> tuple[FollowedStatistics, ...]:
        """A snapshot of each publisher."""
        flows = Counter(flow.row for flow in self._subs.flows.values())
        return tuple(
            FollowedStatistics(
                each.identity.name, each.incarnation, each.is_there, each.version, flows[each.row]
            )
            for each in self
        )

    def take_portions(self, number: int) -> list[tuple[int, Portion]]:
        """The portions of plans that have come from a publisher, with the plans' fingerprints."""
        publisher = self._of.get(number)
        return [] if publisher is None else publisher.portions.take_found()

    def announced(self) -> list[Announcement]:
        """The last announcement of each publisher."""
        silent = PresenceState.LEFT, PresenceState.DOUBTFUL
        heard = (each for each in self if each.presence.state not in silent)
        found = (each.announced for each in heard)
        return [announced for announced in found if announced is not None]

    def is_sender(self, address: str) -> bool:
        """Whether a publisher that is followed is at that address."""
        return any(publisher.senders.is_followed(address) for publisher in self)

    def _follow(self, header: Header, name: str) -> FollowedPublisher | None:
        """Follow a publisher that is heard for the first time, if there is room for it."""
        incarnation = self._incarnations.get(name, 0)
        if header.incarnation < incarnation:
            self._parts.counts[kernels.STALE] += 1
            return None
        if len(self._of) >= self._parts.params.publishers and not self._make_room():
            if not self.unfollowed:
                self._reassembly.actions.append(Unfollowed(name))
            self.unfollowed += 1
            return None
        identity = PublisherIdentity(self._subs.find_row(), header.publisher, incarnation, name)
        publisher = FollowedPublisher(self._parts, identity, self.holders)
        self._of[header.publisher] = self.holders.publishers[identity.row] = publisher
        return publisher

    def _make_room(self) -> bool:
        """Forget a publisher that sends nothing; returns whether there was one."""
        for number, publisher in self._of.items():
            if publisher.presence.state is not PresenceState.THERE:
                self.strangers += publisher.strangers
                self._forgotten += publisher.senders.forgotten
                row = publisher.row
                del self._of[number], self.holders.publishers[row]
                self._reassembly.abandon(row, "gone")
                self._subs.forget_publisher(row)
                self._parts.feedback.addresses.pop(row, None)
                return True
        return False

    # --- wanted flows -----------------------------------------------------------------------------

    def want(self, names: Iterable[str], now: float) -> None:
        """Look flows up in all directories, and take them from who has them."""
        names = list(names)
        for publisher in self:
            publisher.want(names, now)

    def forget(self, names: Iterable[str]) -> None:
        """Stop following flows."""
        names = list(names)
        for publisher in self:
            publisher.forget(names)

    def hasten(self, names: Iterable[str], now: float) -> None:
        """Look these flows up at once, and ask at which packets their streams stand."""
        names = list(names)
        for publisher in self:
            publisher.hasten(names, now)

    @property
    def heard(self) -> bool:
        """Whether any publisher was heard."""
        return any(publisher.announced is not None for publisher in self)

    @property
    def complete(self) -> bool:
        """Whether it is known of all wanted flows which publisher has them, or that none does."""
        return self._is_anybody_there and all(publisher.complete for publisher in self)

    @property
    def _is_anybody_there(self) -> bool:
        return any(publisher.is_there for publisher in self)

    def lack(self, name: str) -> bool:
        """Whether it is known that no publisher sends a flow to this receiver."""
        flow = self._subs.flows.get(name)
        return (
            (flow is None or not flow.served)
            and self._is_anybody_there
            and all(publisher.has_answered(name) for publisher in self)
        )

    @property
    def version(self) -> int:
        """The highest plan version that a publisher uses; 0 before one is known."""
        return max((publisher.version for publisher in self), default=0)

    # --- the timer, and the end of each call ------------------------------------------------------

    def next_at(self) -> float:
        """When the timer has to ring for a publisher."""
        return min((publisher.next_at() for publisher in self), default=float("inf"))

    def on_timer(self, now: float) -> None:
        """Do what is due for each publisher."""
        for publisher in list(self):
            publisher.on_timer(now)

    def settle(self, now: float) -> None:
        """Find publishers for flows whose streams have ended, and report who has which."""
        ended = self._reassembly.ended
        while ended:
            self._reassembly.ended = []
            for flow in ended:
                if not flow.legs and self._subs.flows.get(flow.name) is flow:
                    self.holders.choose(flow, now)
            ended = self._reassembly.ended
        self.holders.report()
