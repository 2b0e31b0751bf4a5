"""Which messages channels and subscribers take, and from whom.

Whoever brings messages from a network to a machine checks them first: a machine is not given what
it does not understand, so an error that it raises is a bug, never somebody's input.
"""

from __future__ import annotations

from distributary.machines.actions import Message
from distributary.topics.codec import Expired, Forgotten, Missed, Pulse, Resume
from distributary.topics.messages import (
    Accept,
    Answer,
    Await,
    CarriageChange,
    Carried,
    Carry,
    Drop,
    Dropped,
    Event,
    Found,
    Inquire,
    Invite,
    Join,
    Joined,
    Leave,
    Left,
    More,
    Offer,
    Propose,
    Quote,
    Rarer,
    Refuse,
    Repair,
    Settled,
    Suggest,
    Survey,
    Tell,
)
from distributary.topics.names import is_channel, is_cluster, is_topic

__all__ = ["UnexpectedMessageError", "check_for_channel", "check_for_subscriber"]

_Kinds = tuple[type, ...]

_FROM_ANY_CHANNEL: _Kinds = (Propose, Accept, Refuse)
_TO_CLUSTER_FROM_TOPIC: _Kinds = (Event, Found, Carried, Dropped, Rarer, *_FROM_ANY_CHANNEL)
_TO_TOPIC_FROM_CLUSTER: _Kinds = (Carry, Drop, Await, *_FROM_ANY_CHANNEL)
_TO_CHANNEL_FROM_CLIENT: _Kinds = (Join, Leave, Tell, More, Answer)
_TO_TOPIC_FROM_CLIENT: _Kinds = (Inquire, Repair, *_TO_CHANNEL_FROM_CLIENT)
_TO_CLUSTER_FROM_CLIENT: _Kinds = (Settled, *_TO_CHANNEL_FROM_CLIENT)
_TO_SUBSCRIBER: _Kinds = (
    *(Event, Joined, Left, CarriageChange, Survey),
    *(Resume, Expired, Pulse, Forgotten, Missed),
)


class UnexpectedMessageError(TypeError):
    """A message that its receiver does not take from this sender; nothing has changed."""

    def __init__(self, to: str, sender: str, message: Message) -> None:
        super().__init__(f"{to} does not take {message!r} from {sender!r}")


def check_for_channel(to: str, sender: str, message: Message) -> None:
    """Raise `UnexpectedMessageError` unless a channel takes the message from this sender."""
    if is_topic(sender):
        taken = _TO_CLUSTER_FROM_TOPIC if is_cluster(to) else _FROM_ANY_CHANNEL
    elif is_cluster(sender):
        taken = _FROM_ANY_CHANNEL if is_cluster(to) else _TO_TOPIC_FROM_CLUSTER
    else:
        taken = _TO_CLUSTER_FROM_CLIENT if is_cluster(to) else _TO_TOPIC_FROM_CLIENT
    if not isinstance(message, taken):
        raise UnexpectedMessageError(to, sender, message)


def check_for_subscriber(sender: str, message: Message) -> None:
    """Raise `UnexpectedMessageError` unless a subscriber takes the message from this sender."""
    match message:
        case Offer(quote, clusters):
            own = is_topic(sender) and quote.channel == sender and quote.topics
            taken = bool(own) and all(map(_is_of_cluster, clusters))
        case Suggest(quote) | Invite(quote):
            taken = _is_of_cluster(quote)
        case CarriageChange(successor=successor) if successor is not None:
            taken = is_cluster(successor)
        case Joined() | Left() | Survey():
            taken = is_channel(sender)
        case _:
            taken = isinstance(message, _TO_SUBSCRIBER)
    if not taken:
        raise UnexpectedMessageError("a subscriber", sender, message)


def _is_of_cluster(quote: Quote) -> bool:
    return is_cluster(quote.channel)
