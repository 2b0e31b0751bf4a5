"""The questions and NAKs that a receiver sends, and their rate limit."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.delivery.authentication import Authenticator
from distributary.delivery.incoming import IncomingStream
from distributary.delivery.pacing import TokenBucket
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import SENDER
from distributary.delivery.wire import (
    CONTROL_SESSION,
    HEADER_SIZE,
    MOST_RANGES,
    PacketKind,
    encode_header,
    encode_ranges,
    encode_request,
)
from distributary.machines.actions import Send

__all__ = ["Feedback"]

_NEVER = float("inf")


class Feedback:
    """Makes questions for the plan, and NAKs; one token bucket limits all NAKs of a receiver."""

    def __init__(self, name: str, params: ReceiverParams, authenticator: Authenticator) -> None:
        self._name = name
        self._params = params
        self._authenticator = authenticator
        self._bucket = TokenBucket(params.naks, params.nak_burst)
        self._ask_at = _NEVER
        self._wait = params.ask_every
        self.sender = SENDER  # where the sender is reached
        self.naks = 0

    def start_plan_requests(self, now: float) -> None:
        """Start asking for the plan; the interval doubles each time."""
        self._wait = self._params.ask_every
        self._ask_at = now

    def stop_plan_requests(self) -> None:
        """Stop asking: the plan is known, and all unicast streams have been heard."""
        self._ask_at = _NEVER

    def next_at(self, streams: Iterable[IncomingStream]) -> float:
        """When the next question or NAK is due."""
        at = self._ask_at
        for stream in streams:
            at = min(at, stream.gaps.next_at(), stream.poll_at)
        return at

    def make_due_plan_request(self, now: float) -> list[Send]:
        """The question for the plan, if one is due."""
        if now < self._ask_at:
            return []
        self._ask_at = now + self._wait
        self._wait = min(2 * self._wait, self._params.ask_longest)
        return [self.make_request(self.sender, 0, 0)]

    def make_request(self, to: str, nonce: int, incarnation: int) -> Send:
        """A question for the plan or, with a nonce, for an answer that repeats the nonce."""
        body = encode_request(self._name)
        return self._send(to, PacketKind.REQUEST, body, 0, 0, CONTROL_SESSION, incarnation, nonce)

    def make_due_naks(self, stream: IncomingStream, incarnation: int, now: float) -> list[Send]:
        """NAKs for the missing ranges of a stream that are due, as far as the tokens go."""
        sent = []
        while due := stream.gaps.find_due(now, MOST_RANGES):
            ready = self._bucket.ready_at(now)
            if ready > now:
                for found in stream.gaps.find_due(now, len(stream.gaps.ranges)):
                    found.at = ready
                break
            stream.gaps.note_naks(due, now)
            ranges = [(found.first, found.last) for found in due]
            sent.append(self._make_nak(stream, incarnation, ranges, now))
        return sent

    def make_poll(self, stream: IncomingStream, incarnation: int, now: float) -> list[Send]:
        """A NAK without ranges, which the sender answers with a heartbeat."""
        ready = self._bucket.ready_at(now)
        if ready > now:
            stream.poll_at = ready
            return []
        wait = min(self._params.repair_wait * 2**stream.polls, self._params.longest_wait)
        stream.polls += 1
        stream.poll_at = now + wait
        return [self._make_nak(stream, incarnation, [], now)]

    def _make_nak(
        self, stream: IncomingStream, incarnation: int, ranges: list[tuple[int, int]], now: float
    ) -> Send:
        self._bucket.take(1, now)
        self.naks += 1
        body = encode_ranges(ranges)
        version, session = stream.version, stream.session
        return self._send(
            self.sender, PacketKind.NAK, body, len(ranges), version, session, incarnation, 0
        )

    def _send(
        self,
        to: str,
        kind: PacketKind,
        body: bytes,
        count: int,
        version: int,
        session: int,
        incarnation: int,
        sequence: int,
    ) -> Send:
        length = HEADER_SIZE + len(body) + self._authenticator.size
        header = encode_header(kind, length, count, version, session, incarnation, sequence)
        packet = header + body
        return Send(to, packet + self._authenticator.tag(packet))
