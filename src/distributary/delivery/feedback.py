"""The packets that a receiver sends: requests, probes, lookups and NAKs, and their rate limit."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.delivery.authentication import Authenticator
from distributary.delivery.incoming import IncomingStream, PublisherIdentity
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.portion_wire import Inquiry, encode_inquiry
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import SENDER
from distributary.delivery.wire import (
    MOST_LOOKUPS,
    MOST_RANGES,
    Header,
    PacketKind,
    encode_lookup,
    encode_ranges,
    encode_request,
)
from distributary.machines.actions import Send

__all__ = ["Feedback"]

_NEVER = float("inf")


class Feedback:
    """Builds requests and NAKs; one token bucket limits all NAKs of a receiver."""

    def __init__(self, name: str, params: ReceiverParams, authenticator: Authenticator) -> None:
        self._name = name
        self._params = params
        self._authenticator = authenticator
        self._bucket = TokenBucket(params.naks, params.nak_burst)
        self._ask_at = _NEVER
        self._wait = params.ask_every
        self.addresses: dict[int, str] = {}  # where publishers are reached, by their row
        self.naks = 0
        self.lookups = 0

    def start_requests(self, now: float) -> None:
        """Request an announcement now, and then at doubling intervals."""
        self._wait = self._params.ask_every
        self._ask_at = now

    def stop_requests(self) -> None:
        """Stop requesting: the sender, and all unicast streams, have been heard."""
        self._ask_at = _NEVER

    def next_at(self, streams: Iterable[IncomingStream]) -> float:
        """When the next request or NAK is due."""
        at = self._ask_at
        for stream in streams:
            at = min(at, stream.gaps.next_at(), stream.poll_at)
        return at

    def make_due_request(self, now: float) -> list[Send]:
        """Make the requests for announcements, to all known publishers, if they are due."""
        if now < self._ask_at:
            return []
        self._ask_at = now + self._wait
        self._wait = min(2 * self._wait, self._params.ask_longest)
        known = dict.fromkeys(self.addresses.values()) or (SENDER,)
        return [self.make_request(address, 0, 0) for address in known]

    def make_request(self, to: str, nonce: int, incarnation: int) -> Send:
        """Make a request for an announcement or, with a nonce, for a reply that returns it."""
        header = Header(PacketKind.REQUEST, incarnation=incarnation, sequence=nonce)
        return self._send(to, header, encode_request(self._name))

    def make_lookups(self, publisher: PublisherIdentity, blocks: list[int]) -> list[Send]:
        """Make the lookups of these blocks of a publisher's directory."""
        sent = []
        for begin in range(0, len(blocks), MOST_LOOKUPS):
            some = blocks[begin : begin + MOST_LOOKUPS]
            header = Header(
                PacketKind.LOOKUP,
                items=len(some),
                publisher=publisher.number,
                incarnation=publisher.incarnation,
            )
            sent.append(self._send(self._address_of(publisher), header, encode_lookup(some)))
        self.lookups += len(sent)
        return sent

    def make_inquiries(
        self, publisher: PublisherIdentity, wanted: Iterable[tuple[int, int]]
    ) -> list[Send]:
        """Make the inquiries for portions of plans, given as fingerprint and first part."""
        header = Header(
            PacketKind.INQUIRY, publisher=publisher.number, incarnation=publisher.incarnation
        )
        return [
            self._send(
                self._address_of(publisher), header, encode_inquiry(Inquiry(*found, self._name))
            )
            for found in wanted
        ]

    def make_due_naks(self, stream: IncomingStream, now: float) -> list[Send]:
        """Make the NAKs that are due for a stream, as far as the token bucket allows."""
        sent = []
        while due := stream.gaps.find_due(now, MOST_RANGES):
            ready = self._bucket.ready_at(now)
            if ready > now:
                for found in stream.gaps.find_due(now, len(stream.gaps.ranges)):
                    found.at = ready
                break
            stream.gaps.note_naks(due, now)
            ranges = [(found.first, found.last) for found in due]
            sent.append(self._make_nak(stream, ranges, now))
        return sent

    def make_poll(self, stream: IncomingStream, now: float) -> list[Send]:
        """Make a NAK without ranges, which the sender answers with a heartbeat."""
        ready = self._bucket.ready_at(now)
        if ready > now:
            stream.poll_at = ready
            return []
        wait = min(self._params.repair_wait * 2 ** min(stream.polls, 30), self._params.longest_wait)
        stream.polls += 1
        stream.poll_at = now + wait
        return [self._make_nak(stream, [], now)]

    def _make_nak(self, stream: IncomingStream, ranges: list[tuple[int, int]], now: float) -> Send:
        self._bucket.take(1, now)
        self.naks += 1
        _, publisher, incarnation, _ = stream.publisher
        header = Header(PacketKind.NAK, 0, len(ranges), publisher, stream.number, incarnation)
        return self._send(self._address_of(stream.publisher), header, encode_ranges(ranges))

    def _address_of(self, publisher: PublisherIdentity) -> str:
        return self.addresses.get(publisher.row, SENDER)

    def _send(self, to: str, header: Header, body: bytes) -> Send:
        return Send(to, self._authenticator.encode_packet(header, body))
