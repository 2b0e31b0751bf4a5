"""A simulated network: delays, loss and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from distributary.model import Topology

__all__ = ["Link", "VirtualNetwork"]


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a connection; times in seconds.

    A message takes `delay` plus up to `jitter`, and is lost with the probability `loss`. Messages
    are delivered in order unless `reorders`.
    """

    delay: float
    jitter: float = 0.0
    loss: float = 0.0
    reorders: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.delay < float("inf") and 0 <= self.jitter < float("inf")):
            raise ValueError(
                f"delay and jitter must be finite and at least 0, not {self.delay}, {self.jitter}"
            )
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be a probability from 0 to 1, not {self.loss}")


class VirtualNetwork:
    """Links by (sender, receiver); other pairs of nodes use the `default` link."""

    def __init__(
        self,
        links: Mapping[tuple[str, str], Link],
        rng: np.random.Generator,
        *,
        default: Link | None = None,
    ) -> None:
        self._links = dict(links)
        self._rng = rng
        self._default = default
        self._last: dict[tuple[str, str], float] = {}
        self._islands: dict[str, frozenset[str]] = {}

    @classmethod
    def of(cls, topology: Topology, rng: np.random.Generator) -> Self:
        """Make a network of the links of a topology in both directions, reliable and ordered."""
        links = {link: Link(delay) for link, delay in topology.delays.items()}
        return cls(links | {(b, a): link for (a, b), link in links.items()}, rng)

    def cut(self, name: str, nodes: Iterable[str]) -> None:
        """Partition these nodes from all others; messages already in flight still arrive."""
        self._islands[name] = frozenset(nodes)

    def heal(self, name: str) -> None:
        """Undo the partition of that name."""
        del self._islands[name]

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        """The receivers of a message sent now, and the arrival times; None if it is lost.

        Here the only receiver is the node `to`. A network with groups would yield all members.
        """
        link = self._links.get((sender, to), self._default)
        if link is None:
            raise ValueError(f"there is no link from {sender!r} to {to!r}")
        is_cut = any((sender in nodes) != (to in nodes) for nodes in self._islands.values())
        if is_cut or (link.loss and self._rng.random() < link.loss):
            yield to, None
            return
        at = now + link.delay + (link.jitter and self._rng.uniform(0.0, link.jitter))
        if not link.reorders:
            at = self._last[sender, to] = max(at, self._last.get((sender, to), at))
        yield to, at
