"""Decides when the next step of deferred work on a link may be done."""

from __future__ import annotations

from distributary.content.policies import Pacing

__all__ = ["Pace"]


class Pace:
    """Cycles through three states: free, waiting for an echo, resting."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._probes = 0
        self._asked: float | None = None
        self._resting = False

    @property
    def is_free(self) -> bool:
        """Whether the link is neither waiting nor resting."""
        return self._asked is None and not self._resting

    def start_probe(self, now: float) -> int:
        """Start waiting for an echo; returns the number of the probe to send."""
        self._probes += 1
        self._asked = now
        return self._probes

    def on_echo(self, number: int, now: float) -> float | None:
        """Start the rest after an echo; returns its end, or None for an unexpected echo."""
        if self._asked is None or number != self._probes:
            return None
        took = now - self._asked
        self._asked = None
        return self.rest(max(self._pacing.pause, self._pacing.patience * took), now)

    def forget(self) -> None:
        """Stop waiting for an echo, because the neighbour has restarted."""
        self._asked = None

    def rest(self, seconds: float, now: float) -> float:
        """Rest for some seconds; returns the end of the rest."""
        self._resting = True
        return now + seconds

    def end_rest(self) -> None:
        """The rest is over."""
        self._resting = False
