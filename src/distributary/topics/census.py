"""What a channel knows of its subscribers: what they need it for, and their other channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Census", "Views"]


@dataclass(frozen=True, slots=True)
class Views:
    """A subscriber's view: the topics it gets from this channel only, and the channels it is on."""

    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def with_more(self, needs: Iterable[str], channels: Iterable[str]) -> Views:
        """This view with further topics and channels, without duplicates."""
        return Views(
            tuple(dict.fromkeys([*self.needs, *needs])),
            tuple(dict.fromkeys([*self.channels, *channels])),
        )


@dataclass(slots=True)
class Census:
    """Counts over a sample of the subscribers, or all; estimates scale to the channel's size."""

    counted: int = 0
    channels: Counter[str] = field(default_factory=Counter)
    needs: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, answers: Iterable[Views]) -> Census:
        """Count the views of subscribers."""
        census = cls()
        for views in answers:
            census.add(views)
        return census

    def add(self, views: Views) -> None:
        """Count one more subscriber."""
        self.counted += 1
        self.channels.update(views.channels)
        self.needs.update(views.needs)

    def remove(self, views: Views) -> None:
        """Remove a subscriber from the counts."""
        self.counted -= 1
        self.channels.subtract(views.channels)
        self.needs.subtract(views.needs)

    def on(self, channel: str, size: int) -> int:
        """The estimate of how many of the `size` subscribers are also on another channel."""
        return self._scale(self.channels[channel], size)

    def need(self, topic: str, size: int) -> int:
        """The estimated number of them that get a topic from this channel only."""
        return self._scale(self.needs[topic], size)

    def find_nearest(self, others: Iterable[str]) -> str | None:
        """The other channel with most common subscribers; None if there are none."""
        best = max(sorted(others), key=lambda name: self.channels[name], default=None)
        return best if best is not None and self.channels[best] > 0 else None

    def _scale(self, count: int, size: int) -> int:
        return round(count * size / self.counted) if self.counted else 0
