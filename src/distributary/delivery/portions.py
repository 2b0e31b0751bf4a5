"""How a receiver without a plan learns what the sender's plan means for it, at both ends.

The receiver asks for its *portion* of a plan that was announced: the flows that the plan brings to
it, and the groups. The sender answers by unicast, in numbered parts, a few for each inquiry; the
receiver asks again for the first part that it lacks. A digest shows that all parts are of one
portion.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from distributary.delivery.gaps import draw_back_off
from distributary.delivery.portion_wire import (
    MOST_PORTION_BYTES,
    Inquiry,
    Portion,
    PortionPart,
    decode_portion,
    encode_portion,
    encode_portion_part,
    portion_digest,
    split_portion,
)
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.wire import WireError
from distributary.model import Plan

__all__ = ["PARTS_AT_ONCE", "PortionAnswers", "PortionView"]

PARTS_AT_ONCE = 8  # that answer one inquiry
_MOST_ASKERS = 16_384  # that may wait for an answer; others ask again
_MOST_KEPT = 16 << 20  # bytes of encoded portions that are kept for the next inquiry
_BESIDE = 512  # bytes beside each
_NEVER = float("inf")


class _PlanIndex:
    """A plan, arranged so that a receiver's portion is found without a look at all others."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._number_of = {name: at for at, name in enumerate(plan.receivers)}
        self._subscriptions = _Rows.sort(plan.subscription_receiver, plan.subscription_session)
        self._placements = _Rows.sort(plan.placement_session, plan.placement_flow)
        self._alone = _Rows.sort(plan.unicast_receiver, plan.unicast_flow)

    def find(self, name: str) -> Portion:
        receiver = self._number_of.get(name)
        if receiver is None:
            return Portion((), frozenset())
        sessions = self._subscriptions.of(receiver)
        flows = set(self._alone.of(receiver))
        for session in sessions:
            flows.update(self._placements.of(session))
        groups = frozenset(int(self._plan.session_group[session]) for session in sessions)
        return Portion(tuple(self._plan.flows[flow] for flow in sorted(flows)), groups)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Values by key, both whole numbers."""

    keys: np.ndarray
    values: np.ndarray

    @classmethod
    def sort(cls, keys: np.ndarray, values: np.ndarray) -> _Rows:
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], values[order])

    def of(self, key: int) -> list[int]:
        begin, end = np.searchsorted(self.keys, [key, key + 1])
        found: list[int] = self.values[begin:end].tolist()
        return found


# --- the sender's end ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Asker:
    inquiry: Inquiry
    next_part: int


class PortionAnswers:
    """The inquiries that wait for their answer, one for each address, in turns."""

    def __init__(self, room: int) -> None:
        """Bodies of packets have at most `room` bytes."""
        self._room = room
        self._plans: dict[int, Plan] = {}  # the one in effect, and the upcoming one
        self._indices: dict[int, _PlanIndex] = {}  # of those that somebody asked for
        self._askers: dict[str, _Asker] = {}
        self._encoded: OrderedDict[tuple[int, str], tuple[int, bytes]] = OrderedDict()
        self._kept = 0  # bytes in there

    def __bool__(self) -> bool:
        return bool(self._askers)

    def add_plan(self, fingerprint: int, plan: Plan, *, beside: int) -> None:
        """Answer for a plan, and for the one beside which it is upcoming, and for no others."""
        plans = {found: each for found, each in self._plans.items() if found == beside}
        self._plans = plans = {**plans, fingerprint: plan}
        self._indices = {found: index for found, index in self._indices.items() if found in plans}
        for key in [key for key in self._encoded if key[0] not in plans]:
            self._kept -= _measure(key[1], self._encoded.pop(key)[1])

    def queue(self, address: str, inquiry: Inquiry) -> None:
        """Queue the answer to an inquiry, instead of what the same address asked before."""
        if inquiry.fingerprint not in self._plans:
            return
        if address in self._askers or len(self._askers) < _MOST_ASKERS:
            self._askers[address] = _Asker(inquiry, inquiry.first)

    def take(self) -> tuple[str, bytes] | None:
        """The next part to send: its address and its body; None if there is no such part."""
        address, asker = next(iter(self._askers.items()))
        del self._askers[address]
        fingerprint, first, name = asker.inquiry
        if fingerprint not in self._plans:  # another plan replaced it meanwhile
            return None
        digest, encoded = self._find_encoded(fingerprint, name)
        part, parts = asker.next_part, split_portion(encoded, self._room)
        if part >= parts or len(encoded) > MOST_PORTION_BYTES:
            return None
        asker.next_part += 1
        if asker.next_part < min(parts, first + PARTS_AT_ONCE):
            self._askers[address] = asker
        return address, encode_portion_part(fingerprint, digest, part, encoded, self._room)

    def _find_encoded(self, fingerprint: int, name: str) -> tuple[int, bytes]:
        """A portion's digest and bytes."""
        found = self._encoded.get((fingerprint, name))
        if found is None:
            if fingerprint not in self._indices:
                self._indices[fingerprint] = _PlanIndex(self._plans[fingerprint])
            encoded = encode_portion(self._indices[fingerprint].find(name))
            found = self._encoded[fingerprint, name] = portion_digest(encoded), encoded
            self._kept += _measure(name, encoded)
        self._encoded.move_to_end((fingerprint, name))
        while self._kept > _MOST_KEPT and len(self._encoded) > 1:
            (_, oldest), (_, encoded) = self._encoded.popitem(last=False)
            self._kept -= _measure(oldest, encoded)
        return found


