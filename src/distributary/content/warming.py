"""Loads what a broker needs before it has work: compiled loops, above all."""

from __future__ import annotations

from collections import deque
from typing import Any

from distributary.content.host import BrokerHost
from distributary.content.policies import Covering
from distributary.content.protocol import OpenSession, Peer, Publish, SendFrame, Subscribe
from distributary.model import Schema

__all__ = ["warm_up"]

_SUBSCRIPTIONS = 100  # enough for the compiled loops
_EVENTS = 3
_LINK, _CLIENT = 1, 2  # connections


def warm_up(schema: Schema, policy: Covering) -> None:
    """Let two brokers that nobody sees exchange a few subscriptions and events.

    The first event after many subscriptions loads compiled loops, for half a second, and compiles
    them after an installation, for many: longer than neighbours and clients wait for an answer.
    """
    if not schema.attributes:
        return
    hosts = {name: BrokerHost(name, schema, policy) for name in ("warm a", "warm b")}
    first, second = hosts
    waiting: deque[tuple[str, int, Any]] = deque()

    def perform(name: str, actions: list[Any]) -> None:
        other = second if name == first else first
        for action in actions:
            if isinstance(action, SendFrame) and action.connection == _LINK:
                waiting.append((other, _LINK, action.message))

    def settle() -> None:
        while waiting:
            name, connection, message = waiting.popleft()
            perform(name, hosts[name].on_message(connection, message, 0.0))

    for name, host in hosts.items():
        perform(name, host.start(0.0))
    for name, host in hosts.items():
        other = second if name == first else first
        perform(name, host.on_open(Peer(_LINK, "broker", other, 1), 0.0))
        perform(name, host.on_open(Peer(_CLIENT, "client", "warm"), 0.0))
        waiting.append((name, _CLIENT, OpenSession()))
    settle()
    attribute = schema.attributes[0].name.replace("`", "``")
    for number in range(1, _SUBSCRIPTIONS + 1):
        waiting.append((second, _CLIENT, Subscribe(number, f"`{attribute}` IS NULL")))
    settle()
    for number in range(1, _EVENTS + 1):
        for name in hosts:
            waiting.append((name, _CLIENT, Publish(number, {})))
        settle()
