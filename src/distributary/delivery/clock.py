"""How far a publisher's clock is ahead of the receiver's, by its replies to requests.

A reply says when it was sent, which lies between the request and the arrival of the reply. So half
a round trip bounds the error of the estimate, as in NTP (RFC 5905, section 8). The bound grows with
the age of an estimate, since clocks drift apart.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

__all__ = ["ClockEstimate", "PublisherClock"]

_NEVER = float("inf")
_MOST_REPLIES = 8
_DRIFT = 15e-6  # seconds a second, PHI of RFC 5905
_FIRST_WAIT = 1.0  # seconds until a request is repeated; doubles each time
_FARTHEST = 1 << 62  # nanoseconds that clocks can be apart: what is beyond is no time


class ClockEstimate(NamedTuple):
    """By how much the publisher's clock is ahead, and how wrong that can be; in nanoseconds."""

    offset: int
    uncertainty: int


class _Reply(NamedTuple):
    offset: int
    uncertainty: int  # half the round trip
    at: float


class PublisherClock:
    """Estimates the clock offset of one incarnation of a publisher, and says when to ask it."""

    def __init__(self, every: float, rng: np.random.Generator) -> None:
        """Ask once in `every` seconds, and more often at first."""
        self._every = every
        self._rng = rng
        self._replies: deque[_Reply] = deque(maxlen=_MOST_REPLIES)
        self._nonce = 0  # of the last reply
        self._wait = _FIRST_WAIT
        self.ask_at = _NEVER

    def begin(self, now: float) -> None:
        """Begin to ask another incarnation, whose clock is not known."""
        self._replies.clear()
        self._wait = min(_FIRST_WAIT, self._every)
        self.ask_at = now

    def note_asked(self, now: float) -> None:
        """Note that a request was sent; the next one follows after twice as long."""
        self.ask_at = now + self._wait * self._rng.uniform(0.75, 1.25)
        self._wait = min(2 * self._wait, self._every)

    def take_reply(self, nonce: int, sent: int, received: int, asked_at: float, now: float) -> None:
        """Take a reply, with the times of its sending and arrival in ns since 1970; 0 if unknown.

        The round trip is measured by `now` and `asked_at`, so it is never too short.
        """
        round_trip = round((now - asked_at) * 1e9)
        if nonce == self._nonce or not 0 < sent < 1 << 63 or received <= 0 or round_trip < 0:
            return
        offset = sent - received + round_trip // 2
        if abs(offset) < _FARTHEST:
            self._nonce = nonce
            self._replies.append(_Reply(offset, (round_trip + 1) // 2, now))

    def estimate(self, now: float) -> ClockEstimate | None:
        """The estimate with the least uncertainty among the last replies; None without a reply."""
        found = [
            ClockEstimate(reply.offset, reply.uncertainty + round((now - reply.at) * 1e9 * _DRIFT))
            for reply in reversed(self._replies)
        ]
        return min(found, key=lambda each: each.uncertainty, default=None)
