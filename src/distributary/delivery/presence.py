"""Whether a publisher that a receiver follows is there: heard, doubtful, gone, or left."""

from __future__ import annotations

from enum import Enum

from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.senders import Senders
from distributary.machines.actions import Send

__all__ = ["Presence", "PresenceState"]

_NEVER = float("inf")


class PresenceState(Enum):
    """What is known of a publisher."""

    THERE = 1
    DOUBTFUL = 2  # it has not shown that it is alive in its first second
    GONE = 3  # it is silent, and does not reply
    LEFT = 4  # it said that it leaves


class Presence:
    """Probes a publisher that is silent, or that has not shown yet that it is alive."""

    def __init__(self, senders: Senders, params: ReceiverParams) -> None:
        self._senders = senders
        self._params = params
        self.state = PresenceState.THERE
        self._began = 0.0  # when the publisher was first heard

    def begin(self, now: float) -> None:
        """Note that an incarnation is heard for the first time."""
        self.state, self._began = PresenceState.THERE, now

    @property
    def is_proven(self) -> bool:
        """Whether the publisher has shown that it is alive, as far as it can be asked."""
        followed = self._senders.followed
        return followed is not None and (followed.proven or followed.address is None)

    def next_at(self, *, alone: bool) -> float:
        """When to probe the publisher; doubt matters only if it is not alone."""
        followed = self._senders.followed
        over = self.state in (PresenceState.GONE, PresenceState.LEFT)
        if followed is None or followed.address is None or over:
            return _NEVER
        at = followed.heard_at + self._params.silent_after
        if not alone and self._is_unproven:
            at = followed.asked_at
        return max(at, followed.asked_at + self._params.prove_every)

    def check(self, now: float, *, alone: bool) -> list[Send]:
        """Probe the publisher if that is due; without a reply for long enough its state changes."""
        followed = self._senders.followed
        if followed is None or now < self.next_at(alone=alone):
            return []
        if not alone and self._is_unproven:
            if self._began <= now - 2 * self._params.gone_after:
                self.state = PresenceState.DOUBTFUL
        elif followed.heard_at < followed.asked_since <= now - self._params.gone_after:
            self.state = PresenceState.GONE
            return []
        return self._senders.probe(followed, now)

    @property
    def _is_unproven(self) -> bool:
        return self.state is PresenceState.THERE and not self.is_proven
