"""Which sender a receiver follows, of all that claim to be one publisher.

A sender is an incarnation at an address. A receiver follows the first one that it hears; any other
is a rival. The receiver sends a rival a random nonce, and a rival that returns it is proven: it is
alive, which a forged or recorded packet cannot show. A proven rival replaces

- a sender that is not proven,
- an earlier incarnation, since the sender was restarted,
- a sender that no longer replies: the clock may have stepped back between two starts, or the
  receiver may have followed a forger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from distributary.delivery.feedback import Feedback
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.wire import Announcement, Header
from distributary.machines.actions import Send

__all__ = ["SenderClaim", "Senders"]

_NEVER = float("-inf")
_MOST_RIVALS = 16
_MOST_ADDRESSES = 4  # of one sender


@dataclass(slots=True, eq=False)
class SenderClaim:
    """An incarnation that claims to be the sender, with its last announcement."""

    publisher: int
    incarnation: int
    address: str | None  # where its announcements come from; None where that is not known
    nonce: int  # that its reply has to return
    sequence: int
    announced: Announcement
    heard_at: float
    asked_at: float = _NEVER
    asked_since: float = _NEVER  # when the first unanswered probe was sent
    proven: bool = False
    reported: bool = False
    addresses: set[str] = field(default_factory=set)  # all that it replies from


class Senders:
    """The sender that is followed, and its rivals."""

    def __init__(
        self, row: int, feedback: Feedback, params: ReceiverParams, rng: np.random.Generator
    ) -> None:
        """`row` is the publisher's in the receiver's tables."""
        self._row = row
        self._feedback = feedback
        self._params = params
        self._rng = rng.spawn(1)[0]
        self._rivals: dict[tuple[int, int, str | None], SenderClaim] = {}
        self.forgotten = 0  # rivals, since there are too many
        self.followed: SenderClaim | None = None

    def note_claim(
        self, header: Header, announced: Announcement, address: str | None, now: float
    ) -> SenderClaim:
        """Take an announcement of a sender that is not followed."""
        key = header.publisher, header.incarnation, address
        claim = self._rivals.get(key)
        if claim is None:
            claim = SenderClaim(*key, self._draw(), header.sequence, announced, now)
            if len(self._rivals) >= _MOST_RIVALS:
                self._forget_one()
            self._rivals[key] = claim
        elif header.sequence > claim.sequence:
            claim.sequence, claim.announced, claim.heard_at = header.sequence, announced, now
        return claim

    def follow(self, claim: SenderClaim) -> None:
        """Follow this sender from now on."""
        self._rivals.pop((claim.publisher, claim.incarnation, claim.address), None)
        if claim.address is not None:
            claim.addresses.add(claim.address)
            self._feedback.addresses[self._row] = claim.address
        self.followed = claim

    def is_followed(self, address: str) -> bool:
        """Whether the sender that is followed is at that address."""
        return self.followed is not None and address in self.followed.addresses

    def probe(self, claim: SenderClaim, now: float) -> list[Send]:
        """Request proof that a sender is alive, at most once in `prove_every`."""
        if claim.address is None or now < claim.asked_at + self._params.prove_every:
            return []
        if claim.asked_since <= claim.heard_at:
            claim.asked_since = now
            claim.nonce = self._draw()
        claim.asked_at = now
        incarnation = 0 if self.followed is None else self.followed.incarnation
        return [self._feedback.make_request(claim.address, claim.nonce, incarnation)]

    def take_reply(self, header: Header, address: str | None, now: float) -> SenderClaim | None:
        """The sender that this reply proves to be alive, or None if it returns no nonce of ours."""
        for claim in (self.followed, *self._rivals.values()):
            if claim is None or claim.asked_at == _NEVER:
                continue
            if (header.incarnation, header.sequence) == (claim.incarnation, claim.nonce):
                claim.proven, claim.heard_at = True, now
                if address is not None and len(claim.addresses) < _MOST_ADDRESSES:
                    claim.addresses.add(address)
                return claim
        return None

    def replaces(self, rival: SenderClaim, now: float) -> bool:
        """Whether the receiver should follow a rival instead."""
        followed = self.followed
        return rival.proven and (
            followed is None
            or not followed.proven
            or rival.incarnation > followed.incarnation
            or (
                followed.heard_at < followed.asked_since <= now - self._params.gone_after
                and rival.heard_at > now - self._params.gone_after / 2
            )
        )

    def undecided_rivals(self) -> Iterator[SenderClaim]:
        """Proven rivals, while the followed sender has not replied to a probe."""
        followed = self.followed
        if followed is not None and followed.heard_at < followed.asked_since:
            yield from [rival for rival in self._rivals.values() if rival.proven]

    def next_at(self) -> float:
        """When to decide again whether a rival replaces the sender."""
        if not self._rivals or self.followed is None:
            return float("inf")
        if next(self.undecided_rivals(), None) is None:
            return float("inf")
        return self.followed.asked_at + self._params.prove_every

    def _draw(self) -> int:
        return int(self._rng.integers(1, 1 << 63))

    def _forget_one(self) -> None:
        """Forget the oldest rival that is not proven, or else the oldest."""
        self.forgotten += 1
        doubtful = (key for key, claim in self._rivals.items() if not claim.proven)
        del self._rivals[next(doubtful, next(iter(self._rivals)))]
