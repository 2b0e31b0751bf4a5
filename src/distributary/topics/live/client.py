"""An asyncio client for topics: create, remove, publish, subscribe, unsubscribe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from distributary.topics.live.subscription import TopicSubscription, WhenFull

if TYPE_CHECKING:
    from distributary.machines.nats.options import NatsOptions
    from distributary.topics.peer.tcp.dialing import PeerOptions

__all__ = ["ClientSettings", "ClientStatistics", "TopicClient"]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client; times in seconds.

    Up to `capacity` events of each topic wait for the application, then `when_full` applies. Up to
    `window` events to each topic may be unconfirmed; `publish` waits for room. The `prefix` is that
    of a service on NATS. There a client waits for `linger` seconds for more events before it sends
    what was published, unless many wait: they travel in one message, and so do their
    confirmations.
    """

    prefix: str = "distributary"
    timeout: float = 30.0  # of requests
    connect_within: float = 10.0
    beat_every: float = 2.0  # period of heartbeats
    repeat_after: float = 1.0  # retransmission time-out of unconfirmed events
    linger: float = 0.0
    window: int = 256
    capacity: int = 10_000
    when_full: WhenFull = WhenFull.WAIT

    def __post_init__(self) -> None:
        if not 0 <= self.linger < self.repeat_after:
            raise ValueError(
                f"linger must be at least 0 and less than repeat_after ({self.repeat_after:g} s), "
                f"not {self.linger:g}"
            )


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """A client's counts so far, and the channels it is subscribed to."""

    published: int
    repeated: int
    delivered: int
    dropped: int
    rejoined: int
    channels: tuple[str, ...]


# Not an ABC: calling it makes one of its subclasses, which type checkers refuse for abstract
# classes.
class TopicClient:
    """Publishes and subscribes to topics, whichever channels carry their events.

    `async with TopicClient(options) as client:` connects, and says goodbye at the end. A broken
    connection is re-established automatically, and events missed in the meantime are requested.
    The options choose the class: with `PeerOptions` it is a client of peers, which goes to another
    peer if its own dies; otherwise one of a service on NATS.
    """

    name: str
    settings: ClientSettings

    def __new__(
        cls,
        options: NatsOptions | PeerOptions | None = None,
        settings: ClientSettings | None = None,
        *,
        name: str | None = None,
    ) -> Self:
        """Make a client of the class that understands the options."""
        chosen = _choose_class(options) if cls is TopicClient else cls
        return cast("Self", super().__new__(chosen))

    def __init__(
        self,
        options: NatsOptions | PeerOptions | None = None,
        settings: ClientSettings | None = None,
        *,
        name: str | None = None,
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *raised: Any) -> bool:
        raise NotImplementedError

    async def close(self) -> None:
        """Say goodbye; unread and unconfirmed events are given up."""
        raise NotImplementedError

    async def create(self, topic: str, *, flow: float = 0.0) -> bool:
        """Create a topic; returns whether it is new. `flow` guesses its events per interval.

        If cancelled, the topic may or may not have been created.
        """
        raise NotImplementedError

    async def remove(self, topic: str) -> bool:
        """Remove a topic with its events and subscriptions; returns whether it existed.

        Subscriptions to it end with an `UnknownTopicError`. If cancelled, the topic may or may not
        have been removed.
        """
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return once the event is accepted: every subscriber will receive it exactly once.

        Events that one client publishes to one topic keep their order. If cancelled, or after a
        `NotConfirmedError`, the event may still be accepted.
        """
        raise NotImplementedError

    async def subscribe(self, topic: str) -> TopicSubscription:
        """Subscribe to all events of a topic that are accepted after this returns.

        If cancelled, the client is not subscribed.
        """
        raise NotImplementedError

    async def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        raise NotImplementedError

    @property
    def statistics(self) -> ClientStatistics:
        """A snapshot of the counts."""
        raise NotImplementedError


def _choose_class(options: NatsOptions | PeerOptions | None) -> type[TopicClient]:
    from distributary.topics.peer.tcp.dialing import PeerOptions

    if isinstance(options, PeerOptions):
        from distributary.topics.peer.tcp.client import RingClient

        return RingClient
    from distributary.topics.nats.client import NatsClient

    return NatsClient
