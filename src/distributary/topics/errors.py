"""What can go wrong on a live plane.

    DistributaryError
    └── LiveError
        ├── ServerAwayError       there is no message server at an address, or it is gone
        ├── ServerRefusedError    the server does not let us in
        ├── ServerStartError      the embedded server does not start
        ├── ServiceAwayError      nobody answers for the channels of topics
        ├── ServiceRunningError   somebody else answers for them already
        ├── ServiceReplacedError  somebody else answers for them since we were away
        ├── TopicNameError        no topic can be called so
        ├── UnknownTopicError     nobody has made that topic
        ├── PayloadTooLargeError  the server would not carry an event
        ├── NotConfirmedError     an event may have been accepted, or not
        ├── EventsLostError       events of a topic can be had no more
        │   └── EventsForgottenError  the service has lost them, and uses their numbers again
        └── ClientClosedError     the client was closed before

Each message says what happened, with which value, and what to do next.
"""

from __future__ import annotations

import re

from distributary.errors import LiveError

__all__ = [
    "ClientClosedError",
    "EventsForgottenError",
    "EventsLostError",
    "NotConfirmedError",
    "PayloadTooLargeError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "ServiceAwayError",
    "ServiceReplacedError",
    "ServiceRunningError",
    "TopicNameError",
    "UnknownTopicError",
    "hide_secrets",
]

# Up to the last @, whatever is before it: a password may have any signs.
_SECRET = re.compile(r"^((?:nats|tls|wss?|https?)://)?.*@", re.DOTALL)


def hide_secrets(url: str) -> str:
    """An address, or several, without users, passwords and tokens: for people to read."""
    return _SECRET.sub(r"\1***@", url)


class ServerAwayError(LiveError):
    """No server answers at `url`."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = hide_secrets(url)
        self.reason = reason
        super().__init__(
            f"{self.url}: no NATS server answers ({reason}); start one, or check the address"
        )


class ServerRefusedError(LiveError):
    """The server at `url` does not let us in."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = hide_secrets(url)
        self.reason = reason
        super().__init__(
            f"{self.url}: the NATS server refuses us ({reason}); check the credentials"
        )


class ServerStartError(LiveError):
    """The embedded server does not start."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the embedded NATS server does not start: {reason}; or name your own")


class ServiceAwayError(LiveError):
    """Nobody answers for the channels under `prefix`."""

    def __init__(self, prefix: str, waited: float) -> None:
        self.prefix = prefix
        self.waited = waited
        super().__init__(
            f"no channel service answered under {prefix!r} within {waited:g} s; "
            "start one with `distributary topics serve`"
        )


class ServiceRunningError(LiveError):
    """Somebody answers for the channels under `prefix` already."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"a channel service is running under {prefix!r} already; stop it, or name another "
            "prefix"
        )


class ServiceReplacedError(LiveError):
    """While we were away another service has begun to answer under `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"another channel service answers under {prefix!r} since this one was away; this one "
            "ends, stop the other before you start it again"
        )


class TopicNameError(LiveError):
    """No topic can be called `name`."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        shown = name if len(name) <= 40 else name[:40] + "…"
        super().__init__(f"no topic can be called {shown!r}: {reason}; name it otherwise")


class UnknownTopicError(LiveError):
    """Nobody has made `topic`."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"there is no topic {topic!r}; create it first: "
            "`distributary topics create`, or --create"
        )


class PayloadTooLargeError(LiveError):
    """An event of `size` bytes, where the server leaves room for `most`."""

    def __init__(self, topic: str, size: int, most: int) -> None:
        self.topic = topic
        self.size = size
        self.most = most
        super().__init__(
            f"an event of {size:,} bytes on {topic!r} is too large, the server takes {most:,}; "
            "split it, or raise the server's max_payload"
        )


class NotConfirmedError(LiveError):
    """An event on `topic` was not confirmed in time: it may have been accepted, or not."""

    def __init__(self, topic: str, waited: float) -> None:
        self.topic = topic
        self.waited = waited
        super().__init__(
            f"an event on {topic!r} was not confirmed within {waited:g} s and may or may not have "
            "been accepted; see whether the server and the channel service are there"
        )


class EventsLostError(LiveError):
    """The events `first` to `last` of `topic` are kept no more; those after follow."""

    def __init__(self, topic: str, first: int, last: int) -> None:
        self.topic = topic
        self.first = first
        self.last = last
        super().__init__(
            f"events {first:,} to {last:,} of {topic!r} are lost: we were away for longer than "
            "they are kept; read on for those after, or keep more"
        )


class EventsForgottenError(EventsLostError):
    """The events `first` to `last` of `topic` came, and the service knows nothing of them any more.

    Those that follow have their numbers.
    """

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(topic, first, last)
        self.args = (
            f"the service has lost events {first:,} to {last:,} of {topic!r}, which came here: it "
            "went back to an older state; those that follow have these numbers again",
        )


class ClientClosedError(LiveError):
    """The client was closed."""

    def __init__(self) -> None:
        super().__init__("the client is closed; open a new one")
