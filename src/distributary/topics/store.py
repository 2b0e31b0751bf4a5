"""Keeps the state of a host of channels in the log of a store, and brings it back from there."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from distributary.errors import StateError
from distributary.machines.real.store import Store
from distributary.topics.journal import take_over_journal
from distributary.topics.policy import Policy
from distributary.topics.records import UNUSABLE, HostState, is_record

__all__ = ["TopicStore"]

_LEAST = 1 << 24  # bytes in use that are never worth a shorter log
_GROWTH = 4


class TopicStore:
    """A host's `state` as the log tells it; the host that gets it changes it.

    A record is durable once `write` has returned; only then may anything be sent that follows from
    it.
    """

    def __init__(self, store: Store, policy: Policy) -> None:
        self.state = HostState()
        self._store = store
        self._policy = policy
        take_over_journal(store)
        unusable = [*self._replay(store.read())]
        self._base = store.size
        if unusable:
            store.set_aside(*_describe(unusable))
        if unusable or not self.state.identity:
            self.state.identity = self.state.identity or secrets.token_hex(8)
            self.shorten()

    @staticmethod
    def holds_state(store: Store) -> bool:
        """Whether a host has written to the store, in this format or in a former one."""
        return not store.is_empty or store.path.with_name("journal").exists()

    @property
    def place(self) -> str:
        """Where the state is, in words."""
        return str(self._store.path.parent)

    @property
    def reports(self) -> list[str]:
        """What could not be brought back, and why."""
        return self._store.reports

    def write(self, records: Iterable[bytes]) -> None:
        """Make the host's records durable, all that it has returned so far."""
        self._store.append(records)
        if self._store.size > max(_LEAST, _GROWTH * self._base):
            self.shorten()

    def shorten(self) -> None:
        """Let a snapshot of the state take the place of the log."""
        self._store.replace(self.state.snapshot())
        self._base = self._store.size

    def _replay(self, records: Iterable[bytes]) -> Iterator[tuple[bytes, Exception]]:
        """Replay all records; yields those that cannot be replayed, and why."""
        for data in records:
            try:
                self.state.replay(data, self._policy)
            except UNUSABLE as error:
                if not is_record(data):
                    raise StateError(
                        str(self._store.path),
                        f"has a record that this version does not understand ({error})",
                        "use the version that wrote it, or start with an empty folder",
                    ) from error
                yield data, error


def _describe(unusable: list[tuple[bytes, Exception]]) -> tuple[bytes, str]:
    """The records one after the other, and a reason for setting them aside."""
    records = "1 record" if len(unusable) == 1 else f"{len(unusable):,} records"
    first = " ".join(str(unusable[0][1]).split())
    return b"".join(data for data, _ in unusable), f"{records} cannot be replayed ({first})"
