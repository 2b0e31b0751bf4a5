"""Errors of topics on NATS.

    DistributaryError
    └── LiveError
        ├── ServiceAwayError      no channel service answers
        ├── ServiceRunningError   a channel service is already running
        ├── ServiceReplacedError  another channel service has taken over
        ├── NoStateError          the service has no place to keep its state
        ├── TopicNameError        an invalid name of a topic
        ├── UnknownTopicError     the topic does not exist
        ├── PayloadTooLargeError  an event exceeds the server's limit
        ├── NotConfirmedError     it is unknown whether an event was accepted
        ├── EventsLostError       events of a topic are no longer available
        │   └── EventsForgottenError  the service has lost them and reuses their numbers
        ├── SubjectDeniedError    the server's permissions forbid a subject
        └── ClientClosedError     the client is closed

Those of the server itself are in `machines.nats.errors`. Each message says what happened, with
which value, and what to do next.
"""

from __future__ import annotations

from distributary.errors import LiveError
from distributary.machines.nats.errors import (
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
    hide_secrets,
)

__all__ = [
    "ClientClosedError",
    "EventsForgottenError",
    "EventsLostError",
    "NoStateError",
    "NotConfirmedError",
    "PayloadTooLargeError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "ServiceAwayError",
    "ServiceReplacedError",
    "ServiceRunningError",
    "SubjectDeniedError",
    "TopicNameError",
    "UnknownTopicError",
    "hide_secrets",
]


class ServiceAwayError(LiveError):
    """No channel service answers under `prefix`."""

    def __init__(self, prefix: str, waited: float) -> None:
        self.prefix = prefix
        self.waited = waited
        super().__init__(
            f"no channel service answered under {prefix!r} within {waited:g} s; "
            "start one with `distributary topics serve`"
        )


class ServiceRunningError(LiveError):
    """A channel service is already running under `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"a channel service is already running under {prefix!r}; stop it, or use another prefix"
        )


class ServiceReplacedError(LiveError):
    """Another service has taken over `prefix` while this one was disconnected."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"another channel service took over {prefix!r} while this one was disconnected; "
            "this one ends; stop the other before you start it again"
        )


class NoStateError(LiveError):
    """The server at `url` has no JetStream, and the service has no folder for its state."""

    def __init__(self, url: str) -> None:
        self.url = hide_secrets(url)
        super().__init__(
            f"{self.url}: the NATS server has no JetStream for these credentials, so the state of "
            "the topic service needs a folder; give one with --state, or enable JetStream"
        )


class TopicNameError(LiveError):
    """`name` is not a valid name of a topic."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        shown = name if len(name) <= 40 else name[:40] + "…"
        super().__init__(f"{shown!r} is not a valid topic name: {reason}; choose another")


class UnknownTopicError(LiveError):
    """The topic does not exist."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"there is no topic {topic!r}; create it first: "
            "`distributary topics create`, or --create"
        )


class PayloadTooLargeError(LiveError):
    """An event has `size` bytes, and the server, or a peer, accepts at most `most`."""

    def __init__(
        self,
        topic: str,
        size: int,
        most: int,
        *,
        remedy: str = "split it, or raise the server's max_payload",
    ) -> None:
        self.topic = topic
        self.size = size
        self.most = most
        super().__init__(
            f"an event of {size:,} bytes on {topic!r} is too large, at most {most:,} are accepted; "
            f"{remedy}"
        )


class NotConfirmedError(LiveError):
    """An event on `topic` was not confirmed in time; it may or may not have been accepted."""

    def __init__(self, topic: str, waited: float) -> None:
        self.topic = topic
        self.waited = waited
        super().__init__(
            f"an event on {topic!r} was not confirmed within {waited:g} s and may or may not have "
            "been accepted; check that the channel service and its server, or the peers, run"
        )


class EventsLostError(LiveError):
    """The events `first` to `last` of `topic` are no longer kept; later ones follow."""

    def __init__(self, topic: str, first: int, last: int) -> None:
        self.topic = topic
        self.first = first
        self.last = last
        super().__init__(
            f"events {first:,} to {last:,} of {topic!r} are lost: this client was away for longer "
            "than they are kept; read on for later events, or raise --history"
        )


class EventsForgottenError(EventsLostError):
    """The service has lost the events `first` to `last`, which this client had received.

    Later events reuse their numbers.
    """

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(topic, first, last)
        self.args = (
            f"the service was restored from an older state and has lost events {first:,} to "
            f"{last:,} of {topic!r}, which this client had received; their numbers are reused",
        )


class SubjectDeniedError(LiveError):
    """The NATS server does not let these credentials `action` ("publish to") `subject`."""

    def __init__(self, action: str, subject: str) -> None:
        self.action = action
        self.subject = subject
        super().__init__(
            f"the NATS server does not let these credentials {action} {subject!r}; use others, or "
            "give them the rights that docs/topics.md lists"
        )


class ClientClosedError(LiveError):
    """The client is closed."""

    def __init__(self) -> None:
        super().__init__("the client is closed; open a new one")
