"""Remembers who left a channel, so that a late message does not bring them back.

A message that arrives after its sender's departure was forgotten does bring the sender back, but
not for long: a subscriber that is told that it is on a channel it did not want, and a cluster that
gets a topic it did not ask for, object.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Departure", "depart", "last_version"]


@dataclass(frozen=True, slots=True)
class Departure:
    """The version of the last leave or drop, and when it arrived."""

    version: int
    at: float


def last_version(departures: dict[str, Departure], name: str) -> int:
    """The version with which a name departed; -1 if no departure is remembered."""
    found = departures.get(name)
    return found.version if found else -1


def depart(departures: dict[str, Departure], name: str, last: Departure, remember: float) -> None:
    """Record a departure, and forget those more than `remember` seconds before it.

    Departures are limited by age and not by number: however many leave at once, each is remembered
    for as long as a message can be late. What is forgotten depends on the departures alone, so
    replaying them in order gives the same table.
    """
    if departures.get(name) == last:
        return
    departures.pop(name, None)
    departures[name] = last  # keeps the order of leaving
    while last.at - departures[first := next(iter(departures))].at > remember:
        del departures[first]
