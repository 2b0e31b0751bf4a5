"""The deferred work of a broker: small steps on each link, each when the link has time."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from distributary.content.messages import Probe, Statement
from distributary.content.outlink import OutLink
from distributary.content.pacing import Pace
from distributary.content.policies import Covering
from distributary.machines.actions import Action, Send, SetTimer

__all__ = ["DeferredWork"]

_TIMER = "pace "


class DeferredWork:
    """Replaces what is loose on the links, merging at once and sweeping after a pause.

    Nothing is started on `blocked` links. `send` turns statements into actions.
    """

    def __init__(
        self,
        policy: Covering,
        links: Mapping[str, OutLink],
        blocked: Container[str],
        send: Callable[[str, Sequence[Statement]], list[Action]],
    ) -> None:
        self._policy = policy
        self._links = links
        self._blocked = blocked
        self._send = send
        self._paces = {each: Pace(policy.pacing) for each in links}

    def add(self, neighbour: str) -> None:
        """A link comes up."""
        self._paces[neighbour] = Pace(self._policy.pacing)

    def remove(self, neighbour: str) -> SetTimer:
        """A link is gone for good; stop its timer."""
        del self._paces[neighbour]
        return SetTimer(_TIMER + neighbour, None)

    def start(self, neighbour: str, now: float) -> list[Action]:
        """Start deferred work on a link if there is any and the link is free."""
        pace = self._paces[neighbour]
        if not self._links[neighbour].loose or not pace.is_free or neighbour in self._blocked:
            return []
        if self._policy.merges:
            return self._continue(neighbour, now)
        return [self._rest(neighbour, now)] if self._policy.sweeps else []

    def restart(self, neighbour: str, now: float) -> list[Action]:
        """Restart deferred work on a link after a reset, which has lost the outstanding probe."""
        self._paces[neighbour].forget()
        return self.start(neighbour, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """The rest of a link is over."""
        neighbour = name.removeprefix(_TIMER)
        if neighbour not in self._paces:
            return []  # the link has gone
        self._paces[neighbour].end_rest()
        return self._continue(neighbour, now)

    def on_echo(self, neighbour: str, number: int, now: float) -> list[Action]:
        """A probe has come back: the link rests."""
        timer = self._paces[neighbour].on_echo(number, now)
        return [SetTimer(_TIMER + neighbour, timer)] if timer is not None else []

    def _continue(self, neighbour: str, now: float) -> list[Action]:
        """Do one step, followed by a probe, or by a pause if nothing was to be sent yet."""
        statements = self._links[neighbour].step()
        if not statements:
            return [self._rest(neighbour, now)] if self._links[neighbour].loose else []
        probe = Probe(self._paces[neighbour].start_probe(now))
        return [*self._send(neighbour, statements), Send(neighbour, probe)]

    def _rest(self, neighbour: str, now: float) -> SetTimer:
        until = self._paces[neighbour].rest(self._policy.pacing.pause, now)
        return SetTimer(_TIMER + neighbour, until)
