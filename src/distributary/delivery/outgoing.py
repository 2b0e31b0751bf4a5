"""The sender's state of each stream."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.delivery.packing import Packer
from distributary.delivery.window import RepairWindow
from distributary.delivery.wire import StreamPosition

__all__ = ["OutgoingStream"]


@dataclass(slots=True, eq=False)
class OutgoingStream:
    """A session as this publisher sends it, the unicast stream of one receiver, or the journal."""

    number: int
    to: str  # a group's name, or a receiver's
    unicast: bool
    packer: Packer
    window: RepairWindow
    last_packed: int = 0  # number of the last packet closed
    last_sent: int = 0
    ended: bool = False  # no packet follows `last_packed`
    expires_at: float = float("inf")  # when an ended stream is no longer repaired
    heartbeat_at: float = 0.0
    heartbeat_wait: float = 0.0
    check_at: float = float("inf")  # when the sender checks whether a heartbeat is due
    heartbeat_sent_at: float = float("-inf")

    @property
    def finished(self) -> bool:
        """Whether the stream has ended and its last packet was sent."""
        return self.ended and self.last_sent == self.last_packed

    @property
    def position(self) -> StreamPosition:
        """What heartbeats say of the stream."""
        return StreamPosition(self.number, self.finished, self.window.first, self.last_sent)
