"""A token bucket: limits the average rate, and the burst."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Holds up to `burst` tokens, and gains `rate` of them a second.

    A packet may pass while there are tokens, even if it takes more than there are; the next one
    then waits until the debt is paid. So packets larger than the burst pass too, and the average
    rate holds.
    """

    def __init__(self, rate: float, burst: float) -> None:
        if not (rate > 0 and burst > 0):
            raise ValueError(f"rate and burst are above 0, not {rate} and {burst}")
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = float("-inf")

    def ready_at(self, now: float) -> float:
        """When the next packet may pass: now, or as soon as the debt is paid."""
        self._fill(now)
        return now if self._tokens > 0 else now - self._tokens / self.rate + 1e-6

    def take(self, tokens: float, now: float) -> None:
        """Take tokens for a packet that passes, whether there are any or not."""
        self._fill(now)
        self._tokens -= tokens

    def _fill(self, now: float) -> None:
        if now > self._at:
            gained = (now - self._at) * self.rate
            self._tokens = min(self.burst, self._tokens + gained)
            self._at = now
