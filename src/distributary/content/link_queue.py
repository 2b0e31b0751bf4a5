"""What waits to be sent to one neighbour, in order: publications and barriers.

Statements do not wait. Publications do while the neighbour's state is not known completely, and
while the neighbour has not finished enough of those that it was sent: so they wait at the broker
that is nearest to their publisher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from distributary.content.messages import Barrier, BarrierPassed, Publication

__all__ = ["LinkLimits", "LinkQueue"]

QueuedMessage = Publication | Barrier | BarrierPassed


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """How many publications a neighbour may have without having finished them, and their bytes.

    Of statements at most `statements` wait for a neighbour. Beyond that they are dropped, and both
    compare their states, once the neighbour is back.
    """

    publications: int = 1024
    bytes: int = 64 << 20
    statements: int = 10_000

    def __post_init__(self) -> None:
        if min(self.publications, self.bytes, self.statements) < 1:
            raise ValueError(
                f"a link needs room for at least 1 publication, 1 byte and 1 statement, not "
                f"{self.publications}, {self.bytes} and {self.statements}"
            )


class LinkQueue:
    """The messages that wait for one neighbour.

    A message is *sure* if the neighbour must get it. Whether the neighbour wants the other ones is
    decided when its state is known.
    """

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[QueuedMessage, bool]] = deque()
        self.unfinished = 0  # publications sent and not finished
        self.unfinished_bytes = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: QueuedMessage, *, sure: bool = True) -> None:
        """Add a message at the end."""
        self._waiting.append((message, sure))
        self.waiting_bytes += _measure(message)

    def restart(self, barriers: Iterable[Barrier], kept: Iterable[Publication]) -> None:
        """Begin anew after either side has restarted.

        The barriers come first: publications under their advertisements must not pass them. These
        publications are sure, since brokers behind the neighbour may have them from before.
        """
        first = [*barriers]
        announced = {name for each in first for name in each.advertisements}
        rest = [
            (each, sure or each.advertisement in announced)
            for each, sure in self._waiting
            if isinstance(each, Publication)
        ]
        again: list[QueuedMessage] = [*first, *kept]
        self._waiting = deque([*((each, True) for each in again), *rest])
        self.waiting_bytes = sum(_measure(each) for each, _ in self._waiting)
        self.unfinished = self.unfinished_bytes = 0

    def take_back(self, messages: Iterable[QueuedMessage]) -> None:
        """Put messages that were taken, and not sent after all, in front again."""
        for message in reversed([*messages]):
            self._waiting.appendleft((message, True))
            self.waiting_bytes += _measure(message)
            if isinstance(message, Publication):
                self.note_finished(message)

    def take(self) -> Iterator[tuple[QueuedMessage, bool]]:
        """Take the messages that there is room for, each with whether it is sure.

        Call `note_sent` for each publication that is sent.
        """
        while self._waiting and self._has_room(self._waiting[0][0]):
            message, sure = self._waiting.popleft()
            self.waiting_bytes -= _measure(message)
            yield message, sure

    def note_sent(self, publication: Publication) -> None:
        """A publication was sent."""
        self.unfinished += 1
        self.unfinished_bytes += _measure(publication)

    def note_finished(self, publication: Publication) -> None:
        """The neighbour has finished a publication, or does not get it yet."""
        self.unfinished -= 1
        self.unfinished_bytes -= _measure(publication)

    def _has_room(self, message: QueuedMessage) -> bool:
        return not isinstance(message, Publication) or (
            self.unfinished < self._limits.publications
            and self.unfinished_bytes < self._limits.bytes
        )


def _measure(message: QueuedMessage) -> int:
    return message.event.size if isinstance(message, Publication) else 0
