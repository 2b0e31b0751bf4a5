"""What a channel knows of its subscribers: where else they are, and what they need it for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Census", "Views"]


@dataclass(frozen=True, slots=True)
class Views:
    """One subscriber's: the topics it has from this channel only, and the channels it is on."""

    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def with_more(self, needs: Iterable[str], channels: Iterable[str]) -> Views:
        """These and others, each once."""
        return Views(
            tuple(dict.fromkeys([*self.needs, *needs])),
            tuple(dict.fromkeys([*self.channels, *channels])),
        )


@dataclass(slots=True)
class Census:
    """Counts over some subscribers, or over all; estimates scale up to the channel's size."""

    counted: int = 0
    channels: Counter[str] = field(default_factory=Counter)
    needs: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, answers: Iterable[Views]) -> Census:
        """Count answers."""
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
        """Count one subscriber less."""
        self.counted -= 1
        self.channels.subtract(views.channels)
        self.needs.subtract(views.needs)

    def on(self, channel: str, size: int) -> int:
        """How many of the channel's `size` subscribers are on another one too."""
        return self._scale(self.channels[channel], size)

    def need(self, topic: str, size: int) -> int:
        """How many of them have a topic from here only."""
        return self._scale(self.needs[topic], size)

    def nearest(self, others: Iterable[str]) -> str | None:
        """The one of the other channels with most common subscribers, if there are any."""
        best = max(sorted(others), key=lambda name: self.channels[name], default=None)
        return best if best is not None and self.channels[best] > 0 else None

    def _scale(self, count: int, size: int) -> int:
        return round(count * size / self.counted) if self.counted else 0
