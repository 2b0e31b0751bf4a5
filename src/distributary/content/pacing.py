"""Decides when the next step of deferred work on a link may be done."""

from __future__ import annotations

from enum import Enum

from distributary.content.policies import Pacing

__all__ = ["Pace"]


class _PaceState(Enum):
    FREE = "free"
    PROBING = "probing"  # an echo is outstanding
    RESTING = "resting"


class Pace:
    """The pace of deferred work on one link: cycles through free, probing and resting."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._state = _PaceState.FREE
        self._probes = 0
        self._probed_at = 0.0

    @property
    def is_free(self) -> bool:
        """Whether a step of deferred work may start."""
        return self._state is _PaceState.FREE

    def start_probe(self, now: float) -> int:
        """Start waiting for an echo; returns the number of the probe to send."""
        self._state = _PaceState.PROBING
        self._probes += 1
        self._probed_at = now
        return self._probes

    def on_echo(self, number: int, now: float) -> float | None:
        """Start the rest after an echo; returns its end, or None for an unexpected echo."""
        if self._state is not _PaceState.PROBING or number != self._probes:
            return None
        round_trip = now - self._probed_at
        return self.rest(max(self._pacing.pause, self._pacing.patience * round_trip), now)

    def forget(self) -> None:
        """Stop waiting for an echo, because the neighbour has restarted."""
        if self._state is _PaceState.PROBING:
            self._state = _PaceState.FREE

    def rest(self, seconds: float, now: float) -> float:
        """Rest for some seconds; returns the end of the rest."""
        self._state = _PaceState.RESTING
        return now + seconds

    def end_rest(self) -> None:
        """The rest is over."""
        self._state = _PaceState.FREE
