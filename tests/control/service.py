"""One control service in virtual time: its machine, its timers, and what it does to the store."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from distributary.control.machine import ControlMachine
from distributary.control.messages import (
    AnswerRequest,
    Ask,
    Audit,
    ConnectionChanged,
    Decide,
    DropPlan,
    FetchPlan,
    ForgetPublisher,
    ForgetReceiver,
    InterestChanged,
    KeepProposal,
    PlanFetched,
    PublisherChanged,
    SetBase,
    SettingsChanged,
    WriteCounts,
    WriteInterest,
)
from distributary.control.reports import NAMES_EVERY
from distributary.control.settings import ControlSettings
from distributary.machines import SetTimer
from distributary.machines.virtual import Clock
from tests.control.store import ReplacedError, Store, StoreClient
from tests.control.stream import Stream

NAMES_FOR = NAMES_EVERY + 5.0  # seconds of reports that have all names of flows

Input = Callable[[float], Iterable[Any]]


class Service:
    """Handles one input after the other; what it does to the store takes `delay()` each.

    A service that is cut off from the store waits, and hears later what it missed. One that sleeps
    does nothing at all.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        clock: Clock,
        given: ControlSettings,
        *,
        delay: Callable[[], float] = lambda: 0.0,
        watch: Callable[[Service, Any], None] = lambda service, action: None,
    ) -> None:
        self.name, self.store, self.clock, self.given = name, store, clock, given
        self.machine: ControlMachine | None = None
        self.stream = Stream()
        self.is_awake, self.is_connected = True, True
        self.zombie = False  # it was replaced, and finds out after its next write
        self.answers: dict[int, Any] = {}
        self.heard: list[Any] = []  # by the machine
        self._delay, self._watch = delay, watch
        self._client = StoreClient(store, name)
        self._inputs: deque[Input] = deque()
        self._actions: deque[Any] = deque()
        self._missed: list[Any] = []
        self._timers: dict[str, int] = {}
        self._numbers = 0
        self._is_due = False
        store.listeners.append(self._hear)

    @property
    def serves(self) -> bool:
        return self.machine is not None

    # --- life -------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Take over, and begin."""
        self.end()
        settings, restored = self._client.restore(self.given)
        self.stream = Stream()
        self.heard = []
        machine = ControlMachine(settings, restored, addresses=lambda group: f"239.0.0.{group}")
        self.machine = machine
        since = self.clock.now - max(settings.rate_window, NAMES_FOR)
        for (role, name), record in sorted(self.store.members.items()):
            kind = InterestChanged if role == "receiver" else PublisherChanged
            self._take(kind(name, record))
        for at, message in self.store.reports:
            if at >= since:
                self._take(message)
        self._enqueue(machine.start)

    def end(self) -> None:
        """It is killed, or was replaced: what it was about to do is gone."""
        self.machine, self.zombie = None, False
        self._inputs.clear()
        self._actions.clear()
        self._missed.clear()
        self._timers.clear()

    def sleep(self) -> None:
        self.is_awake = False

    def wake(self) -> None:
        """Go on as if nothing had happened, but excuse members for what it slept through."""
        self.is_awake = True
        if self.machine is None:
            return
        found = self._make_input(ConnectionChanged(self.is_connected))
        self._inputs.extendleft((found, self._make_input(ConnectionChanged(False))))
        self._catch_up()
        self._wake_up()

    def cut(self) -> None:
        self.is_connected = False
        self._take(ConnectionChanged(False))

    def heal(self) -> None:
        self.is_connected = True
        self._take(ConnectionChanged(True))
        self._catch_up()

    def ask(self, ticket: int, request: Any) -> None:
        self._hear(Ask(ticket, request))

    def tell(self, message: Any) -> None:
        """What its own host, such as its stream, says."""
        self._take(message)

    # --- in ---------------------------------------------------------------------------------------

    def _hear(self, message: Any) -> None:
        if self.machine is None:
            return
        if self.is_connected and self.is_awake:
            self._take(message)
        else:
            self._missed.append(message)

    def _catch_up(self) -> None:
        if self.is_connected and self.is_awake:
            missed, self._missed = self._missed, []
            for message in missed:
                self._take(message)
            self._wake_up()

    def _take(self, message: Any) -> None:
        if self.machine is not None:
            self._enqueue(self._make_input(message))

    def _make_input(self, message: Any) -> Input:
        def call(now: float) -> Iterable[Any]:
            assert self.machine is not None
            self.heard.append((now, message))
            return self.machine.on_message("", message, now)

        return call

    def _enqueue(self, given: Input) -> None:
        self._inputs.append(given)
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.clock.at(self.clock.now, self._turn)

    def _turn(self) -> None:
        """Handle inputs, and perform actions until one of them takes time."""
        self._is_due = False
        try:
            while self.machine is not None and self.is_awake:
                if self._actions:
                    if not self.is_connected:
                        return
                    self._perform(self._actions.popleft())
                    if self.zombie:
                        self.end()
                        return
                    pause = self._delay()
                    if pause:
                        self._is_due = True
                        self.clock.at(self.clock.now + pause, self._turn)
                        return
                elif self.zombie:
                    self.end()
                elif self._inputs:
                    given = self._inputs.popleft()
                    for action in given(self.clock.now):
                        self._watch(self, action)
                        self._actions.append(action)
                else:
                    return
        except ReplacedError:
            self.end()

    # --- out --------------------------------------------------------------------------------------

    def _perform(self, action: Any) -> None:
        client, now = self._client, self.clock.now
        match action:
            case Decide():
                client.put(action)
                if self._delay():  # it may be killed in between
                    self._actions.appendleft(_Decided(action))
                else:
                    client.decide(action, now)
            case _Decided(decide):
                client.decide(decide, now)
            case KeepProposal():
                client.put(action)
                client.keep_proposal(action)
            case Audit():
                client.append(action)
            case SettingsChanged():
                client.change_settings(action)
            case ForgetReceiver() | ForgetPublisher():
                client.forget(action)
            case FetchPlan(name):
                self._take(PlanFetched(name, self.store.plans.get(name)))
            case DropPlan():
                client.drop(action)
            case SetBase(plan):
                self.stream.base = plan
            case WriteInterest():
                self.stream.write_interest(action)
            case WriteCounts():
                self.stream.write_counts(action)
            case AnswerRequest(ticket, answer):
                assert ticket not in self.answers, f"{ticket} is answered twice"
                self.answers[ticket] = answer
            case SetTimer(name, at):
                self._set_timer(name, at)
            case _:
                raise TypeError(f"nobody performs {action!r}")

    def _set_timer(self, name: str, at: float | None) -> None:
        self._numbers += 1
        number = self._timers[name] = self._numbers
        assert at is not None
        assert math.isfinite(at)

        def call(now: float) -> Iterable[Any]:
            if self._timers.get(name) != number or self.machine is None:
                return ()
            del self._timers[name]
            self.heard.append((now, name))
            return self.machine.on_timer(name, now)

        def expire() -> None:
            if self._timers.get(name) == number:
                self._enqueue(call)

        self.clock.at(max(at, self.clock.now), expire)


class _Decided:
    """A decision whose plan is stored already."""

    __match_args__ = ("decide",)

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
