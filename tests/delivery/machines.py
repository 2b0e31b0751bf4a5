"""A sender and receivers side by side, with the test as the network between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from distributary.delivery import (
    Messages,
    ReceiverMachine,
    ReceiverParams,
    SenderMachine,
    SenderParams,
)
from distributary.delivery.wire import PacketKind
from distributary.machines import Send, SetTimer
from distributary.model import Plan

KEY = b"0123456789abcdef"


def simple_plan(
    placement: Sequence[int], groups: Sequence[int], unicast: dict[str, list[int]] | None = None
) -> Plan:
    """Flow `f<k>` in session `placement[k]` (-1: by unicast); receiver `r` subscribes to all."""
    flows = tuple(f"f{k}" for k in range(len(placement)))
    placed = [(k, s) for k, s in enumerate(placement) if s >= 0]
    names = tuple(sorted({"r", *(unicast or {})}))
    me = names.index("r")
    alone = sorted((names.index(name), k) for name, ks in (unicast or {}).items() for k in ks)
    column = lambda rows, at: np.array([row[at] for row in rows], np.int32)  # noqa: E731
    subscriptions = [(me, s) for s in range(len(groups))]
    return Plan(
        names,
        flows,
        column(placed, 0),
        column(placed, 1),
        np.array(groups, np.int32),
        column(subscriptions, 0),
        column(subscriptions, 1),
        column(alone, 0),
        column(alone, 1),
    )


def sends(actions: Iterable[object], to: str | None = None) -> list[bytes]:
    found = (action for action in actions if isinstance(action, Send))
    return [action.message for action in found if to in (None, action.to)]


def wake(actions: Iterable[object]) -> float | None:
    """The time that the timer was set to last."""
    return [action.at for action in actions if isinstance(action, SetTimer)][-1]


def delivered(actions: Iterable[object]) -> list[tuple[str, int, bytes]]:
    return [
        (message.flow, message.sequence, message.payload)
        for action in actions
        if isinstance(action, Messages)
        for message in action
    ]


def introduce(sender: SenderMachine, receiver: ReceiverMachine, now: float) -> list[object]:
    """Let a receiver look up what it wants: what it did, besides asking."""
    seen: list[object] = []
    for _ in range(4):
        asked = receiver.on_timer("wake", now)
        seen += asked
        for packet in sends(asked):
            for answer in sends(sender.on_message("r", packet, now)):
                if answer[3] != PacketKind.REPLY:
                    seen += receiver.on_packet(answer, now)
        now += 0.0075  # more than the sender's hold-off time, less than the receiver's patience
    return seen


def start_sender(plan: Plan, now: float = 0.0, **params: float) -> SenderMachine:
    """A sender whose grace time is over."""
    settings = SenderParams(**{"grace": 0.0, **params})  # type: ignore[arg-type]
    sender = SenderMachine(plan, 5, params=settings)
    sender.start(now)
    return sender


def receiver_of(plan: Plan, wanted: Iterable[str], **params: float) -> ReceiverMachine:
    settings = ReceiverParams(**params)  # type: ignore[arg-type]
    receiver = ReceiverMachine("r", wanted, rng=np.random.default_rng(1), params=settings)
    receiver.learn_plan(plan, 0.0)
    receiver.start(0.0)
    return receiver
