"""Messages of each flow in the window of rates, kept on the driver while a stream runs.

The stored slots say the same. With the counts at hand, a batch need not read them to know which
totals it changes: those of its own flows, and of flows with messages in slots that leave the
window.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distributary.errors import InputError

__all__ = ["MOST_COUNTED", "MessageCounts"]

_SPARE = 1024
MOST_COUNTED = 2**62
"""The most messages in a window: their sums must fit 64 bits."""
Longs = npt.NDArray[np.int64]


class MessageCounts:
    """The messages of each flow per slot of time, and in all slots of the window."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._codes: dict[str, int] = {}
        self._slots: dict[int, Longs] = {}
        self._totals: Longs = np.zeros(0, np.int64)
        self._all = 0

    def add(self, rows: pa.Table, horizon: int) -> pa.Table:
        """Count `flow, slot, messages`, and leave out slots that begin before the horizon.

        Returns `flow, messages`: the new total of each flow whose total changed.
        """
        slot, messages = rows["slot"].to_numpy(), rows["messages"].to_numpy()
        code = self._encode(rows["flow"])
        gone = [self._slots.pop(start) for start in list(self._slots) if start < horizon]
        counted = slot >= horizon
        self._all += sum(messages[counted].tolist()) - sum(int(counts.sum()) for counts in gone)
        if self._all > MOST_COUNTED:
            raise InputError(
                f"the counts of the messages in the window of rates add up to {self._all:,}",
                remedy="mend the column count, or do without it: --column count=",
            )
        touched = np.unique(np.concatenate([code[counted], *map(np.flatnonzero, gone)]))
        before = self._totals[touched]
        for counts in gone:
            length = min(len(counts), len(self._totals))  # beyond are no flows
            self._totals[:length] -= counts[:length]
        np.add.at(self._totals, code[counted], messages[counted])
        for start in np.unique(slot[counted]).tolist():
            own = slot == start
            np.add.at(self._slot(start), code[own], messages[own])
        changed = touched[self._totals[touched] != before]
        names = pa.array([self._names[one] for one in changed.tolist()], pa.string())
        totals = self._totals[changed]
        if gone:
            self._forget_silent()
        return pa.table({"flow": names, "messages": totals})

    def _encode(self, flows: pa.ChunkedArray) -> Longs:
        """The number of each flow; new flows get one."""
        encoded = flows.combine_chunks().dictionary_encode()
        numbers = np.zeros(len(encoded.dictionary), np.int64)
        for at, name in enumerate(encoded.dictionary.to_pylist()):
            numbers[at] = self._codes.setdefault(name, len(self._names))
            if numbers[at] == len(self._names):
                self._names.append(name)
        self._totals = _lengthen(self._totals, len(self._names))
        indices: Longs = encoded.indices.to_numpy()
        return numbers[indices]

    def _slot(self, start: int) -> Longs:
        counts = self._slots.get(start, np.zeros(0, np.int64))
        self._slots[start] = _lengthen(counts, len(self._names))
        return self._slots[start]

    def _forget_silent(self) -> None:
        """Number the flows anew when most of them have no message in the window any more."""
        live = np.flatnonzero(self._totals)
        if len(self._names) <= 2 * len(live) + _SPARE:
            return
        size = len(self._totals)
        self._slots = {start: _lengthen(own, size)[live] for start, own in self._slots.items()}
        self._totals = self._totals[live]
        self._names = [self._names[one] for one in live.tolist()]
        self._codes = {name: code for code, name in enumerate(self._names)}


def _lengthen(counts: Longs, length: int) -> Longs:
    """The counts with room for so many flows, and some more."""
    if len(counts) >= length:
        return counts
    longer = np.zeros(max(length, len(counts) * 3 // 2), np.int64)
    longer[: len(counts)] = counts
    return longer
