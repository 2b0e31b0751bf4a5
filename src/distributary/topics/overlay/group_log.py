"""What roots need of the log of a group, and of what is done with it."""

from __future__ import annotations

from typing import Any, Protocol

from distributary.topics.overlay.messages import Ballot, Members

__all__ = ["GroupApplication", "GroupLog"]


class GroupLog(Protocol):
    """A copy of a group's log: of the root, of a replica, or from an earlier role.

    `written` is the ballot of the root that wrote it last, `promised` the highest ballot seen.
    `members` are the last ones that a majority of the former members knows, `proposed` the last
    that a root has named.
    """

    written: Ballot
    promised: Ballot
    members: Members
    proposed: Members

    @property
    def end(self) -> int:
        """The number of the next entry."""
        ...

    def part(self, start: int) -> tuple[Any, ...] | None:
        """The entries from number `start` on; None if they are gone."""
        ...

    def extend(self, entries: tuple[Any, ...]) -> None:
        """Append the next entries."""
        ...

    def copy(self) -> Any:
        """The whole content, for `restore` at another peer."""
        ...

    def restore(self, content: Any, end: int) -> None:
        """Replace the content."""
        ...

    def note(self) -> None:
        """A ballot or the members have changed."""
        ...


class GroupApplication(Protocol):
    """What is done with the groups of which this peer is root."""

    def new_log(self, group: int) -> GroupLog:
        """An empty log."""
        ...

    def drop_log(self, group: int) -> None:
        """The log is no longer needed here."""
        ...

    def take_over(self, group: int, log: Any, now: float) -> int:
        """Continue from this log; returns the number up to which its entries have had effect."""
        ...

    def accept(self, group: int, first: int, end: int, now: float) -> None:
        """The entries from `first` up to but excluding `end` are accepted."""
        ...

    def open(self, group: int, now: float) -> None:
        """The root starts to serve."""
        ...

    def close(self, group: int, now: float) -> None:
        """This peer is no longer the root; find another."""
        ...

    def skip_to(self, group: int, number: int, now: float) -> None:
        """A child in the tree has had events before this number."""
        ...

    def arrive(self, payload: Any, now: float) -> None:
        """A routed message whose key belongs to this peer."""
        ...
