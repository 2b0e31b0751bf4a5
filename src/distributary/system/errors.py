"""Errors of a system that runs on one machine.

DistributaryError
└── LiveError
    └── PartFailedError     a part of the system cannot go on
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = ["PartFailedError"]


class PartFailedError(LiveError):
    """The part `name` cannot go on; `how` it ended, and what it `said` of that."""

    def __init__(self, name: str, how: str, said: str = "") -> None:
        self.name = name
        self.how = how
        self.said = said
        super().__init__(f"{name} {how}: {said}" if said else f"{name} {how} and said nothing")
