"""What a neighbour may put into a packet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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

__all__ = ["check_packet", "drop_claims"]

_MOST_MESSAGES = 10_000


def check_packet(peer: Peer, packet: Packet) -> None:
    """Raise `RuleBroken` for a packet that no correct neighbour sends."""
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


def drop_claims(message: Any, is_foreign: Callable[[Name], bool]) -> Any:
    """The message without statements of brokers that are not behind its sender; None if empty.

    What a message takes back is left as it is: a broker takes back only what came from there.
    """
    match message:
        case AdvertiseStatement(name) | SubscribeStatement(name) | Barrier(name):
            return None if is_foreign(name) else message
        case Publication(_, advertisement):
            return None if is_foreign(advertisement) else message
        case Packed(statements):
            kept = tuple(each for each in statements if drop_claims(each, is_foreign) is not None)
            return message if len(kept) == len(statements) else Packed(kept)
        case ToldBuckets(_, told):
            return replace(message, told=told.select(lambda name: not is_foreign(name)))
    return message
