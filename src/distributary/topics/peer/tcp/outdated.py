"""Confirmations that a later one of the same turn makes unnecessary: they are cumulative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from distributary.machines.actions import Deliver, Send
from distributary.topics.codec import Taken
from distributary.topics.host import ChannelMessage
from distributary.topics.peer.messages import ToClient

__all__ = ["skip_outdated"]

A = TypeVar("A", Send, Deliver)


def skip_outdated(actions: Sequence[A]) -> Sequence[A]:
    """Leave out all but the last confirmation of each stream of events."""
    keys = [*map(_stream, actions)]
    last = {key: at for at, key in enumerate(keys) if key is not None}
    if len(last) + keys.count(None) == len(keys):
        return actions
    return [
        action
        for at, (key, action) in enumerate(zip(keys, actions, strict=True))
        if key is None or last[key] == at
    ]


def _stream(action: Send | Deliver) -> tuple[str, str, int] | None:
    """The client, the channel and the number of the stream that an action confirms."""
    match action:
        case Send(_, ToClient(channel, client, Taken(stream, _))):
            return client, channel, stream
        case Deliver(client, ChannelMessage(channel, Taken(stream, _)), _):
            return client, channel, stream
    return None
