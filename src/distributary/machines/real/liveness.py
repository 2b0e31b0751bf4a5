"""When a connection sends a keep-alive, when its peer counts as dead, and when to connect again.

Decisions without I/O: the time and the random generator are arguments.
"""

from __future__ import annotations

from enum import Enum
from random import Random

__all__ = ["BackOff", "Liveness", "Verdict"]


class Verdict(Enum):
    """What a connection does now."""

    WAIT = "wait"
    SEND = "send"  # a keep-alive
    DEAD = "dead"


class Liveness:
    """Watches one connection: a peer that sends nothing for `dead_after` seconds is dead.

    A connection that has sent nothing for `keep_alive` seconds sends a keep-alive. A check that
    comes late by more than `keep_alive` seconds means that this process was stopped or busy; it
    then waits for another `dead_after`, because what the peer has sent may not be read yet.
    """

    def __init__(self, now: float, *, keep_alive: float, dead_after: float) -> None:
        if not 0 < keep_alive < dead_after:
            raise ValueError(
                f"keep_alive must be positive and less than dead_after, not {keep_alive} and "
                f"{dead_after}"
            )
        self._keep_alive = keep_alive
        self._dead_after = dead_after
        self._heard = self._sent = now
        self.next_check = now + keep_alive

    def hear(self, now: float) -> None:
        """Something has arrived."""
        self._heard = now

    def send(self, now: float) -> None:
        """Something was sent."""
        self._sent = now

    def check(self, now: float) -> Verdict:
        """Decide; to be called at `next_check`, which this call moves on."""
        if now > self.next_check + self._keep_alive:
            self._heard = now
        if now >= self._heard + self._dead_after:
            return Verdict.DEAD
        verdict = Verdict.WAIT
        if now >= self._sent + self._keep_alive:
            self._sent = now
            verdict = Verdict.SEND
        self.next_check = min(self._sent + self._keep_alive, self._heard + self._dead_after)
        return verdict


class BackOff:
    """The pauses between attempts to connect: they double up to `longest`, with jitter.

    Peers that lose the same broker thus do not all come back at the same time.
    """

    def __init__(self, rng: Random, *, first: float = 0.05, longest: float = 5.0) -> None:
        self._rng = rng
        self._first = first
        self._longest = longest
        self._attempt = 0

    def pause(self, lived: float = 0.0) -> float:
        """The pause after an attempt whose connection lived for so many seconds.

        One that lived for longer than the longest pause was a success: pauses begin again.
        """
        if lived > self._longest:
            self._attempt = 0
        pause = min(self._longest, self._first * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        return pause * self._rng.uniform(0.5, 1.0)
