"""The flows that a publisher has, beside other publishers of the same plan.

Publishers hear each other's announcements on the control group. A publisher looks its flows up in
the directories of the others. Of two claims on a flow the earlier one holds (then the lesser name):
both ends compute that alike, so that the later one lets the flow go. A publisher that starts sends
nothing before every other one that it hears has answered. Others count only if they return a random
nonce, as forged and recorded packets cannot.

A flow that is claimed later goes on with the numbers of the publisher that released it, as that
one's directory says. If no publisher that is heard has released it, its numbers begin anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from distributary.delivery._wire_kernels import COUNTS
from distributary.delivery.directory_wire import (
    FlowClaim,
    FlowEntry,
    block_number,
    decode_block,
)
from distributary.delivery.lookup import DirectoryView
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import publisher_number
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.wire import (
    MOST_LOOKUPS,
    Announcement,
    Header,
    PacketKind,
    WireError,
    decode_announcement,
    encode_lookup,
    encode_request,
)
from distributary.model import Plan

__all__ = ["Claims", "Peer"]

_MOST_PEERS = 64
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Peer:
    """An incarnation of another publisher at an address, and what it has of this one's flows."""

    key: tuple[int, int, str]  # its number, incarnation and address
    name: str
    view: DirectoryView
    nonce: int  # that its reply has to return
    met_at: float
    heard_at: float
    probed_until: float
    asked_at: float = float("-inf")
    proven: bool = False  # whether it has shown that it is alive

    @property
    def number(self) -> int:
        """Its number."""
        return self.key[0]

    @property
    def incarnation(self) -> int:
        """Its incarnation."""
        return self.key[1]

    @property
    def address(self) -> str:
        """Where its announcements come from."""
        return self.key[2]

    def find(self, flow: str) -> FlowEntry | None:
        """What its directory says of a flow."""
        return self.view.routes.get(flow)

    def since(self, flow: str) -> int:
        """Since when it has a flow."""
        entry = self.find(flow)
        return self.incarnation if entry is None or entry.claim is None else entry.claim.since


def _is_carried(entry: FlowEntry | None) -> bool:
    return entry is not None and bool(entry.places or entry.upcoming)


