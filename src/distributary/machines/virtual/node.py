"""A node: a machine behind an input queue, served by one server."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from distributary.machines import Action, Append, Deliver, Machine, Save, Send, SetTimer, Work
from distributary.machines.virtual.clock import Clock
from distributary.machines.virtual.record import SimulationRecord

__all__ = ["Input", "Node", "Service", "price_work"]

# Maps the work that one input caused, by kind, to the seconds that the node is busy.
Service = Callable[[Mapping[str, float]], float]
# An input: calls the machine with the time and returns its actions.
Input = Callable[[float], Iterable[Action]]


def price_work(each: float = 0.0, **prices: float) -> Service:
    """A service time of `each` seconds per input, plus a price per unit of work by kind."""
    return lambda work: each + sum(prices.get(kind, 0.0) * n for kind, n in work.items())


@dataclass(slots=True, eq=False)
class Node:
    """Serves its inputs, messages and timers, in the order of arrival, one at a time.

    The machine handles an input when its service begins; the service takes as long as the work
    costs, and the actions are performed at its end.
    """

    name: str
    machine: Machine
    service: Service
    capacity: float
    clock: Clock
    record: SimulationRecord
    send: Callable[[str, str, Any], None]
    saved: dict[Hashable, object]
    log: list[bytes]
    alive: bool = True
    busy: bool = False
    queue: deque[Input] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)

    def receive(self, sender: str, message: Any) -> bool:
        """Accept a message if the node is alive and its queue is not full."""
        accepted = self.alive and len(self.queue) < self.capacity
        if accepted:
            self._enqueue(partial(self.machine.on_message, sender, message))
        return accepted

    def call(self, given: Input) -> None:
        """Accept an input of the host, such as the machine's start."""
        if self.alive:
            self._enqueue(given)

    def _enqueue(self, given: Input) -> None:
        if not self.busy:
            self._serve(given)
            return
        self.queue.append(given)
        self.record.waiting.append((self.clock.now, self.name, len(self.queue)))

    def _serve(self, given: Input) -> None:
        self.busy = True
        actions = list(given(self.clock.now))
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
            given = self.queue.popleft()
            self.record.waiting.append((self.clock.now, self.name, len(self.queue)))
            self._serve(given)

    def _perform(self, action: Action) -> None:
        now = self.clock.now
        match action:
            case Send(to, message):
                self.send(self.name, to, message)
            case Deliver(client, message, since):
                self.record.delivered.append((now, self.name, client, now - since, message))
            case SetTimer(name, at):
                self._set_timer(name, at)
            case Save(key, value):
                if value is None:
                    self.saved.pop(key, None)
                else:
                    self.saved[key] = value
            case Append(record):
                self.log.append(record)
            case Work():
                pass  # it has already been charged as service time
            case _:
                assert_never(action)

    def _set_timer(self, name: str, at: float | None) -> None:
        self.timers.pop(name, None)
        if at is not None:
            self.timers[name] = number = self.clock.scheduled  # unique per timer
            self.clock.at(max(at, self.clock.now), partial(self._expire, name, number))

    def _expire(self, name: str, number: int) -> None:
        if self.alive and self.timers.get(name) == number:
            self._enqueue(partial(self._on_timer, name, number))

    def _on_timer(self, name: str, number: int, now: float) -> Iterable[Action]:
        """Call the machine, unless the timer was stopped or reset while it was queued."""
        if self.timers.get(name) != number:
            return ()
        del self.timers[name]
        return self.machine.on_timer(name, now)
