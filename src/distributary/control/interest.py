"""Who wants what now, by name, and what has changed since somebody was last told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from distributary.model import Demand, FloatArray, IndexArray, Interest

__all__ = ["InterestCopy", "LiveInterest", "PairChanges"]

NamedPair = tuple[str, str]  # a receiver and a flow

_NONE: frozenset[str] = frozenset()


class LiveInterest:
    """What each receiver wants, as it last wrote it down, also seen from the flows."""

    def __init__(self) -> None:
        self._wanted: dict[str, frozenset[str]] = {}
        self._wanting: dict[str, set[str]] = {}

    @property
    def receivers(self) -> Collection[str]:
        """Those that want something."""
        return self._wanted.keys()

    @property
    def flows(self) -> Collection[str]:
        """Those that somebody wants."""
        return self._wanting.keys()

    def flows_of(self, receiver: str) -> frozenset[str]:
        """What a receiver wants."""
        return self._wanted.get(receiver, _NONE)

    def receivers_of(self, flow: str) -> Collection[str]:
        """Who wants a flow."""
        return self._wanting.get(flow, _NONE)

    def write(self, receiver: str, flows: Iterable[str]) -> frozenset[str]:
        """Take what a receiver wants from now on; returns what it did not want before."""
        before, after = self.flows_of(receiver), frozenset(flows)
        for flow in after - before:
            self._wanting.setdefault(flow, set()).add(receiver)
        for flow in before - after:
            wanting = self._wanting[flow]
            wanting.remove(receiver)
            if not wanting:
                del self._wanting[flow]
        if after:
            self._wanted[receiver] = after
        else:
            self._wanted.pop(receiver, None)
        return after - before

    def make_demand(
        self, weights: Mapping[str, int], seconds: float, without: Collection[str] = ()
    ) -> Demand | None:
        """The demand as planners take it, without some flows; None if nobody wants anything.

        A flow's weight is its messages in so many seconds, at least 1.
        """
        flows = sorted(self._wanting.keys() - set(without))
        if not flows:
            return None
        receivers = sorted({name for flow in flows for name in self._wanting[flow]})
        number = {name: at for at, name in enumerate(receivers)}
        codes = [number[name] for flow in flows for name in self._wanting[flow]]
        sizes = [len(self._wanting[flow]) for flow in flows]
        flow_codes: IndexArray = np.repeat(np.arange(len(flows), dtype=np.int32), sizes)
        interest = Interest.from_codes(receivers, flows, np.array(codes, np.int32), flow_codes)
        rate: FloatArray = np.array([max(1, weights.get(flow, 0)) for flow in flows]) / seconds
        return Demand(interest, rate)


@dataclass(frozen=True, slots=True)
class PairChanges:
    """Pairs of a receiver and a flow that became wanted, and that no longer are; sorted."""

    gained: tuple[NamedPair, ...]
    lost: tuple[NamedPair, ...]

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost)


class InterestCopy:
    """What somebody was last told of an interest, and whose part of it is out of date."""

    def __init__(self, interest: LiveInterest) -> None:
        self._interest = interest
        self._told: dict[str, frozenset[str]] = {}
        self._changed: set[str] = set()

    @property
    def is_behind(self) -> bool:
        """Whether there may be something to tell."""
        return bool(self._changed)

    def note(self, receiver: str) -> None:
        """Note that what a receiver wants may have changed."""
        self._changed.add(receiver)

    def restart(self) -> None:
        """Forget what was told: everything is to be told anew."""
        self._told = {}
        self._changed = set(self._interest.receivers)

    def catch_up(self) -> PairChanges:
        """All that has changed since; it counts as told."""
        gained: list[NamedPair] = []
        lost: list[NamedPair] = []
        for receiver in sorted(self._changed):
            before, after = self._told.get(receiver, _NONE), self._interest.flows_of(receiver)
            gained.extend((receiver, flow) for flow in sorted(after - before))
            lost.extend((receiver, flow) for flow in sorted(before - after))
            if after:
                self._told[receiver] = after
            else:
                self._told.pop(receiver, None)
        self._changed.clear()
        return PairChanges(tuple(gained), tuple(lost))
