"""A node: a machine behind an input queue, with a server that takes its time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from distributary.protocol import Action, Deliver, Machine, Save, Send, SetTimer, Work
from distributary.simulation.clock import Clock
from distributary.simulation.record import Record

__all__ = ["Node", "Service", "priced"]

# From the work of each kind that one input made to the seconds that the node is busy with it.
Service = Callable[[Mapping[str, float]], float]
# An input, as what the machine makes of it given the time.
Input = Callable[[float], Iterable[Action]]


def priced(each: float = 0.0, **prices: float) -> Service:
    """So many seconds for each input, and for each unit of work of the kinds that have a price."""
    return lambda work: each + sum(prices.get(kind, 0.0) * n for kind, n in work.items())


@dataclass(slots=True, eq=False)
class Node:
    """Serves its inputs, messages and timers, in the order of their coming, one at a time.

    The machine is asked when the service begins; the service takes as long as its work costs, and
    what it wants done is done at the end.
    """

    name: str
    machine: Machine
    service: Service
    capacity: float
    clock: Clock
    record: Record
    send: Callable[[str, str, Any], None]
    saved: dict[Hashable, object]
    alive: bool = True
    busy: bool = False
    queue: deque[Input] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)

    def receive(self, sender: str, message: Any) -> bool:
        """Take a message in, if the node is alive and its queue not full."""
        accepted = self.alive and len(self.queue) < self.capacity
        if accepted:
            self._take(partial(self.machine.on_message, sender, message))
        return accepted

    def _take(self, found: Input) -> None:
        if not self.busy:
            self._serve(found)
            return
        self.queue.append(found)
        self.record.waiting.append((self.clock.now, self.name, len(self.queue)))

    def _serve(self, found: Input) -> None:
        self.busy = True
        actions = list(found(self.clock.now))
        work: defaultdict[str, float] = defaultdict(float)
        for action in actions:
            if isinstance(action, Work):
                work[action.kind] += action.units
                self.record.units[self.name, action.kind] += action.units
        self.clock.at(self.clock.now + self.service(work), partial(self._finish, actions))

    def _finish(self, actions: Iterable[Action]) -> None:
        if not self.alive:
            return
        for action in actions:
            self._perform(action)
        self.busy = False
        if self.queue:
            found = self.queue.popleft()
            self.record.waiting.append((self.clock.now, self.name, len(self.queue)))
            self._serve(found)

    def _perform(self, action: Action) -> None:
        now = self.clock.now
        match action:
            case Send(to, message):
                self.send(self.name, to, message)
            case Deliver(client, message, since):
                self.record.delivered.append((now, self.name, client, now - since, message))
            case SetTimer(name, at):
                self._set(name, at)
            case Save(key, value):
                if value is None:
                    self.saved.pop(key, None)
                else:
                    self.saved[key] = value
            case Work():
                pass  # it was paid for with time
            case _:
                assert_never(action)

    def _set(self, name: str, at: float | None) -> None:
        self.timers.pop(name, None)
        if at is not None:
            self.timers[name] = number = self.clock.scheduled  # no two timers have the same
            self.clock.at(max(at, self.clock.now), partial(self._ring, name, number))

    def _ring(self, name: str, number: int) -> None:
        if self.alive and self.timers.get(name) == number:
            self._take(partial(self._run_out, name, number))

    def _run_out(self, name: str, number: int, now: float) -> Iterable[Action]:
        """The timer may have been stopped, or set anew, while it waited in the queue."""
        if self.timers.get(name) != number:
            return ()
        del self.timers[name]
        return self.machine.on_timer(name, now)