def _measure(name: str, encoded: bytes) -> int:
    """About how many bytes it takes to keep a portion; anybody may ask for one of any name."""
    return len(name) + len(encoded) + _BESIDE


# --- the receiver's end --------------------------------------------------------------------------


@dataclass(slots=True)
class _Awaited:
    """A portion that is asked for, next at the time `at`; `until` is behind the parts asked for."""

    at: float
    asked: int = 0
    until: int = 0
    digest: int = 0
    parts: int = 0
    pieces: dict[int, bytes] = field(default_factory=dict)
    first: int = 0  # the first part that has not come
    size: int = 0


class PortionView:
    """The portions that a receiver asks one publisher for, and those that have come."""

    def __init__(self, params: ReceiverParams, rng: np.random.Generator) -> None:
        self._params = params
        self._rng = rng
        self._awaited: dict[int, _Awaited] = {}
        self._found: list[tuple[int, Portion]] = []

    def need(self, fingerprints: Iterable[int], now: float) -> None:
        """Ask for the portions of these plans, and of no others."""
        self._awaited = {
            fingerprint: self._awaited.get(fingerprint) or _Awaited(now + self._draw())
            for fingerprint in fingerprints
        }

    def take_found(self) -> list[tuple[int, Portion]]:
        """The portions that have come since the last call, with their plans' fingerprints."""
        found, self._found = self._found, []
        return found

    def due(self, now: float) -> list[tuple[int, int]]:
        """The inquiries to send now, as fingerprint and first part; notes that they were sent."""
        found = []
        for fingerprint, awaited in self._awaited.items():
            if awaited.at <= now:
                found.append((fingerprint, awaited.first))
                wait = self._params.repair_wait * 2 ** min(awaited.asked, 30)
                awaited.asked += 1
                awaited.until = awaited.first + PARTS_AT_ONCE
                awaited.at = now + min(wait, self._params.longest_wait) + self._draw()
        return found

    def next_at(self) -> float:
        """When the next inquiry is due."""
        return min((awaited.at for awaited in self._awaited.values()), default=_NEVER)

    def take(self, part: PortionPart, now: float) -> None:
        """Take a part of a portion."""
        awaited = self._awaited.get(part.fingerprint)
        if awaited is None:
            return
        if (part.digest, part.parts) != (awaited.digest, awaited.parts):
            # Of two portions that claim to be the same, the one that came last is collected.
            awaited.digest, awaited.parts = part.digest, part.parts
            self._forget_pieces(awaited)
        if part.part in awaited.pieces:
            return
        awaited.pieces[part.part] = part.piece
        awaited.size += len(part.piece)
        if awaited.size > MOST_PORTION_BYTES:
            self._forget_pieces(awaited)
            raise WireError("a portion that is longer than any can be")
        while awaited.first in awaited.pieces:
            awaited.first += 1
        if awaited.first == awaited.parts:
            self._finish(part.fingerprint, awaited)
        else:  # the sender is there: ask for the rest soon, or at once if all asked for has come
            wait = self._params.repair_wait + self._draw()
            awaited.asked = 0
            awaited.at = now if awaited.first >= awaited.until else min(awaited.at, now + wait)

    def _finish(self, fingerprint: int, awaited: _Awaited) -> None:
        """Take a portion whose parts have all come, or ask for all of them again."""
        encoded = b"".join(awaited.pieces[at] for at in range(awaited.parts))
        self._forget_pieces(awaited)
        if portion_digest(encoded) != awaited.digest:
            raise WireError("a portion whose digest is wrong")
        self._found.append((fingerprint, decode_portion(encoded)))
        del self._awaited[fingerprint]

    def _forget_pieces(self, awaited: _Awaited) -> None:
        awaited.pieces = {}
        awaited.first = awaited.size = 0

    def _draw(self) -> float:
        return draw_back_off(self._params.back_off, self._params.receivers, self._rng)
