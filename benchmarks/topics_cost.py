"""What an event costs a NATS server in messages and bytes, whatever else the machine does."""

from __future__ import annotations

import asyncio

from benchmarks.measure import Section
from benchmarks.topics_live import (
    LARGE,
    PEER,
    RATE,
    SECONDS,
    WAYS,
    Measured,
    count_sent,
    draw_groups,
    measure_all,
)

_WAYS = {name: way for name, way in WAYS.items() if "with clusters" not in name}


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
        "confirmations and heartbeats. A small event is a time in 12 to 15 digits.",
        [
            "",
            "bytes of an event",
            "messages in",
            "messages out",
            "KB out",
            "messages out, of JetStream's",
            "KB out, of plain NATS's",
        ],
        rows,
    )


def _row(name: str, measured: Measured, found: dict[str, list[Measured]], size: int) -> list[str]:
    messages, sent = count_sent(measured)
    peer, _ = count_sent(found[PEER][0])
    _, plain = count_sent(found["plain NATS"][0])
    return [
        name,
        f"{size}" if size else "small",
        f"{measured.after.in_msgs - measured.before.in_msgs:,}",
        f"{messages:,}",
        f"{sent / 1e3:,.1f}",
        f"{messages / peer:.2f}",
        f"{sent / plain:.2f}",
    ]


SECTIONS = {"topics_cost": topics_cost}
