"""Fuzzed messages to a peer: damaged bytes, and well-formed messages in any order.

A damaged message is decoded or refused with a `ValueError`; a decoded one never breaks a peer.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.machines.virtual.engine import Simulation
from distributary.topics.overlay.identifiers import make_peer
from distributary.topics.peer.codec import CLIENT_SIDE, PEER_SIDE, RING, PeerCodec
from distributary.topics.peer.machine import TopicPeer
from tests.topics.peer.schedules import PARAMETERS, POLICIES, Schedule

MOST_KEPT = 400  # of each kind of message


def collect_messages(seeds: range) -> tuple[dict[type, list[bytes]], dict[type, list[bytes]]]:
    """Encoded messages between peers, and of clients to peers, as schedules send them."""
    between: dict[type, list[bytes]] = {}
    of_clients: dict[type, list[bytes]] = {}
    send = Simulation._send

    def listen(self: Simulation, sender: str, to: str, message: Any) -> None:
        if sender.startswith("client/"):
            keep(of_clients, PEER_SIDE, message)
        elif not to.startswith("client/"):
            keep(between, RING, message)
        send(self, sender, to, message)

    def keep(found: dict[type, list[bytes]], codec: PeerCodec, message: Any) -> None:
        kind = type(getattr(message, "payload", getattr(message, "message", message)))
        kept = found.setdefault(kind, [])
        if len(kept) < MOST_KEPT:
            kept.append(codec.encode(message))

    Simulation._send = listen  # type: ignore[method-assign]
    try:
        for seed in seeds:
            Schedule(seed).run()
    finally:
        Simulation._send = send  # type: ignore[method-assign]
    return between, of_clients


def damage(data: bytes, rng: Random) -> bytes:
    """Change, cut, repeat or insert some bytes."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] = rng.randrange(256)
            case 1:
                del found[at : at + rng.randrange(1, 9)]
            case 2:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                found[at:at] = found[at : at + rng.randrange(1, 30)]
            case 4 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
    return bytes(found)


class Fuzzed:
    """A peer that gets fuzzed messages as if from other peers and from clients."""

    def __init__(self, seed: int, corpus: tuple[dict[type, list[bytes]], ...]) -> None:
        self.rng = Random(seed)
        self.counts: Counter[str] = Counter()
        self.corpus = [[kept for _, kept in sorted(c.items(), key=str)] for c in corpus]
        own = make_peer("p0")
        self.peer = TopicPeer(own, POLICIES["ours"], PARAMETERS, seed=seed)
        self.now = 1.0
        self.timers: dict[str, float] = {}
        self.take(self.peer.start((), self.now))

    def take(self, actions: list[Action]) -> None:
        """Check that what it sends can be encoded; keep its timers."""
        for action in [*actions, *self.peer.finish(self.now)]:
            match action:
                case Send(_, message):
                    RING.encode(message)
                case Deliver(_, message, _):
                    CLIENT_SIDE.encode(message)
                case SetTimer(name, at):
                    self.timers.pop(name, None)
                    if at is not None:
                        self.timers[name] = at

    def step(self) -> None:
        rng = self.rng
        self.now += rng.random() * 0.05
        for name in [name for name, at in self.timers.items() if at <= self.now][:4]:
            if self.timers.pop(name, None) is not None:
                self.take(self.peer.on_timer(name, self.now))
        client = rng.random() < 0.4
        codec = PEER_SIDE if client else RING
        data = rng.choice(rng.choice(self.corpus[client]))
        if rng.random() < 0.8:
            data = damage(data, rng)
        try:
            message = codec.decode(data)
        except ValueError:
            self.counts["refused"] += 1
            return
        self.counts["taken"] += 1
        if client:
            self.take(self.peer.on_client(f"client/{rng.randrange(4)}", message, self.now))
        else:
            self.take(self.peer.on_message(f"p{rng.randrange(6)}", message, self.now))


def fuzz(seed: int, messages: int, corpus: tuple[dict[type, list[bytes]], ...]) -> Counter[str]:
    """Give peers that many messages; an error says how to get it again."""
    done: Counter[str] = Counter()
    part = 5_000  # then a new peer, since damaged messages may leave little to break
    for at in range(0, messages, part):
        fuzzed = Fuzzed(seed + at, corpus)
        for _ in range(min(part, messages - at)):
            try:
                fuzzed.step()
            except Exception as error:
                raise AssertionError(f"{error!r}; again: fuzz({seed + at}, {part}, ...)") from error
        done += fuzzed.counts
    return done
