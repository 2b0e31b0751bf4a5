"""What a broker starts from after a crash."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

__all__ = ["FIRST_START", "Recovery", "StartBroker"]


@dataclass(frozen=True, slots=True)
class StartBroker:
    """The first input of a broker, sent to it once by itself."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a broker starts from: its incarnation, counted from 1, and what earlier ones left.

    `saved` holds the values of their `Save` actions.
    """

    incarnation: int = 1
    saved: Mapping[Hashable, object] = field(default_factory=dict)


FIRST_START = Recovery()
