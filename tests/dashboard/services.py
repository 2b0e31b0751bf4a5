"""What a topic service and a network of brokers answer, for the pages about them."""

from __future__ import annotations

from typing import Any

from tests.dashboard.fake import HOSTILE_NAMES, FakeLook

__all__ = ["BROKERS", "TOPICS", "make_hostile"]


def _cluster(number: int) -> dict[str, Any]:
    topics = [f"desk/{number}/{name}" for name in ("bonds", "futures", "news", "odds", "oil")]
    return {
        "name": f"cluster-{number:02}",
        "topics": topics[: 2 + number % 4],
        "n_topics": 2 + number % 4,
        "members": 9 - number,
        "flow": 12.5 * number + 3,
        "needed": (2 + number % 4) * (9 - number),
    }


_TOPIC_STATUS = {
    "uptime": 3_601.0,
    "topics": 48,
    "subscribers": 31,
    "subscriptions": 112,
    "wanted": 203,
    "clusters": [_cluster(number) for number in range(1, 6)],
    "n_clusters": 5,
    "cost": 811.4,
    "unclustered": 1_204.9,
    "accepted": 48_210,
    "repeated": 3,
    "overhead": 6_120,
    "overhead_kinds": {"Attend": 5_000, "Announce": 1_120},
    "repairs": 14,
    "found_dead": 1,
    "refused": 0,
    "received": 55_000,
    "sent": 310_044,
    "unsent": 0,
    "dropped": 0,
    "batches": 900,
    "saving": 0.327,
}

_NETWORK = [["A", "B"], ["A", "C"], ["B", "D"], ["B", "E"], ["C", "frankfurt-backup"]]


def _link(neighbour: str, *, waiting: int = 0, connected: bool = True) -> dict[str, Any]:
    return {
        "neighbour": neighbour,
        "connected": connected,
        "complete": connected,
        "brokers": [neighbour],
        "forwarded": 8_120,
        "received": 2_044,
        "unneeded": 0,
        "waiting": waiting,
        "waiting_bytes": 220 * waiting,
        "unfinished": waiting // 3,
        "unfinished_bytes": 0,
        "subscriptions_sent": 31,
        "subscriptions_received": 12,
        "retransmitted": 0,
    }


def _broker(name: str, links: list[dict[str, Any]]) -> dict[str, Any]:
    counts = (
        *("accepted", "refused", "routed", "matched", "forwarded", "unneeded", "acknowledged"),
        *("dropped", "violations", "sessions_ended", "kept_dropped", "kept_bytes"),
    )
    return {
        **dict.fromkeys(counts, 0),
        "name": name,
        "incarnation": 3,
        "policy": "merging",
        "network": _NETWORK,
        "routed": 91_204,
        "subscriptions": 1_204 + len(name),
        "boxes": 2_408,
        "advertisements": 2,
        "kept_events": 12,
        "sizes": {"sessions": 4, "links known": 5},
        "links": links,
        "clients": [{"client": "ann"}, {"client": "bob"}],
        "reasons": {},
    }


TOPICS = [FakeLook("nats://127.0.0.1:4222", _TOPIC_STATUS)]
BROKERS = [
    FakeLook("127.0.0.1:7001", _broker("A", [_link("B"), _link("C", waiting=41)])),
    FakeLook(
        "127.0.0.1:7002",
        _broker("B", [_link("A"), _link("D"), _link("E", connected=False)]),
    ),
    FakeLook("127.0.0.1:7009", None),
]


def make_hostile(looks: list[FakeLook]) -> list[FakeLook]:
    """The same with the worst characters in every name and text."""
    return [FakeLook(HOSTILE_NAMES[0] + look.address, _spoil(look.document)) for look in looks]


def _spoil(value: Any) -> Any:
    match value:
        case str():
            return HOSTILE_NAMES[len(value) % len(HOSTILE_NAMES)] + value
        case dict():
            return {key: _spoil(each) for key, each in value.items()}
        case list():
            return [_spoil(each) for each in value]
    return value
