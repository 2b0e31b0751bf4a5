"""What a network allows: members, rates and packets of groups, and what its parts can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from distributary.model.interest import FloatArray, IntArray

__all__ = ["Limits", "PacketStep"]


@dataclass(frozen=True, slots=True)
class PacketStep:
    """A group with up to `members` receivers carries at most `packets` packets per second."""

    members: int
    packets: float

    def __post_init__(self) -> None:
        _check_count("members of a packet step", self.members)
        _check_amount("packets of a packet step", self.packets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a network; None is no limit.

    Of each group: `group_members` receivers, `group_rate` messages per second (its line) and
    `group_packets` packets per second, by steps in ascending order of members; a group with more
    members than the last step is not allowed. Of each receiver: `receiver_groups` that it joins,
    `receiver_sessions` that it subscribes to and `receiver_rate` messages per second that reach it
    in groups and by unicast (its NIC); `receiver_rates` overrides that by name. Of the network:
    `groups` and `sessions` in all. Of each switch: `switch_entries`, and `entries_of` by name. A
    switch needs an entry for every group that one of its receivers joins; `switch_of` maps
    receivers to their switch, and a receiver that it does not name is behind none.

    Rates are at the peak where the demand has one, and in the unit of the demand.
    """

    group_members: int | None = None
    group_rate: float | None = None
    group_packets: tuple[PacketStep, ...] = ()
    receiver_groups: int | None = None
    receiver_sessions: int | None = None
    receiver_rate: float | None = None
    receiver_rates: Mapping[str, float] = field(default_factory=dict)
    groups: int | None = None
    sessions: int | None = None
    switch_entries: int | None = None
    switch_of: Mapping[str, str] = field(default_factory=dict)
    entries_of: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (
            "group_members",
            "receiver_groups",
            "receiver_sessions",
            "groups",
            "sessions",
            "switch_entries",
        ):
            _check_count(name, getattr(self, name))
        for name in ("group_rate", "receiver_rate"):
            _check_amount(name, getattr(self, name))
        for receiver, rate in self.receiver_rates.items():
            _check_amount(f"the rate of receiver {receiver!r}", rate)
        for switch, entries in self.entries_of.items():
            _check_count(f"the entries of switch {switch!r}", entries)
        for one, other in pairwise(self.group_packets):
            if one.members >= other.members:
                raise ValueError(
                    f"packet steps must be in ascending order of members, not {one.members} "
                    f"before {other.members}"
                )

    def __bool__(self) -> bool:
        return self != Limits()

    @property
    def most_members(self) -> int | None:
        """The most members that any group may have, by `group_members` and by `group_packets`."""
        last = [step.members for step in self.group_packets[-1:]]
        own = [] if self.group_members is None else [self.group_members]
        return min((*last, *own), default=None)

    def receiver_caps(self, receivers: Sequence[str]) -> FloatArray:
        """The most that may reach each receiver per second, infinite where nothing limits it."""
        cap = np.inf if self.receiver_rate is None else self.receiver_rate
        return np.array([self.receiver_rates.get(name, cap) for name in receivers], np.float64)

    def packet_caps(self, members: IntArray) -> FloatArray:
        """The most packets per second of groups with so many members.

        Infinite without steps, and 0 beyond the last one.
        """
        if not self.group_packets:
            return np.full(len(members), np.inf)
        caps = np.array([*(step.packets for step in self.group_packets), 0.0])
        return caps[np.searchsorted([step.members for step in self.group_packets], members)]

    def switch_cap(self, switch: str) -> int | None:
        """The most entries that a switch holds."""
        return self.entries_of.get(switch, self.switch_entries)


def _check_count(name: str, value: int | None) -> None:
    if value is not None and not value >= 1:
        raise ValueError(f"{name} must be a whole number above 0, not {value}")


def _check_amount(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < np.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {value}")
