"""What can go wrong in delivery over multicast.

    LiveError
    ├── NetworkError    an interface, a group or an address that cannot be used
    └── KeyFileError    a key that cannot be used, or that others could have read

Each message says what happened, with which value, and what to do next.
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = ["KeyFileError", "NetworkError"]


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
