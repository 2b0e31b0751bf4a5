"""Messages between peers that host topics, and between a peer and its clients.

Peers also exchange the messages of the overlay (`topics/overlay/messages.py`). What channels and
clients say to each other is unchanged: it travels inside `ToChannel`, `ToClient` and
`ChannelMessage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from distributary.topics.messages import kind_of
from distributary.topics.overlay.identifiers import Peer

__all__ = ["Listen", "Neighbours", "ToChannel", "ToClient", "Unlisten", "Vouch", "Vouched"]


# --- between peers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToChannel:
    """A message of a client or of another channel to a channel: routed to its root.

    Answers to a client go to the peer `via`. A root that writes to another channel is that peer.
    """

    channel: str
    sender: str
    message: Any
    via: Peer

    @property
    def kind(self) -> str:
        """The kind of the message inside."""
        return kind_of(type(self.message))


@dataclass(frozen=True, slots=True)
class ToClient:
    """A message of a channel or of its host to a client, sent to the client's peer."""

    channel: str
    client: str
    message: Any
    root: Peer

    @property
    def kind(self) -> str:
        """The kind of the message inside."""
        return kind_of(type(self.message))


@dataclass(frozen=True, slots=True)
class Vouch:
    """These clients of the peer `via` listen to these channels and are alive.

    It is sent directly to a known root with all its channels, or routed with a single one.
    """

    kind: ClassVar[str] = "vouch"
    clients: dict[str, tuple[str, ...]]  # by channel
    via: Peer


@dataclass(frozen=True, slots=True)
class Vouched:
    """Answers a `Vouch`: `strangers` are clients that are not on a channel of the sender.

    They must join it again. Channels `elsewhere` are not (yet) the sender's.
    """

    kind: ClassVar[str] = "vouch"
    root: Peer
    channels: tuple[str, ...]
    strangers: dict[str, tuple[str, ...]]
    elsewhere: tuple[str, ...]


# --- between a client and its peer ---------------------------------------------------------------
#
# Besides these: `ChannelMessage(channel, message)` in both directions, where `channel` is the
# receiver or the sender; and `Beat` and `Bye` of a client to the channel `SERVICE`.


class Listen(msgspec.Struct, frozen=True, array_like=True):
    """The client wants the events of these channels; sent before it joins them."""

    channels: tuple[str, ...]


class Unlisten(msgspec.Struct, frozen=True, array_like=True):
    """The client no longer wants the events of these channels."""

    channels: tuple[str, ...]


class Neighbours(msgspec.Struct, frozen=True, array_like=True):
    """Other peers that a client may attach to if this one dies."""

    names: tuple[str, ...]
