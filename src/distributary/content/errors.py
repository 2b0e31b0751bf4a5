"""Errors of clients of content brokers.

    DistributaryError
    └── LiveError
        ├── BrokerAwayError        no broker answers at an address
        ├── BrokerRefusedError     a broker refuses the connection
        ├── SessionRefusedError    a broker opens no session
        ├── ClientDismissedError   a broker has ended the client's connection for good
        ├── FilterRefusedError     a broker refuses a filter
        ├── EventRefusedError      a broker refuses an event
        ├── EventNotStoredError    no broker has stored an event in time, or nobody knows
        ├── EventsMissedError      events are missing
        ├── MoveFailedError        the client cannot move, and stays where it is
        └── ContentClientClosedError  the client is closed

Each message says what happened, with which value, and what to do next.
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = [
    "BrokerAwayError",
    "BrokerRefusedError",
    "ClientDismissedError",
    "ContentClientClosedError",
    "EventNotStoredError",
    "EventRefusedError",
    "EventsMissedError",
    "FilterRefusedError",
    "MoveFailedError",
    "SessionRefusedError",
]


class _BrokerError(LiveError):
    """Something is wrong with `broker`, and why; `form` is the message."""

    form = "{broker}: {reason}"

    def __init__(self, broker: str, reason: str) -> None:
        self.broker = broker
        self.reason = reason
        super().__init__(self.form.format(broker=broker, reason=reason))


class BrokerAwayError(_BrokerError):
    """No broker answers at `broker`."""

    form = (
        "{broker}: no broker answers ({reason}); start one with `distributary broker serve`, "
        "or check the address"
    )


class BrokerRefusedError(_BrokerError):
    """The broker at `broker` refuses the connection."""

    form = (
        "{broker}: the broker refused the connection: {reason}; "
        "check the client's name, and its certificate or token"
    )


class SessionRefusedError(_BrokerError):
    """The broker at `broker` opens no session for the client."""

    form = "{broker}: the broker opens no session: {reason}"


class ClientDismissedError(LiveError):
    """The broker has ended the connection of the client `name`, and it must not connect again."""

    def __init__(self, name: str, broker: str, reason: str) -> None:
        self.name = name
        self.broker = broker
        self.reason = reason
        super().__init__(
            f"{broker}: the broker has dismissed the client {name!r}: {reason}; open it again, and "
            "use each name in one process at a time"
        )


class FilterRefusedError(LiveError):
    """The broker refuses `filter`."""

    def __init__(self, filter: str, reason: str) -> None:
        self.filter = filter
        self.reason = reason
        super().__init__(f"the broker refused the filter {filter!r}: {reason}; correct it")


class EventRefusedError(LiveError):
    """The broker refuses an event, which is not delivered to anybody."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the event was refused: {reason}; correct the event")


class EventNotStoredError(LiveError):
    """The event is not stored or, if `is_unknown`, may or may not be."""

    def __init__(self, reason: str, *, is_unknown: bool) -> None:
        self.reason = reason
        self.is_unknown = is_unknown
        what = "may or may not be stored" if is_unknown else "was not stored"
        then = "find out before you publish it again" if is_unknown else "publish it again later"
        super().__init__(f"the event {what}: {reason}; {then}")


class EventsMissedError(LiveError):
    """`count` events are missing here, None if nobody knows how many; later ones follow."""

    def __init__(self, count: int | None, reason: str) -> None:
        self.count = count
        self.reason = reason
        some = "events may be missing" if count is None else f"{count:,} events are missing"
        super().__init__(f"{some} here: {reason}; read on for later events")


class MoveFailedError(_BrokerError):
    """The client cannot move to `broker`, and stays where it is."""

    form = "the client cannot move to {broker}: {reason}"


class ContentClientClosedError(LiveError):
    """The client is closed."""

    def __init__(self) -> None:
        super().__init__("the client is closed; open a new one")
