"""Keeps a peer's copies in the log of a store, with its name and the peers that it knew."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from distributary.errors import StateError
from distributary.machines.real.store import Store
from distributary.topics.peer.copies import PeerState
from distributary.topics.policy import Policy
from distributary.topics.records import UNUSABLE

__all__ = ["PeerStore"]

_ABOUT, _RING = "peer", "ring"  # keys of rows
_LEAST = 1 << 24  # bytes in use that are never worth a shorter log
_GROWTH = 4

_names = msgspec.json.Decoder(list[str])


class PeerStore:
    """A peer's durable state. A record is durable once `write` has returned."""

    def __init__(self, store: Store, name: str, policy: Policy) -> None:
        self.state = PeerState(policy)
        self._store = store
        self._check_name(name)
        self._replay()
        self._base = store.size

    @property
    def reports(self) -> list[str]:
        """What could not be brought back, and why."""
        return self._store.reports

    @property
    def size(self) -> int:
        """The bytes in use, roughly."""
        return self._store.size

    def write(self, records: Iterable[bytes]) -> None:
        """Make records durable; all that the machine has returned so far."""
        self._store.append(records)
        if self._store.size > max(_LEAST, _GROWTH * self._base):
            self._store.replace(self.state.snapshot())
            self._base = self._store.size

    def remember(self, names: Iterable[str]) -> None:
        """Store the names of other peers, to find the ring again."""
        self._store.put(_RING, msgspec.json.encode(sorted(names)))

    def recall(self) -> list[str]:
        """The names of the peers that this one knew last."""
        data = self._store.get(_RING)
        try:
            return _names.decode(data or b"[]")
        except msgspec.MsgspecError as error:
            raise self._not_understood(error) from None

    def _check_name(self, name: str) -> None:
        """A peer's place follows from its name, so its copies are of no use under another."""
        known = self._store.get(_ABOUT)
        if known is None:
            if not self._store.is_empty:
                raise StateError(
                    str(self._store.path),
                    "is not the state of a peer, but of a topic service",
                    "choose another folder",
                )
            self._store.put(_ABOUT, name.encode())
        elif known.decode() != name:
            raise StateError(
                str(self._store.path),
                f"is the state of the peer {known.decode()}, not of {name}",
                "use the address of that time, or choose another folder",
            )

    def _replay(self) -> None:
        for data in self._store.read():
            try:
                self.state.replay(data)
            except UNUSABLE as error:
                raise self._not_understood(error) from error
        self.state.take()

    def _not_understood(self, error: Exception) -> StateError:
        return StateError(
            str(self._store.path),
            f"has a record that this version does not understand ({' '.join(str(error).split())})",
            "use the version that wrote it, or start with an empty folder",
        )
