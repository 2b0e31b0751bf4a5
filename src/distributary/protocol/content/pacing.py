"""When the next piece of work that can wait may be done on a link."""

from __future__ import annotations

from distributary.protocol.content.policies import Pacing

__all__ = ["Pace"]


class Pace:
    """Free, then waiting for an echo, then resting, then free again."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._probes = 0
        self._asked: float | None = None
        self._resting = False

    @property
    def is_free(self) -> bool:
        """Whether nothing is under way."""
        return self._asked is None and not self._resting

    def probe(self, now: float) -> int:
        """The number of a probe that is sent now."""
        self._probes += 1
        self._asked = now
        return self._probes

    def echo(self, number: int, now: float) -> float | None:
        """An echo has come; when the rest is over, None for an echo that nobody waits for."""
        if self._asked is None or number != self._probes:
            return None
        took = now - self._asked
        self._asked = None
        return self.rest(max(self._pacing.pause, self._pacing.patience * took), now)

    def forget(self) -> None:
        """No echo will come: the neighbour has a new life."""
        self._asked = None

    def rest(self, seconds: float, now: float) -> float:
        """Rest from now on; when that is over."""
        self._resting = True
        return now + seconds

    def rested(self) -> None:
        """The rest is over."""
        self._resting = False
