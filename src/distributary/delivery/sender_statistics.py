"""A sender's counters."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SenderMachineStatistics"]


@dataclass(frozen=True, slots=True)
class SenderMachineStatistics:
    """A snapshot of a sender's counters; they count packets unless they say messages or bytes."""

    messages: int = 0
    unplanned_messages: int = 0  # of flows outside the plan
    packets: int = 0
    packet_bytes: int = 0
    repairs: int = 0
    heartbeats: int = 0
    announcements: int = 0
    journal_packets: int = 0
    lookups: int = 0
    directory_packets: int = 0  # with a block of the directory, or a part of one
    inquiries: int = 0
    portion_packets: int = 0  # that answer them
    naks: int = 0
    curbed_naks: int = 0  # cut short, since the requester had used up its allowance
    over_limit: int = 0  # NAKs cut short since too many repairs wait, and requesters forgotten
    confirms: int = 0
    malformed: int = 0
    unauthenticated: int = 0
    refused: int = 0  # messages offered while full, or taken before their flow was refused
    outranked: int = 0  # requests of receivers that follow a later incarnation
