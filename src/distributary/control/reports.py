"""What members write down about themselves, and what they report every second.

All of it is MessagePack. Names in keys and subjects are escaped (`machines.nats.subjects`). Whole
numbers are bounded, so that what a service adds up never overflows; a report with others cannot be
read.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = [
    "NAMES_EVERY",
    "InterestRecord",
    "PublisherRecord",
    "PublisherReport",
    "ReceiverReport",
]

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]

NAMES_EVERY = 20  # reports, so that the last minute of them has all names


class InterestRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver wants: the value of its key. `incarnation` changes with each start of it."""

    incarnation: str
    where: str  # process and host
    at: float
    flows: tuple[str, ...]


class PublisherRecord(msgspec.Struct, frozen=True, array_like=True):
    """A publisher and its flows: the value of its key. None: all flows of the plan."""

    incarnation: str
    where: str
    at: float
    flows: tuple[str, ...] | None


class PublisherReport(msgspec.Struct, frozen=True, array_like=True):
    """What was published since the report before, in whole seconds.

    `names` gives names to the numbers of flows from `first_name` on. A publisher numbers its flows
    from 0 in the order in which it meets them, names each before or with its first count, and names
    all of them again every `NAMES_EVERY` reports, so that a service that begins with the reports of
    the last minute knows them. `first_second` is the second since 1970 that the counts begin in;
    each of `counts` is the seconds after it, the number of a flow, and its messages. Reports are
    numbered from 0 and come in order, each at least once: one with a number that was there already
    is a copy. `uncounted` is how many messages have no count, since there are too many flows.
    `claims` is how often others asked for its name since its start, `claimed_by` who did so last.
    """

    incarnation: str
    number: Count
    names: tuple[str, ...]
    first_second: Count
    counts: tuple[tuple[Count, Count, Count], ...]
    plan_version: Count  # of control, that it publishes by
    unplanned: Count
    messages_per_packet: float
    cpu_share: float
    first_name: Count = 0
    uncounted: Count = 0
    claims: Count = 0
    claimed_by: str = ""


class ReceiverReport(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver measured since its report before, in `seconds`."""

    incarnation: str
    number: Count
    seconds: float
    wanted: Count  # messages delivered
    dropped_packets: Count  # by the first filter
    dropped_messages: Count  # by the second
    groups: Count
    gaps: Count  # the following counts are since its start
    missing: Count
    repairs: Count
    unserved: tuple[str, ...]  # the first few
    cpu_share: float
    claims: Count = 0  # as in `PublisherReport`
    claimed_by: str = ""
