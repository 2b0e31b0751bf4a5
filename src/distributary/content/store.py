"""Keeps what a broker saves in the rows of a store, and brings it back after a restart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from distributary.content.handshake import fingerprint
from distributary.content.recovery import Recovery
from distributary.content.state_codec import StateCodec
from distributary.errors import StateError
from distributary.machines.actions import Save
from distributary.machines.real.store import Store
from distributary.model import Schema

__all__ = ["BrokerStore"]

_ABOUT = "broker"  # the key of the row about the broker itself; all others are JSON arrays
# What can be lost: neighbours say it again, and a history is gathered again.
_EXPENDABLE = ('["heard",', '["history",')


class _About(msgspec.Struct, frozen=True):
    """Whose state it is."""

    name: str
    schema: str  # its fingerprint
    incarnation: int


class BrokerStore:
    """The saved state of one broker, in a store that it has for itself."""

    def __init__(self, store: Store, name: str, schema: Schema) -> None:
        self._store = store
        self._name = name
        self._schema = schema
        self._codec = StateCodec(schema)

    @property
    def reports(self) -> list[str]:
        """What could not be brought back, and why."""
        return self._store.reports

    def recover(self) -> Recovery:
        """Begin an incarnation, with what the earlier ones saved."""
        self._store.compact()
        about = self._read_about()
        incarnation = 1 if about is None else about.incarnation + 1
        saved = self._read_saved()
        begun = _About(self._name, fingerprint(self._schema), incarnation)
        self._store.put(_ABOUT, msgspec.json.encode(begun))
        self._store.flush()  # no incarnation may begin twice, not even after a power failure
        return Recovery(incarnation, saved)

    def save(self, saves: Iterable[Save]) -> None:
        """Make what a broker saves durable, all or nothing of it; the last value of each key."""
        encode, encode_key = self._codec.encode, self._codec.encode_key
        latest = {each.key: each.value for each in saves}
        self._store.change(
            {
                encode_key(key): None if value is None else encode(value)
                for key, value in latest.items()
            }
        )

    def _read_about(self) -> _About | None:
        data = self._store.get(_ABOUT)
        if data is None:
            return None
        try:
            about = msgspec.json.decode(data, type=_About)
        except msgspec.MsgspecError as error:
            raise self._unreadable(_ABOUT, error) from None
        path = str(self._store.path)
        if about.name != self._name:
            raise StateError(
                path,
                f"is the state of the broker {about.name!r}, not of {self._name!r}",
                "give the broker that name, or choose another folder",
            )
        if about.schema != fingerprint(self._schema):
            raise StateError(
                path,
                "was written under another schema",
                "use the schema of that time, or start with an empty folder",
            )
        return about

    def _read_saved(self) -> dict[Hashable, object]:
        codec = StateCodec(self._schema)  # it ends with what it holds of the tests
        saved: dict[Hashable, object] = {}
        for key, data in self._store.rows(expendable=_EXPENDABLE):
            if key == _ABOUT:
                continue
            try:
                saved[codec.decode_key(key)] = codec.decode(data)
            except ValueError as error:
                raise self._unreadable(key, error) from None
        return saved

    def _unreadable(self, key: str, error: Exception) -> StateError:
        return StateError(
            str(self._store.path),
            f"has a row {key!r} that this version of distributary cannot read ({error})",
            "use the version that wrote it, or start with an empty folder",
        )