class Claims:
    """Decides which flows a publisher has; `held` and `lost` change with `decide` alone."""

    def __init__(
        self,
        number: int,
        name: str,
        incarnation: int,
        flows: Iterable[str] | None,
        params: SenderParams,
    ) -> None:
        self._number = number
        self._name = name
        self._incarnation = incarnation
        self._params = params
        self._all = flows is None  # has all flows of plans but those that it lost or released
        self._held = set(() if flows is None else flows)
        self._plan_flows: tuple[str, ...] = ()
        self.lost: dict[str, str] = {}  # flows that others have, and who
        self.released: dict[str, FlowClaim | None] = {}  # None: not before the next switch
        self.claims: dict[str, FlowClaim] = {}  # of flows that were claimed after the start
        self._pending: dict[str, float] = {}  # flows that are being claimed, until when
        self.peers: dict[tuple[int, int, str], Peer] = {}
        self._awaits_release = False  # whether another one is about to let a flow of ours go
        self._opened = False  # whether the publisher may send
        self._changed = False  # whether anything was heard since the last decision
        self._known_ever = False  # whether any other publisher was there since the start
        self._began = 0.0
        self._deadline = _NEVER  # when the start waits no longer for answers
        self._view_params = ReceiverParams()
        self._rng = np.random.default_rng([number, incarnation])
        self._view_counts = np.zeros(COUNTS, np.int64)

    def start(self, now: float) -> None:
        """Begin to ask others."""
        self._began = now
        self._deadline = now + self._params.grace + self._params.claim_wait

    # --- what the caller wants --------------------------------------------------------------------

    def take_plan(self, plan: Plan, now: float) -> Collection[str] | None:
        """The flows that are carried of a plan; None: all of them."""
        if plan.flows != self._plan_flows:
            self._plan_flows = plan.flows
            for peer in self.peers.values():
                peer.view.want(self._interesting(), now)
        if self._all:
            without = self.lost.keys() | self.released.keys() | self._pending.keys()
            return None if not without else [flow for flow in plan.flows if flow not in without]
        return self._held

    def has(self, flow: str) -> bool:
        """Whether a flow is this publisher's, if the plan has it."""
        if flow in self.lost or flow in self.released or flow in self._pending:
            return False
        return self._all or flow in self._held

    def holder_of(self, flow: str) -> str | None:
        """The publisher that has a flow which this one lost."""
        return self.lost.get(flow) or None

    def claim(self, flows: Iterable[str], now: float) -> list[str]:
        """Ask for flows; `decide` says what becomes of it.

        Returns those that were about to be let go, and now are not.
        """
        wanted = [flow for flow in dict.fromkeys(flows) if not self.has(flow)]
        kept = [flow for flow in wanted if flow in self.released and self.released[flow] is None]
        for flow in kept:
            del self.released[flow]
            if not self._all:
                self._held.add(flow)
        wanted = [flow for flow in wanted if not self.has(flow)]
        for flow in wanted:
            self.lost.pop(flow, None)
            self._held.discard(flow)
            self._pending[flow] = now + self._params.claim_wait
        self._changed = True
        for peer in self.peers.values():
            peer.view.want(wanted, now)
            peer.view.look_up_again(wanted, now)
            peer.view.hasten(wanted, now)
        return kept

    def release(self, flows: Iterable[str]) -> list[str]:
        """Let flows go with the next switch; returns those that this publisher had."""
        flows = set(flows)
        for flow in flows & self._pending.keys():
            del self._pending[flow]
            if self._all and flow not in self.released:
                self.lost[flow] = ""  # nobody has it, as far as is known
        found = sorted(flow for flow in flows if self.has(flow))
        for flow in found:
            self._held.discard(flow)
            self.released[flow] = None
        return found

    def end(self, flow: str, following: int) -> FlowClaim:
        """Note that a flow went, and the number behind its last."""
        claim = self.find_claim(flow)._replace(next=following)
        self.claims.pop(flow, None)
        self.released[flow] = claim
        return claim

    def find_claim(self, flow: str) -> FlowClaim:
        """Since when this publisher has a flow, and with which number it began to."""
        own = FlowClaim(self._incarnation, self._number, self._incarnation, 1)
        return self.claims.get(flow, own)

    # --- other publishers -------------------------------------------------------------------------

    def take_packet(self, header: Header, body: bytes, address: str, now: float) -> bool:
        """Take a packet of another publisher; returns whether it starts, and has to hear of us."""
        if header.kind == PacketKind.ANNOUNCEMENT:
            announced = decode_announcement(body)
            if publisher_number(announced.publisher) != header.publisher:
                raise WireError("a publisher's number that is not of its name")
            self._hear(header, announced, address, now)
            return not announced.current
        if header.kind == PacketKind.REPLY:
            self._take_reply(header, now)
        elif header.kind == PacketKind.BLOCK:
            self._take_block(header, body)
        return False

    def _hear(self, header: Header, announced: Announcement, address: str, now: float) -> None:
        """Take an announcement of another publisher."""
        key = header.publisher, header.incarnation, address
        peer = self.peers.get(key)
        if peer is None:
            self._meet(key, announced, now)
            return
        self._changed |= not self._counts(peer, now)
        peer.heard_at = now
        peer.probed_until = now + self._params.proof_wait
        peer.view.resize(announced.blocks, now)
        if announced.record > peer.view.latest:
            peer.view.start_over(announced.record, now)

    def _meet(self, key: tuple[int, int, str], announced: Announcement, now: float) -> None:
        if len(self.peers) >= _MOST_PEERS:
            doubtful = (each for each in self.peers.values() if not self._counts(each, now))
            oldest = next(doubtful, None)
            if oldest is None:
                return
            del self.peers[oldest.key]
        view = DirectoryView(None, self._view_params, self._rng, self._view_counts)
        view.want(self._interesting(), now)
        view.begin(announced.blocks, announced.record, now)
        nonce = int(self._rng.integers(1, 1 << 63))
        until = now + self._params.proof_wait
        self.peers[key] = Peer(key, announced.publisher, view, nonce, now, now, until)

    def _take_reply(self, header: Header, now: float) -> None:
        """Take a reply, by which another publisher proves that it is alive."""
        for peer in list(self.peers.values()):
            if (header.publisher, header.incarnation, header.sequence) == (
                peer.number, peer.incarnation, peer.nonce,
            ):  # fmt: skip
                peer.proven, peer.heard_at = True, now
                self._known_ever = self._changed = True
                for other in list(self.peers.values()):
                    if other.number == peer.number and other.incarnation < peer.incarnation:
                        del self.peers[other.key]

    def _take_block(self, header: Header, body: bytes) -> None:
        """Take a block of another publisher's directory."""
        for peer in self.peers.values():
            ours = (header.publisher, header.incarnation) == (peer.number, peer.incarnation)
            if ours and peer.view.awaits(block_number(body)):
                peer.view.take_block(decode_block(body, header.items))
                self._changed = True

    def find_questions(self, now: float) -> list[tuple[str, Header, bytes]]:
        """What to ask others now, as addresses, headers and bodies: for proof, and for blocks."""
        found = []
        for peer in self.peers.values():
            if self._probe_at(peer) <= now:
                peer.asked_at = now
                header = Header(PacketKind.REQUEST, sequence=peer.nonce)
                found.append((peer.address, header, encode_request("")))
        for peer in self._find_alive(now):
            blocks = peer.view.due(now)
            for begin in range(0, len(blocks), MOST_LOOKUPS):
                some = blocks[begin : begin + MOST_LOOKUPS]
                header = Header(
                    PacketKind.LOOKUP,
                    items=len(some),
                    publisher=peer.number,
                    incarnation=peer.incarnation,
                )
                found.append((peer.address, header, encode_lookup(some)))
        return found

    def _probe_at(self, peer: Peer) -> float:
        at = peer.asked_at + self._view_params.prove_every
        return _NEVER if peer.proven or at > peer.probed_until else at

    def next_at(self, now: float) -> float:
        """When there is something to do."""
        ready = self._opened and not self._awaits_proof(now)
        at = min(self._pending.values(), default=_NEVER) if ready else _NEVER
        if self.peers:
            at = min(at, self._deadline)
        for peer in self.peers.values():
            at = min(at, self._probe_at(peer))
            if self._counts(peer, now):
                at = min(at, peer.view.next_at())
                if self._pending or not peer.view.complete:
                    at = min(at, peer.heard_at + self._params.peer_silence)
            elif now < peer.met_at + self._params.proof_wait:
                at = min(at, peer.met_at + self._params.proof_wait)
        return at

    @property
    def is_due(self) -> bool:
        """Whether there may be something to do: others are heard, or flows are being claimed."""
        return bool(self.peers or self._pending)

    def open(self, now: float) -> bool:
        """Whether the publisher may begin to send: everybody has answered who is heard."""
        alive = self._find_alive(now)
        waits = self._awaits_proof(now) or self._awaits_release
        if now < self._deadline and (waits or not all(peer.view.complete for peer in alive)):
            return False
        self._deadline = min(self._deadline, now)
        self._opened = True
        return True

    def _awaits_proof(self, now: float) -> bool:
        """Whether a publisher was heard of which it is not known yet if it is alive."""
        doubtful = (peer for peer in self.peers.values() if not peer.proven)
        return any(now < peer.met_at + self._params.proof_wait for peer in doubtful)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, now: float) -> tuple[dict[str, list[str]], list[str]]:
        """Decide what can be decided: flows that are lost, by who has them, and flows claimed."""
        lost: dict[str, list[str]] = {}
        granted: list[str] = []
        late = self._deadline <= now
        if not (self._changed or self._pending or late):
            return lost, granted
        self._changed = False
        alive = self._find_alive(now)
        self._awaits_release = False
        for peer in alive:
            for flow in self._find_lost(peer, late):
                self._lose(flow, peer)
                lost.setdefault(peer.name, []).append(flow)
        if late:
            self._deadline = _NEVER
        ready = self._opened and not self._awaits_proof(now)
        for flow, until in list(self._pending.items()) if ready else ():
            owner = self._find_owner(flow, alive)
            if owner is not None and not _goes(owner.find(flow)):
                self._lose(flow, owner)
                lost.setdefault(owner.name, []).append(flow)
                continue
            waits = [peer for peer in alive if not peer.view.has_answered(flow)]
            waits += [] if owner is None else [owner]
            if not waits:
                self._grant(flow, alive, now)
                granted.append(flow)
            elif now >= until:
                self._lose(flow, waits[0])
                lost.setdefault(waits[0].name, []).append(flow)
        return lost, granted

    def _find_lost(self, peer: Peer, late: bool) -> list[str]:
        """The flows of this publisher on which another one has the earlier claim.

        If it is `late`, also those of which the other one has not answered.
        """
        found = []
        for flow in self._interesting():
            if not self.has(flow):
                continue
            mine = self.find_claim(flow).since, self._name
            if not peer.view.has_answered(flow):
                lost = late
            else:
                entry = peer.find(flow)
                earlier = _is_carried(entry) and (peer.since(flow), peer.name) < mine
                goes = earlier and _goes(entry)
                self._awaits_release |= goes
                lost = earlier and (late or not goes)
            if lost:
                found.append(flow)
        return found

    def _find_owner(self, flow: str, alive: list[Peer]) -> Peer | None:
        """The publisher that has a flow, as far as is known."""
        known = (peer for peer in alive if peer.view.has_answered(flow))
        return next((peer for peer in known if _is_carried(peer.find(flow))), None)

    def _lose(self, flow: str, peer: Peer) -> None:
        self._pending.pop(flow, None)
        self._held.discard(flow)
        self.lost[flow] = peer.name

    def _grant(self, flow: str, alive: list[Peer], now: float) -> None:
        """Have a flow from now on, with numbers that go on if anybody says where."""
        del self._pending[flow]
        own = self.released.pop(flow, None)
        known = [
            entry.claim
            for entry in (peer.find(flow) for peer in alive)
            if entry is not None and entry.released and entry.claim is not None
        ]
        if own is not None and (not self._known_ever or known):
            known.append(own)  # where others were heard, one of them may have had it meanwhile
        since = self._incarnation + max(1, round((now - self._began) * 1e9))
        last = max(known, key=lambda claim: claim.since, default=None)
        if last is None:
            self.claims[flow] = FlowClaim(since, self._number, since, 1)
        else:
            self.claims[flow] = last._replace(since=max(since, last.since + 1))
        if not self._all:
            self._held.add(flow)

    def _interesting(self) -> Collection[str]:
        return [*(self._plan_flows if self._all else self._held), *self._pending]

    def _find_alive(self, now: float) -> list[Peer]:
        """The other publishers whose claims count."""
        return [peer for peer in self.peers.values() if self._counts(peer, now)]

    def _counts(self, peer: Peer, now: float) -> bool:
        """Whether a publisher has shown that it is alive, and was heard not long ago."""
        return peer.proven and now < peer.heard_at + self._params.peer_silence


def _goes(entry: FlowEntry | None) -> bool:
    """Whether a publisher is about to let a flow go."""
    return entry is not None and entry.upcoming == ()
