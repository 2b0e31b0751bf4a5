"""What an event costs a NATS server in messages and bytes, whatever else the machine does."""

from __future__ import annotations

import asyncio
from functools import partial

from benchmarks.measure import Section
from benchmarks.topics_live import (
    LARGE,
    PEER,
    RATE,
    SECONDS,
    WAYS,
    Measured,
    Way,
    channels,
    count_sent,
    draw_groups,
    measure_all,
)

LINGER = 0.05  # seconds
_IN_A_FOLDER = Way(partial(channels, clusters=False, linger=LINGER), False)
_IN_JETSTREAM = Way(partial(channels, clusters=False, linger=LINGER), True)
_WAYS = {
    **{name: way for name, way in WAYS.items() if "with clusters" not in name},
    f"the same, state in a folder, events linger {LINGER * 1e3:.0f} ms": _IN_A_FOLDER,
    f"the same, state in JetStream, events linger {LINGER * 1e3:.0f} ms": _IN_JETSTREAM,
}


def topics_cost() -> Section:
    """Messages and bytes of small and of larger events, as the server counts them."""
    interests, rows = draw_groups(), []
    for size in (0, LARGE):
        found = asyncio.run(measure_all(_WAYS, interests, 1, size, events=0))
        rows += [_row(name, rounds[0], found, size) for name, rounds in found.items()]
    return Section(
        "Topics on NATS: what an event costs",
        f"The readers and topics of the next section, {RATE * SECONDS:,.0f} events at {RATE} per "
        "second and nothing faster, so that hardly anything depends on the speed of the machine: "
        "messages and bytes of payload as the server counts them, without subjects, including "
        "confirmations and heartbeats. A small event is a time in 12 to 15 digits. Events that "
        "linger are sent together with those that the publisher publishes a little later.",
        [
            "",
            "bytes of an event",
            "messages in",
            "messages out",
            "KB out",
            "messages out, of JetStream's",
            "in and out, of JetStream's",
            "KB out, of plain NATS's",
        ],
        rows,
    )


def _row(name: str, measured: Measured, found: dict[str, list[Measured]], size: int) -> list[str]:
    taken, (messages, sent) = _count_taken(measured), count_sent(measured)
    taken_by_peer, (peer, _) = _count_taken(found[PEER][0]), count_sent(found[PEER][0])
    _, plain = count_sent(found["plain NATS"][0])
    return [
        name,
        f"{size}" if size else "small",
        f"{taken:,}",
        f"{messages:,}",
        f"{sent / 1e3:,.1f}",
        f"{messages / peer:.2f}",
        f"{(taken + messages) / (taken_by_peer + peer):.2f}",
        f"{sent / plain:.2f}",
    ]


def _count_taken(measured: Measured) -> int:
    """Messages that the server took in."""
    return measured.after.in_msgs - measured.before.in_msgs


SECTIONS = {"topics_cost": topics_cost}
