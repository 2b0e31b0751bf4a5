"""When members were heard, and who counts as gone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Hearing", "Member"]

_LONGEST_PAUSE = 2.0  # seconds between two ticks of a service that runs


@dataclass(slots=True)
class Member:
    """A publisher or receiver. Its silence counts from `excused_at` on, if that is later."""

    name: str
    heard_at: float
    excused_at: float = -math.inf
    claims: int = 0  # how often others asked for its name since its start
    claimed_by: str = ""  # where the last of them runs
    claimed_at: float | None = None  # when that was heard

    def take_claims(self, claims: int, claimed_by: str, now: float, *, is_news: bool) -> None:
        """Note how often others asked for its name since its start."""
        if is_news and claims > self.claims:
            self.claimed_at, self.claimed_by = now, claimed_by
        self.claims = claims

    def silence(self, now: float) -> float:
        """For how many seconds it has said nothing, although it could have been heard."""
        return now - max(self.heard_at, self.excused_at)

    def is_alive(self, now: float, gone_after: float) -> bool:
        """Whether it was heard lately."""
        return self.silence(now) <= gone_after


class Hearing:
    """Since when this service cannot hear its members, if so.

    Nobody counts as gone for what could not be heard. Who was gone already still is, but is not
    forgotten before there was another chance to hear it.
    """

    def __init__(self, gone_after: float) -> None:
        self._gone_after = gone_after
        self._ticked_at = math.inf  # before the first tick, time stands for itself
        self.deaf_at: float | None = None

    def tick(self, now: float) -> None:
        """Note that the service runs."""
        self._ticked_at = now

    def limit(self, now: float) -> float:
        """The last moment of which this service knows who is there."""
        return now if self.deaf_at is None else self.deaf_at

    def lose(self, now: float) -> None:
        """Note that nothing can be heard; a service that was suspended learns that late."""
        if self.deaf_at is None:
            self.deaf_at = min(now, self._ticked_at + _LONGEST_PAUSE)

    def regain(self, members: Iterable[Member], now: float) -> None:
        """Note that members can be heard again."""
        if self.deaf_at is None:
            return
        for member in members:
            was_alive = member.is_alive(self.deaf_at, self._gone_after)
            member.excused_at = now if was_alive else math.nextafter(now - self._gone_after, -1)
        self.deaf_at = None
