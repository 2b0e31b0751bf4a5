"""Saves what neighbours have said, so that a broker that restarts need not be told all again.

A statement is saved some time after it was heard (`late_saves.py`): what is lost in a crash is
found missing by digests, and sent again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import islice

from distributary.content.broker import ContentBroker
from distributary.content.messages import Name
from distributary.content.resync import Known
from distributary.machines.actions import Save
from distributary.model import Filter

__all__ = ["HeardStatements", "read_heard"]

_Key = tuple[str, Name]  # the neighbour, and the name of its statement


class HeardStatements:
    """The statements of neighbours that have changed since they were saved."""

    def __init__(self, core: ContentBroker) -> None:
        self._core = core
        self._changed: dict[_Key, None] = {}
        core.subscriptions.on_change = core.advertisements.on_change = self._note

    def __len__(self) -> int:
        """The number of changes that are not saved."""
        return len(self._changed)

    def _note(self, name: Name, hop: str) -> None:
        if hop in self._core.links:
            self._changed[hop, name] = None

    def save(self, most: int | None = None) -> list[Save]:
        """Save changes, all of them or the oldest `most`."""
        keys = list(islice(self._changed, most))
        for key in keys:
            del self._changed[key]
        return [Save(("heard", *key), self._find(*key)) for key in keys]

    def _find(self, hop: str, name: Name) -> tuple[str, Filter] | None:
        """A statement as it is saved; None if it is not there, or from somebody else."""
        entry = self._core.subscriptions.get(name)
        if entry is not None:
            return ("subscription", entry.filter) if entry.hop == hop else None
        advertisements = self._core.advertisements
        if advertisements.hops.get(name) == hop:
            return "promise", advertisements.filter_of(name)
        return None

    def forget_saved(self, keys: Iterable[_Key]) -> None:
        """These statements are saved already; those that are not there any more are changes."""
        for key in keys:
            if self._find(*key) is None:
                self._changed[key] = None
            else:
                self._changed.pop(key, None)


def read_heard(saved: Mapping[Hashable, object]) -> dict[str, Known]:
    """What was saved of each neighbour's statements."""
    found: dict[str, tuple[dict[Name, Filter], dict[Name, Filter]]] = {}
    for key, value in saved.items():
        match key, value:
            case ("heard", str(neighbour), Name() as name), (str(kind), Filter() as filter):
                found.setdefault(neighbour, ({}, {}))[kind == "subscription"][name] = filter
    return {neighbour: Known(*parts) for neighbour, parts in found.items()}
