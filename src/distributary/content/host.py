"""The machine of a broker process: connections, roles and sessions around a durable broker.

It does no I/O: a shell, or a simulator, gives it connections and messages with the time, and
performs the actions that it returns, in order: `Save` before anything is sent, then `SendFrame`,
`Cut` and `SetTimer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributary.content.durable import FIRST_START, Recovery
from distributary.content.policies import Covering
from distributary.content.protocol import Cut, Hello, Identity, Peer, Refusal, SendFrame, Welcome
from distributary.machines.actions import Save, SetTimer, Work
from distributary.model import Schema

__all__ = ["BrokerHost", "HostAction", "HostParams"]

HostAction = Save | SendFrame | Cut | SetTimer | Work


@dataclass(frozen=True, slots=True)
class HostParams:
    """Limits of a broker; times in seconds, sizes in bytes."""

    lease: float = 7 * 86_400.0
    outbox_events: int = 10_000
    outbox_bytes: int = 64 << 20
    window: int = 256


DEFAULT_PARAMS = HostParams()


class BrokerHost:
    """One incarnation of a broker with its clients and neighbours.

    `recovery` is what earlier incarnations saved; its incarnation must be higher than theirs.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        policy: Covering,
        *,
        recovery: Recovery = FIRST_START,
        params: HostParams = DEFAULT_PARAMS,
    ) -> None:
        raise NotImplementedError

    @property
    def identity(self) -> Identity:
        """Who this broker is, for its own `Hello`, with the links known now."""
        raise NotImplementedError

    def judge(self, hello: Hello, *, proven: str | None = None) -> Welcome | Refusal:
        """Accept a connection or refuse it, also because its link would close a cycle."""
        raise NotImplementedError

    def judge_welcome(
        self, welcome: Welcome, expected: str, *, proven: str | None = None
    ) -> Refusal | None:
        """Accept the broker that this one has connected to, or refuse it."""
        raise NotImplementedError

    def start(self, now: float) -> list[HostAction]:
        """Restore what was saved; the first call."""
        raise NotImplementedError

    def on_open(self, peer: Peer, now: float) -> list[HostAction]:
        """A handshake has succeeded."""
        raise NotImplementedError

    def on_message(self, connection: int, message: Any, now: float) -> list[HostAction]:
        """A message has arrived; never raises, whatever it is."""
        raise NotImplementedError

    def on_close(self, connection: int, now: float) -> list[HostAction]:
        """A connection has closed, for whatever reason."""
        raise NotImplementedError

    def on_timer(self, name: str, now: float) -> list[HostAction]:
        """A timer has expired."""
        raise NotImplementedError

    def remove_link(self, neighbour: str, now: float) -> list[HostAction]:
        """The operator takes a neighbour out for good; reports and drops what was kept for it."""
        raise NotImplementedError
