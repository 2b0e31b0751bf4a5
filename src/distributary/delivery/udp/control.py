"""What publishers and receivers ask of a control plane, whoever it is.

`distributary.Control` is one; tests have others. A member that loses its control plane goes on by
the plan that it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.statistics import (
    PublisherStatistics,
    ReceiverStatistics,
    SeatStatistics,
)
from distributary.errors import DistributaryError
from distributary.model import Plan

__all__ = ["InterestLog", "MemberControl", "PlanVersion", "PublisherSeat", "ReceiverSeat"]

OnFault = Callable[[DistributaryError], None]


class PlanVersion(NamedTuple):
    """A version of a control plane's plan."""

    version: int
    plan: Plan


class InterestLog(Protocol):
    """Hears what a receiver wants, and wants no more."""

    def subscribe(self, flows: Iterable[str]) -> None:
        """Note flows that the receiver wants from now on too."""
        ...

    def unsubscribe(self, flows: Iterable[str]) -> None:
        """Note flows that the receiver does not want any more."""
        ...

    def want(self, flows: Iterable[str]) -> None:
        """Note all flows that the receiver wants from now on."""
        ...


class PublisherSeat(Protocol):
    """A publisher's place in a control plane."""

    @property
    def network(self) -> NetworkOptions:
        """Where the groups are, and how far packets go."""
        ...

    @property
    def first(self) -> PlanVersion | None:
        """The version in force when the publisher joined, if there was one."""
        ...

    def versions(self) -> AsyncIterator[PlanVersion]:
        """The versions that come into force after the first; the last one where several do."""
        ...

    def count(self, flow: str) -> None:
        """Note that a message of a flow was published, whether a plan carries it or not."""
        ...

    def report(self, version: int, statistics: PublisherStatistics) -> None:
        """End a second: report its counts, and the statistics. Never waits."""
        ...

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how reporting goes."""
        ...


class ReceiverSeat(InterestLog, Protocol):
    """A receiver's place in a control plane, where what it wants is written down until it ends."""

    @property
    def network(self) -> NetworkOptions:
        """Where the groups are."""
        ...

    def report(self, statistics: ReceiverStatistics, unserved: tuple[str, ...]) -> None:
        """Report the statistics. Never waits."""
        ...

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how reporting goes."""
        ...


class MemberControl(Protocol):
    """Gives members their seats. A name that another member holds is refused."""

    def seat_publisher(
        self, name: str, flows: tuple[str, ...] | None, on_fault: OnFault
    ) -> AbstractAsyncContextManager[PublisherSeat]:
        """Join as a publisher until the block ends. `on_fault` hears what goes wrong meanwhile."""
        ...

    def seat_receiver(
        self, name: str, flows: tuple[str, ...], on_fault: OnFault
    ) -> AbstractAsyncContextManager[ReceiverSeat]:
        """Join as a receiver that wants these flows; its interest ends with the block."""
        ...
