"""A receiver's counters."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FollowedStatistics", "ReceiverMachineStatistics"]


@dataclass(frozen=True, slots=True)
class ReceiverMachineStatistics:
    """A snapshot of a receiver's counters."""

    messages: int  # delivered
    packets: int  # received, of any kind
    unwanted_packets: int  # dropped by the first filter
    unwanted_messages: int  # dropped by the second
    duplicates: int  # packets, or messages of a packet, that had arrived before
    malformed: int
    unauthenticated: int
    stale: int  # packets of another incarnation, or of a publisher that is not followed
    unfollowed: int  # announcements of publishers beyond those that are followed
    strangers: int  # packets from an address, or by a socket, from which they are not accepted
    naks: int
    lookups: int  # of blocks of a publisher's directory
    gaps: int  # ranges of packets that were given up
    gap_packets: int  # in the gaps whose end is known
    missing_messages: int  # reported as `Missing`
    over_limit: int  # streams, parts and the like that were refused or dropped, being too many
    streams: int  # that are followed now
    held_packets: int  # that wait now, behind a gap, or of flows that move
    missing_ranges: int  # of packets, for which the receiver now sends NAKs


@dataclass(frozen=True, slots=True)
class FollowedStatistics:
    """A publisher that a receiver follows."""

    publisher: str
    incarnation: int
    there: bool  # whether it is neither gone nor has left
    plan_version: int
    flows: int  # that are taken from it
