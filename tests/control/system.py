"""A whole control plane in virtual time: services, their store, and members on a floor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from distributary.control.messages import Decision, Proposed
from distributary.control.requests import Done, Refusal
from distributary.control.settings import ControlSettings
from distributary.control.status import Alarm, AuditEntry, ControlStatus
from distributary.machines.virtual import Clock
from distributary.model import Plan
from tests.control.floor import Floor
from tests.control.service import Service
from tests.control.store import FORCE, Store

T = TypeVar("T")

BEGIN = 1_000.0  # any time will do, but 0 might look like none


class System:
    """Starts with no service; members report at the end of every second."""

    def __init__(
        self,
        settings: ControlSettings,
        rates: Mapping[str, float],
        rng: np.random.Generator | None = None,
    ) -> None:
        self.settings = settings
        self.clock = Clock()
        self.clock.run(until=BEGIN)
        self.store = Store()
        self.floor = Floor(self.store, rates, rng)
        self.services: dict[str, Service] = {}
        self._tickets = itertools.count(1)
        self.clock.at(BEGIN + 0.9, self._pass_second)

    @property
    def now(self) -> float:
        return self.clock.now

    def serve(
        self,
        name: str = "one",
        delay: Callable[[], float] = lambda: 0.0,
        watch: Callable[[Service, Any], None] = lambda service, action: None,
    ) -> Service:
        """Let a service take over from those that are killed now."""
        for other in self.services.values():
            other.end()
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(
                name, self.store, self.clock, self.settings, delay=delay, watch=watch
            )
        service.serve()
        return service

    def run(self, seconds: float) -> None:
        self.clock.run(until=self.clock.now + seconds)

    def _pass_second(self) -> None:
        self.floor.pass_second(int(self.now), self.now)
        self.clock.at(self.now + 1.0, self._pass_second)

    # --- the service that serves ------------------------------------------------------------------

    @property
    def serving(self) -> Service:
        """The one that took over last."""
        return self.services[self.store.takeovers[-1]]

    def ask(self, request: Any) -> Any:
        """Ask the service that serves, and wait for the answer."""
        ticket, service = next(self._tickets), self.serving
        service.ask(ticket, request)
        self.run(0.001)
        for _ in range(100):  # it may be busy
            if ticket not in service.answers:
                self.run(0.01)
        return service.answers.pop(ticket)

    def order(self, request: Any) -> Done:
        answer = self.ask(request)
        assert isinstance(answer, Done), answer
        return answer

    def refuse(self, request: Any) -> str:
        """What a request is refused with; nothing may have changed."""
        before = self.store.read(FORCE), self.machine.settings
        answer = self.ask(request)
        assert isinstance(answer, Refusal), answer
        assert before == (self.store.read(FORCE), self.machine.settings)
        return answer.says

    def propose(self, plan: Plan, version: int = 1) -> None:
        self.serving.tell(Proposed(version, plan, {}))
        self.run(0.001)

    @property
    def machine(self) -> Any:
        machine = self.serving.machine
        assert machine is not None
        return machine

    @property
    def status(self) -> ControlStatus:
        found: ControlStatus = self.machine.status(self.now)
        return found

    @property
    def force(self) -> Decision:
        decision: Decision = self.store.read(FORCE)
        return decision

    @property
    def plan(self) -> Plan:
        plan = self.store.plan
        assert plan is not None
        return plan

    def alarms(self, what: str) -> list[Alarm]:
        return [alarm for alarm in self.status.alarms if alarm.what == what]

    def entries(self, what: str) -> list[AuditEntry]:
        """The log of changes as it is stored."""
        return [entry for entry in self.store.audit if entry.what == what]
