"""What can go wrong in delivery over multicast.

    LiveError
    ├── NetworkError    an interface, a group or an address that cannot be used
    ├── KeyFileError    a key that cannot be used, or that others could have read
    ├── DirectoryFullError    a plan for which a publisher has no numbers left
    └── NotHeldError    a message of a flow that another publisher has

Each message says what happened, with which value, and what to do next.
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = ["DirectoryFullError", "KeyFileError", "NetworkError", "NotHeldError"]


class NetworkError(LiveError):
    """The interface, group or address `where` cannot be used."""

    def __init__(self, where: str, reason: str, remedy: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}; {remedy}")


class KeyFileError(LiveError):
    """The key at `path` cannot be used."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")


class DirectoryFullError(LiveError):
    """A publisher has no numbers left for the flows, or the streams, of another plan."""

    def __init__(self, what: str, needed: int, most: int) -> None:
        self.what = what
        self.needed = needed
        self.most = most
        super().__init__(
            f"the plans so far and this one have up to {needed:,} {what}, of at most {most:,} in "
            "the life of a publisher; restart the publisher, or plan for fewer"
        )


class NotHeldError(LiveError):
    """The publisher does not have `flow`; `holder` does, if that is known."""

    def __init__(self, flow: str, holder: str | None) -> None:
        self.flow = flow
        self.holder = holder
        has = "was released" if holder is None else f"is published by {holder!r}"
        super().__init__(f"flow {flow!r} {has}; release it there, and claim it here")
