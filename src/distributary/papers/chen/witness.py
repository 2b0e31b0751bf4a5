"""What an observer of the whole network knows: which publications somebody still wants.

A broker can tell only that nothing in its own table matches. Whether a client behind it wants a
publication, the observer finds from the clients' requests and filters, not from any table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from distributary.content import (
    ContentBroker,
    Publication,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.events import ContentEvent
from distributary.content.messages import Packed, SubscribeStatement
from distributary.machines import Action, Work
from distributary.machines.actions import Message
from distributary.model import IntArray, Key, Topology
from distributary.workloads.workflows import Subscription

__all__ = ["Witness", "WitnessedBroker"]

_EVERYTHING = None


class Witness:
    """Knows where each client is subscribed now, and what it wants.

    Clients want ranges of the values of one workflow, or everything.
    """

    def __init__(self, topology: Topology, subscriptions: Sequence[Subscription]) -> None:
        self._topology = topology
        self._where: defaultdict[str, set[str]] = defaultdict(set)
        self._behind: dict[tuple[str, str], frozenset[str]] = {}
        self._wishes = _group_by_workflow(subscriptions)
        # By the event's number: the brokers of those who want it, and after how many changes.
        self._wanting: dict[int, tuple[int, set[str]]] = {}
        self._changes = 0

    def note(self, broker: str, request: SubscribeRequest | UnsubscribeRequest) -> None:
        """A client subscribes at a broker or leaves it."""
        self._changes += 1
        if isinstance(request, SubscribeRequest):
            self._where[request.client].add(broker)
        else:
            self._where[request.client].discard(broker)

    def is_wanted(self, event: ContentEvent, broker: str, sender: str) -> bool:
        """Whether a client of the broker, or behind it as seen from the sender, wants an event."""
        behind = self._behind.get((broker, sender))
        if behind is None:
            tree = self._topology.tree(sender)
            behind = self._behind[broker, sender] = tree.downstream(broker) | {broker}
        return not behind.isdisjoint(self._find_wanting(event))

    def _find_wanting(self, event: ContentEvent) -> set[str]:
        """The brokers with a client that wants an event now."""
        since, found = self._wanting.get(event.number, (-1, set()))
        if since != self._changes:
            keys = event.keys
            clients = [*self._select(_EVERYTHING, keys), *self._select(keys[0], keys)]
            found = set().union(*(self._where[client] for client in clients))
            self._wanting[event.number] = self._changes, found
        return found

    def _select(self, workflow: Key | None, keys: Sequence[Key | None]) -> list[str]:
        if workflow not in self._wishes:
            return []
        clients, low, high = self._wishes[workflow]
        point = np.array(keys[1 : 1 + low.shape[1]], np.int64)
        inside = ((low <= point) & (point < high)).all(axis=1)
        return [clients[at] for at in np.flatnonzero(inside).tolist()]


_Wishes = dict[Key | None, tuple[list[str], IntArray, IntArray]]


def _group_by_workflow(subscriptions: Sequence[Subscription]) -> _Wishes:
    """The clients that want a workflow, and the ends of the ranges that each wants of it."""
    rows: defaultdict[Key | None, list[tuple[str, list[Key], list[Key]]]] = defaultdict(list)
    for client, _, filter in subscriptions:
        (box,) = filter.boxes
        ranges = [values.ranges[0] for _, values in box.tests]
        name = ranges[0][0] if ranges else _EVERYTHING
        ends = [(low, high) for low, high in ranges[1:] if high is not None]
        rows[name].append((client, [low for low, _ in ends], [high for _, high in ends]))
    return {
        name: (
            [client for client, _, _ in found],
            np.array([low for _, low, _ in found], np.int64),
            np.array([high for _, _, high in found], np.int64),
        )
        for name, found in rows.items()
    }


class WitnessedBroker:
    """A broker under observation: a `Machine` that also reports, as work, what the witness counts.

    "unneeded" is a publication from another broker that no client here or behind wants;
    "triggered message" is a message with at least one triggered subscription.
    """

    def __init__(self, broker: ContentBroker, witness: Witness) -> None:
        self._broker = broker
        self._witness = witness

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a message, and count it."""
        if isinstance(message, SubscribeRequest | UnsubscribeRequest):
            self._witness.note(self._broker.name, message)
        actions = self._broker.on_message(sender, message, now)
        if isinstance(message, Publication):
            if not self._witness.is_wanted(message.event, self._broker.name, sender):
                actions.append(Work("unneeded", 1))
        elif _is_triggered(message):
            actions.append(Work("triggered message", 1))
        return actions

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle a timer."""
        return self._broker.on_timer(name, now)


def _is_triggered(message: Message) -> bool:
    statements = message.statements if isinstance(message, Packed) else (message,)
    return any(isinstance(each, SubscribeStatement) and each.triggered for each in statements)
