"""The outcomes of one setting with several seeds; what the figures show is the mean over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.mobile import MobileOutcome
from distributary.papers.chen.network import CORE, CongestionOutcome

__all__ = ["Repeated", "RepeatedMoves"]


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """Runs of the network of workflows under one policy."""

    runs: tuple[CongestionOutcome, ...]

    def mean(self, of: Callable[[CongestionOutcome], float]) -> float:
        """The mean of a number over the runs."""
        return float(np.mean([of(each) for each in self.runs]))

    @property
    def delay(self) -> float:
        """The mean delay of the probes."""
        return self.mean(lambda each: float(each.delays.mean()))

    @property
    def spread(self) -> tuple[float, float]:
        """The delays that 10 % and 90 % of the probes stay below."""
        low, high = np.mean([np.percentile(each.delays, [10, 90]) for each in self.runs], axis=0)
        return float(low), float(high)

    @property
    def settled(self) -> float:
        """The mean delay of the last tenth of the publications."""
        return self.mean(lambda each: each.settled)

    @property
    def core_queue(self) -> int:
        """The longest queue of a core broker."""
        return round(self.mean(lambda each: each.core_queue))

    @property
    def core_table(self) -> float:
        """The mean size of the core brokers' tables at the end."""
        return self.mean(lambda each: each.core_table)

    def table_before(self, broker: str) -> float:
        """The size of a broker's table at the first unsubscription."""
        return self.mean(lambda each: each.before[broker])

    def longest_queue(self, broker: str) -> float:
        """The longest queue of a core broker."""
        return self.mean(lambda each: each.queues[broker].longest)

    def table(self, broker: str) -> float:
        """The size of a broker's table at the end."""
        return self.mean(lambda each: each.tables[broker])

    def queue(self, times: FloatArray) -> FloatArray:
        """The messages that wait at the core broker where most do, at each time."""
        found = [
            np.max([queue.at(times) for queue in each.queues.values()], axis=0)
            for each in self.runs
        ]
        return np.asarray(np.mean(found, axis=0), np.float64)

    def peak(self, times: FloatArray) -> float:
        """The first of these times at which most messages wait, at the core broker of `queue`."""
        return float(times[np.argmax(self.queue(times))])

    def triggered(self, brokers: Sequence[str] = CORE) -> list[float]:
        """The triggered subscriptions that each broker got."""
        return self._count(lambda each: each.triggered, brokers)

    def triggered_messages(self, brokers: Sequence[str] = CORE) -> list[float]:
        """The messages with triggered subscriptions that each broker got."""
        return self._count(lambda each: each.triggered_messages, brokers)

    def publications(self, brokers: Sequence[str]) -> float:
        """The publications per broker."""
        return float(np.mean(self._count(lambda each: each.publications, brokers)))

    def false_positives(self, brokers: Sequence[str] = ()) -> float:
        """The share of publications that no client at the receiving broker or behind wanted."""
        return self.mean(lambda each: each.share_of(each.unneeded, brokers))

    def dead_ends(self, brokers: Sequence[str] = ()) -> float:
        """The share of publications that nothing in the receiving broker's table matched."""
        return self.mean(lambda each: each.share_of(each.dead_ends, brokers))

    def _count(
        self, of: Callable[[CongestionOutcome], Mapping[str, int]], brokers: Sequence[str]
    ) -> list[float]:
        counts = [[of(each).get(broker, 0) for broker in brokers] for each in self.runs]
        return [float(n) for n in np.mean(counts, axis=0)]


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedMoves:
    """Runs of the network of moving subscribers under one policy.

    Tables are judged after `few_moves` seconds, or after half the time if that is shorter.
    """

    runs: tuple[MobileOutcome, ...]
    few_moves: float

    @property
    def warm(self) -> float:
        """The time from which on tables are judged."""
        return min(self.few_moves, float(self.times[-1]) / 2)

    def mean(self, of: Callable[[MobileOutcome], float]) -> float:
        """The mean of a number over the runs."""
        return float(np.mean([of(each) for each in self.runs]))

    @property
    def times(self) -> FloatArray:
        """The times at which tables were sampled."""
        return self.runs[0].times

    @property
    def longest(self) -> int:
        """The core's longest queue."""
        return round(self.mean(lambda each: each.queue.longest))

    @property
    def waiting(self) -> int:
        """The core's queue at the end."""
        return round(self.mean(lambda each: each.waiting))

    @property
    def triggered(self) -> int:
        """The triggered subscriptions that the core got."""
        return round(self.mean(lambda each: each.triggered))

    def queue(self, times: FloatArray) -> FloatArray:
        """The core's queue at these times."""
        return np.asarray(np.mean([each.queue.at(times) for each in self.runs], axis=0))

    @property
    def tables(self) -> FloatArray:
        """The mean size of a table at each time."""
        return np.asarray(np.mean([each.tables for each in self.runs], axis=0))

    @property
    def transit(self) -> FloatArray:
        """The same without the entries of the brokers' own clients."""
        return np.asarray(np.mean([each.transit for each in self.runs], axis=0))

    def level(self, of: Callable[[MobileOutcome], FloatArray], since: float) -> tuple[float, float]:
        """The mean of a table's size from a time on, and its standard deviation over time."""
        late = [of(each)[self.times >= since] for each in self.runs]
        return float(np.mean([np.mean(each) for each in late])), float(
            np.mean([np.std(each) for each in late])
        )

    def by_tier(self, of: Callable[[MobileOutcome], tuple[float, ...]]) -> list[float]:
        """Publications per broker of each tier, the core first."""
        means = np.mean([of(each) for each in self.runs], axis=0)
        return [float(n) for n in means]

    def false_positives(self) -> float:
        """The share of publications that no client at the receiving broker or behind wanted."""
        return self.mean(lambda each: each.share_of(each.unneeded))

    def dead_ends(self) -> float:
        """The share of publications that nothing in the receiving broker's table matched."""
        return self.mean(lambda each: each.share_of(each.dead_ends))
