"""Who left a channel, so that what they said before they left does not bring them back.

A message that was on its way for longer than departures are remembered does bring them back, but
not for long: whoever is told that it is on a channel, or gets a topic, against its will says so.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Departure", "depart", "last_version"]


@dataclass(frozen=True, slots=True)
class Departure:
    """The version of somebody's last word, and when it was heard."""

    version: int
    at: float


def last_version(departures: dict[str, Departure], name: str) -> int:
    """The version of the last word of somebody who left; -1 if nobody remembers."""
    found = departures.get(name)
    return found.version if found else -1


def depart(departures: dict[str, Departure], name: str, last: Departure, remember: float) -> None:
    """Note that somebody left, and forget those who left more than `remember` seconds before.

    By time and not by number: however many leave at once, each is remembered for as long as a
    message of theirs can be late. What is forgotten depends on the departures alone, so whoever
    plays them again in order has the same table.
    """
    if departures.get(name) == last:
        return
    departures.pop(name, None)
    departures[name] = last  # in the order of leaving
    while last.at - departures[first := next(iter(departures))].at > remember:
        del departures[first]
