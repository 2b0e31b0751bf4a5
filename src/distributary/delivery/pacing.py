"""A token bucket: so much a second on average, so much at once."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Holds up to `burst` tokens, and gains `rate` of them a second.

    Something is let through while there are tokens, and may leave a debt: then the next one waits
    until it is paid. So what is larger than the burst gets through too, and the average holds.
    """

    def __init__(self, rate: float, burst: float) -> None:
        if not (rate > 0 and burst > 0):
            raise ValueError(f"a rate of {rate} and a burst of {burst} let nothing through")
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = float("-inf")

    def ready_at(self, now: float) -> float:
        """When something can be let through: now, or as soon as the debt is paid."""
        self._fill(now)
        return now if self._tokens > 0 else now - self._tokens / self.rate + 1e-6

    def take(self, tokens: float, now: float) -> None:
        """Let something through, whether it is time or not."""
        self._fill(now)
        self._tokens -= tokens

    def _fill(self, now: float) -> None:
        if now > self._at:
            gained = (now - self._at) * self.rate
            self._tokens = min(self.burst, self._tokens + gained)
            self._at = now
