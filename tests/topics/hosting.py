"""A host of all channels with its store, driven by hand: messages in, what it sends out."""

from __future__ import annotations

from typing import Any

from distributary.machines.actions import Action, Append, Send
from distributary.machines.real.store import Store
from distributary.topics import Policy
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.store import TopicStore
from tests.topics.nats.running import QUICK


class StoredHost(TopicHost):
    """Writes its records at once, and collects what it sends as (to, sender, message)."""

    def __init__(self, store: Store, policy: Policy = QUICK) -> None:
        self.store = TopicStore(store, policy)
        self.out: list[tuple[str, str, Any]] = []
        super().__init__(policy, self.store.state)

    def take(self, sender: str, to: str, message: Any, now: float) -> None:
        self.perform(self.on_message(sender, ChannelMessage(to, message), now))

    def perform(self, actions: list[Action]) -> None:
        self.store.write([action.record for action in actions if isinstance(action, Append)])
        for action in actions:
            if isinstance(action, Send):
                self.out.append((action.to, action.message.channel, action.message.message))
