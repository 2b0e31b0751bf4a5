"""What a neighbour may put into a packet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributary.content.client_requests import RuleBroken
from distributary.content.connections import Packet
from distributary.content.messages import (
    AdvertiseStatement,
    Barrier,
    Name,
    Packed,
    Publication,
    SubscribeStatement,
)
from distributary.content.protocol import Peer
from distributary.content.resync import BUCKETS, HeardDigests, ToldBuckets
from distributary.content.spanning import Spanning

__all__ = ["check_packet"]

_MOST_MESSAGES = 10_000


def check_packet(peer: Peer, packet: Packet, spanning: Spanning) -> None:
    """Raise `RuleBroken` for a packet that no correct neighbour sends.

    A neighbour cannot speak for a broker that is known not to be behind its link.
    """
    numbers = packet.receiver, packet.received, packet.done, packet.held, packet.first
    if packet.sender != peer.incarnation or min(numbers) < 0:
        raise RuleBroken("the numbers of a packet are not those of this connection")
    if len(packet.messages) > _MOST_MESSAGES or (packet.messages and packet.first < 1):
        raise RuleBroken("a packet has too many messages or no number for them")
    for message in packet.messages:
        if isinstance(message, HeardDigests) and len(message.digests) != BUCKETS:
            raise RuleBroken(f"a report has {len(message.digests)} digests, not {BUCKETS}")
        if isinstance(message, ToldBuckets) and not all(0 <= b < BUCKETS for b in message.buckets):
            raise RuleBroken("a report has a bucket that does not exist")
        for name in _find_claims(message):
            direction = spanning.direction_of(name.broker)
            if direction not in (None, peer.name):
                raise RuleBroken(f"broker {peer.name!r} speaks for {name.broker!r}")


def _find_claims(message: Any) -> Iterable[Name]:
    """The names of statements that a message makes, not of those that it takes back."""
    match message:
        case AdvertiseStatement(name) | SubscribeStatement(name) | Barrier(name):
            return (name,)
        case Publication(_, advertisement):
            return (advertisement,)
        case Packed(statements):
            return [name for each in statements for name in _find_claims(each)]
        case ToldBuckets(_, told):
            return [*told.advertisements, *told.subscriptions]
    return ()
