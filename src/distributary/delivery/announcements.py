"""When a sender announces itself, and what of its plans."""

from __future__ import annotations

from distributary.delivery.directory import Directory
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.wire import Announcement, StreamPosition

__all__ = ["Announcements", "make_announcement"]


class Announcements:
    """Every second, more often while the plan changes, and on request."""

    def __init__(self, params: SenderParams) -> None:
        self._params = params
        self._sent_at = float("-inf")
        self._soon_until = float("-inf")
        self.count = 0
        self.next_at = float("inf")

    def hasten(self, now: float) -> None:
        """Announce now, and more often for the grace time."""
        self.next_at = now
        self._soon_until = now + self._params.grace

    def request(self, now: float) -> None:
        """Announce as soon as the hold-off time allows, since a receiver asks."""
        self.next_at = min(self.next_at, max(now, self._sent_at + self._params.hold_off))

    def is_due(self, now: float) -> bool:
        """Whether to announce now."""
        return now >= self.next_at

    def note_sent(self, now: float, *, changing: bool) -> int:
        """Note an announcement; returns its number."""
        soon = changing or now < self._soon_until
        self._sent_at = now
        self.next_at = now + (self._params.announce_soon if soon else self._params.announce_every)
        self.count += 1
        return self.count


def make_announcement(
    directory: Directory, journal: StreamPosition, *, started: bool
) -> Announcement:
    """Announce the plans of a directory, and how far its journal has come."""
    change = directory.following
    current, upcoming = directory.version, 0 if change is None else change.version
    now, then = directory.fingerprint, 0 if change is None else change.fingerprint
    if not started:  # nothing was sent yet; a change waits until something was
        current, upcoming, now, then = 0, current, 0, now
    return Announcement(
        current, upcoming, now, then, journal_first=journal.first, journal_last=journal.last
    )
