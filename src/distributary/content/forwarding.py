"""A broker that knows all subscriptions and forwards events to where they are wanted.

A subscription spreads along the tree of its client's broker, an event along the tree of its
publisher's. Links are assumed to be reliable and ordered, as TCP is. Each broker then gets each
event at most once and, under every policy but flooding, only if one of its own clients or one
downstream wants it; each client that wants the event gets it once.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from collections.abc import Callable

from distributary.content.events import Forward, PublishEvent, SubscribeRequest, UnsubscribeRequest
from distributary.content.link_search import ForwardingPolicy, LinkSearch
from distributary.machines.actions import Action, Deliver, Message, Send, Work
from distributary.model import Topology

__all__ = ["Broker"]


class Broker:
    """The state of one broker: a `Machine`."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        policy: ForwardingPolicy,
        matcher: Callable[[int], LinkSearch],
    ) -> None:
        self.name = name
        self.matcher = matcher(policy.n_links)
        self._topology = topology
        self._policy = policy
        self._handles: dict[tuple[str, int], int] = {}

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle a message of a client or another broker."""
        match message:
            case SubscribeRequest() | UnsubscribeRequest():
                self._change(message)
                return self._spread(message)
            case PublishEvent(event):
                return self._forward(Forward(event, self.name))
            case Forward():
                return self._forward(message)
        raise TypeError(f"a broker cannot handle {message!r}")

    def on_timer(self, name: str, now: float) -> list[Action]:
        """A broker sets no timers."""
        raise ValueError(f"there is no timer {name!r}")

    def _change(self, message: SubscribeRequest | UnsubscribeRequest) -> None:
        subscription = message.client, message.number
        if subscription in self._handles:
            self.matcher.remove(self._handles.pop(subscription))
        if isinstance(message, SubscribeRequest):
            link = self._policy.link(message.client)
            if link is not None:
                self._handles[subscription] = self.matcher.add(message.filter, link)

    def _spread(self, message: SubscribeRequest | UnsubscribeRequest) -> list[Action]:
        home = self._topology.clients[message.client]
        children = self._topology.tree(home).children(self.name)
        return [
            *(Send(child, message) for child in children),
            Work("change", 1),
            Work("send", len(children)),
        ]

    def _forward(self, message: Forward) -> list[Action]:
        routed = self._policy.route(message, self.matcher)
        event = message.event
        return [
            *(Send(hop, forward) for hop, forward in routed.forwards),
            *(Deliver(client, event, event.published) for client in routed.clients),
            *routed.work,
        ]
