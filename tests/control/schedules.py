"""Whole control planes under crashes, sleep, cut connections, proposals and orders, by seed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from distributary.control import terms
from distributary.control.messages import (
    Decide,
    FetchPlan,
    Proposed,
    SettingsChanged,
)
from distributary.control.reports import InterestRecord
from distributary.control.requests import (
    Approve,
    Changes,
    FlowRequest,
    Look,
    Pin,
    PlanRequest,
    Refusal,
    Reject,
    Rollback,
    SetLimits,
    SetMode,
)
from distributary.control.settings import ControlSettings
from distributary.control.versions import MOVING
from distributary.model import Plan
from tests.control.mirror import Mirror
from tests.control.plans import make_plan, read_places, waste_of
from tests.control.rollbacks import check_rollbacks
from tests.control.service import Service
from tests.control.store import FORCE, PROPOSAL
from tests.control.system import System

STEPS = 40
FLOWS = tuple(f"f{at}" for at in range(9))
RECEIVERS = tuple(f"r{at}" for at in range(5))
PUBLISHERS = {"p0": FLOWS[:5], "p1": FLOWS[5:]}
SERVICES = ("one", "two", "three")
LIMITS = ("", *(f"[groups]\nmembers = {most}" for most in (1, 2, 3, 4)))
BURDEN = 1_000_000.0  # messages per second, far more than any plan predicts
LEASE = 3.0  # seconds that a service may be silent before another takes over
SETTLE = 45.0


class Schedule:
    """A system that is disturbed step by step, and checked all the time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tally: Counter[str] = Counter()
        groups = int(self.rng.integers(1, 4))
        self.settings = ControlSettings(
            groups=groups,
            sessions=groups + int(self.rng.integers(0, 3)),
            mode="auto" if self.rng.random() < 0.5 else "manual",
            max_moves=self._pick([None, 1, 3, 9]),
            rate_window=10.0,
            judge_after=2.0,
            judge_over=5.0,
            gone_after=3.0,
            forget_after=15.0,
            keep_versions=int(self.rng.integers(2, 6)),
        )
        rates = {flow: float(self.rng.integers(0, 40)) for flow in FLOWS}
        self.system = System(self.settings, rates, self.rng)
        self.store, self.floor = self.system.store, self.system.floor
        self.mirrors: dict[str, tuple[Mirror, int]] = {}
        self.holder, self.began = "", 0.0
        self.busy_until: dict[str, float] = {}
        self.asked: dict[int, str] = {}
        self.lost: set[str] = set()  # plans
        self._terms = self.rng.random() < 0.5  # whether operators set any
        self._delays = self.rng.random() < 0.7
        self._burdens = self.rng.random() < 0.5  # whether planned versions may turn out worse
        for name, flows in PUBLISHERS.items():
            self.floor.publish(name, flows, self.now)
        for name in SERVICES:
            self.system.services[name] = Service(
                name,
                self.store,
                self.system.clock,
                self.settings,
                delay=self._draw_delay,
                watch=self._watch,
            )
        self._take_over("one")

    @property
    def now(self) -> float:
        return self.system.now

    def _pick(self, among: Any) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def _draw_delay(self) -> float:
        return float(self.rng.exponential(0.01)) if self._delays else 0.0

    # --- services ---------------------------------------------------------------------------------

    def _take_over(self, name: str) -> None:
        service = self.system.services[name]
        if not (service.is_awake and service.is_connected):
            return
        self.holder, self.began = name, self.now
        self.tally["terms"] += 1
        self.asked = {ticket: who for ticket, who in self.asked.items() if who != name}
        service.serve()
        settings = self.store.read("settings")
        self.mirrors[name] = Mirror(settings, self.store.plan), 0
        assert service.machine is not None

    def _keep_one_serving(self) -> None:
        """Another service takes over from one that is dead, or has been silent for too long."""
        holder = self.system.services[self.holder]
        is_silent = self.now >= self.busy_until.get(self.holder, np.inf)
        if holder.serves and not is_silent:
            return
        ready = [
            name
            for name, each in self.system.services.items()
            if each.is_awake and each.is_connected and (name != self.holder or not each.serves)
        ]
        if ready:
            self._take_over(self._pick(sorted(ready)))

    def _watch(self, service: Service, action: Any) -> None:
        """See every action as soon as the machine asks for it."""
        mirror = self._catch_up(service)
        if isinstance(action, Decide):
            mirror.check(action, self.now)
            self.tally[action.decision.kind] += 1
            if action.decision.kind == "planned" and self._burdens and self.rng.random() < 0.7:
                self._burden_receivers()
        elif isinstance(action, SettingsChanged):
            mirror.settings = action.settings
        elif isinstance(action, FetchPlan) and self._burdens and self.rng.random() < 0.3:
            self._lose_plan(action.name)

    def _catch_up(self, service: Service) -> Mirror:
        mirror, heard = self.mirrors[service.name]
        for now, message in service.heard[heard:]:
            mirror.hear(now, message)
        self.mirrors[service.name] = mirror, len(service.heard)
        return mirror

    def _burden_receivers(self) -> None:
        """Receivers drop more than predicted from now on, for some time."""
        burdened = [each for each in self.floor.receivers.values() if self.rng.random() < 0.7]

        def end() -> None:
            for receiver in burdened:
                receiver.besides = 0.0

        for receiver in burdened:
            receiver.besides = BURDEN
        self.system.clock.at(self.now + float(self.rng.uniform(5.0, 40.0)), end)

    def _lose_plan(self, name: str) -> None:
        """A plan that is about to be fetched is gone, unless more than that depends on it."""
        needed = {found.plan for key in (FORCE, PROPOSAL) if (found := self.store.read(key))}
        if name not in needed:
            self.store.plans.pop(name, None)
            self.lost.add(name)

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens, and then some time passes."""
        acts = (
            (self._want, 5),
            (self._end_receiver, 2),
            (self._disturb_publisher, 1),
            (self._cut_member, 1),
            (self._change_rates, 1),
            (self._lose_messages, 1),
            (self._disturb_service, 2),
            (self._propose, 8),
            (self._order, 4),
        )
        weights = np.array([weight for _, weight in acts], float)
        at = int(self.rng.choice(len(acts), p=weights / weights.sum()))
        acts[at][0]()
        self._pass(float(self.rng.exponential(1.0)))

    def _pass(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.system.run(min(0.5, until - self.now))
            self._keep_one_serving()

    def _want(self) -> None:
        name, receivers = self._pick(RECEIVERS), self.floor.receivers
        flows = frozenset(flow for flow in FLOWS if self.rng.random() < 0.3)
        if name in receivers and self.rng.random() < 0.6:  # one more, or one less
            flows = receivers[name].wants ^ {self._pick(FLOWS)}
        self.floor.want(name, flows, self.now)

    def _end_receiver(self) -> None:
        if self.floor.receivers:
            name = self._pick(sorted(self.floor.receivers))
            if self.rng.random() < 0.5:
                self.floor.kill(name)
            else:
                self.floor.leave(name)

    def _disturb_publisher(self) -> None:
        name = self._pick(sorted(PUBLISHERS))
        if name in self.floor.publishers and self.rng.random() < 0.5:
            self.floor.kill(name)
        else:
            self.floor.publish(name, PUBLISHERS[name], self.now)

    def _cut_member(self) -> None:
        """A publisher comes back before it counts as ended, or its messages have no count."""
        name = self._pick(sorted({**self.floor.receivers, **self.floor.publishers}))
        if self.rng.random() < 0.5:
            self._heal_member(name)
            return
        self.floor.cut(name)
        if name in PUBLISHERS:
            back = self.now + float(self.rng.uniform(1.0, 12.0))
            self.system.clock.at(back, lambda: self._heal_member(name))

    def _heal_member(self, name: str) -> None:
        if name in self.floor.receivers or name in self.floor.publishers:
            self.floor.heal(name, self.now)

    def _change_rates(self) -> None:
        for flow in FLOWS:
            if self.rng.random() < 0.3:
                self.floor.rates[flow] = float(self.rng.choice([0, 1, 10, 100, 1_000]))

    def _lose_messages(self) -> None:
        if self.floor.receivers:
            name = self._pick(sorted(self.floor.receivers))
            self.floor.receivers[name].missing += int(self.rng.integers(1, 9))

    def _disturb_service(self) -> None:
        name = self.holder if self.rng.random() < 0.8 else self._pick(SERVICES)
        service = self.system.services[name]
        seconds = float(self.rng.uniform(0.3, 8.0))
        match self.rng.integers(3):
            case 0:
                service.end()
            case 1 if service.is_awake:
                service.sleep()
                self._end_later(name, seconds, service.wake)
            case 2 if service.is_connected and service.is_awake:
                service.cut()
                self._end_later(name, seconds, service.heal)

    def _end_later(self, name: str, seconds: float, end: Any) -> None:
        self.busy_until[name] = self.now + LEASE
        service = self.system.services[name]

        def go_on() -> None:
            self.busy_until.pop(name, None)
            if service.serves and self.holder != name:  # one write may still be under way
                service.zombie = True
            end()

        self.system.clock.at(self.now + seconds, go_on)

    def _propose(self) -> None:
        service = self.system.services[self.holder]
        base = service.stream.base
        if not service.serves or base is None:
            return
        plan = self._make_proposal(service, base)
        service.tell(Proposed(1, plan, {}))

    def _make_proposal(self, service: Service, base: Plan) -> Plan:
        wants: dict[str, frozenset[str]] = {}
        for receiver, flow in service.stream.pairs:
            wants[receiver] = wants.get(receiver, frozenset()) | {flow}
        kind = self.rng.integers(5)
        sessions = self.settings.sessions + int(kind == 0)  # sometimes more than there may be
        if kind == 1:
            return self._pick(self.store.accepted).plan if self.store.accepted else base
        places = {flow: int(self.rng.integers(sessions)) for flow in FLOWS}
        if kind > 1:
            places = self._improve(read_places(base), base.session_group.tolist(), wants)
        numbers = {at: number for number, at in enumerate(sorted(set(places.values())))}
        places = {flow: numbers[at] for flow, at in places.items()}
        if kind > 1 and len(numbers) == base.n_sessions:
            groups = base.session_group.tolist()
        else:
            groups = [at % self.settings.groups for at in range(len(numbers))]
        return make_plan(wants, places, groups)

    def _improve(
        self, places: dict[str, int], groups: list[int], wants: dict[str, frozenset[str]]
    ) -> dict[str, int]:
        """Some moves that save something by the rates that flows have."""
        rates = {flow: round(rate) + 1 for flow, rate in self.floor.rates.items()}

        def price(some: dict[str, int]) -> float:
            _, first, second = waste_of(wants, some, groups, rates, 1)  # type: ignore[arg-type]
            return float(first + 2 * second)

        best = price(places)
        for _ in range(12):
            flow = self._pick(sorted(places))
            tried = {**places, flow: int(self.rng.integers(len(groups)))}
            if price(tried) < best:
                places, best = tried, price(tried)
        return places

    def _order(self) -> None:
        service = self.system.services[self.holder]
        if not service.serves:
            return
        ticket = int(self.rng.integers(1 << 40))
        self.asked[ticket] = self.holder
        service.ask(ticket, self._draw_order())

    def _draw_order(self) -> Any:
        proposal = self.store.read(PROPOSAL)
        number = proposal.number if proposal else int(self.rng.integers(1, 50))
        force = self.store.read(FORCE)
        last = force.version if force else 1
        flow = self._pick(FLOWS)
        orders = [
            Approve(number, "ann"),
            Approve(number, "ann"),
            Reject(number, "bob", "no"),
            Rollback(None, "ann"),
            Rollback(int(self.rng.integers(1, last + 2)), "ann"),
            SetMode(self._pick(["auto", "manual", "never"]), "ann"),
            Look(),
            PlanRequest(),
            Changes(5),
            FlowRequest(flow),
        ]
        if self._terms and self.rng.random() < 0.5:
            group = int(self.rng.integers(-1, self.settings.groups + 1))
            orders = [
                Pin(flow, None if group < 0 else group, "ann"),
                SetLimits(self._pick(LIMITS), "ann"),
            ]
        return self._pick(orders)

    # --- the end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing is disturbed any more; whoever is away comes back."""
        self._pass(10.0)
        for name in sorted({**self.floor.receivers, **self.floor.publishers}):
            self.floor.heal(name, self.now)
        self._pass(SETTLE)

    def check(self) -> None:
        """Check what must hold once all is calm."""
        system, store = self.system, self.store
        service = system.services[self.holder]
        assert service.serves
        assert store.takeovers[-1] == self.holder
        self._check_log()
        self._check_flows(service)
        self._check_stream(service)
        self._check_kept(service)
        for ticket, name in self.asked.items():
            if system.services[name].serves:
                assert ticket in system.services[name].answers, f"no answer to {ticket}"
        rollbacks = check_rollbacks(store.audit, store.accepted)
        assert self._burdens or not rollbacks["rolled back by itself"]
        self.tally += rollbacks

    def _check_log(self) -> None:
        store = self.store
        versions = [accepted.decision.version for accepted in store.accepted]
        assert versions == list(range(1, len(versions) + 1))
        assert [entry.number for entry in store.audit] == list(range(1, len(store.audit) + 1))
        told = [entry for entry in store.audit if entry.what == "in force"]
        assert [entry.version for entry in told] == versions
        for entry, accepted in zip(told, store.accepted, strict=True):
            decision = accepted.decision
            facts = (decision.by, decision.why, decision.at, decision.moves, decision.predicted)
            assert (entry.who, entry.why, entry.at, entry.moves, entry.predicted) == facts
            assert (entry.kind, entry.plan) == (decision.kind, decision.plan)
        judged = Counter(entry.version for entry in store.audit if entry.what == "judged")
        assert not judged or max(judged.values()) == 1
        moving = [entry.version for entry in told if entry.kind in MOVING]
        assert judged.keys() <= set(moving)
        self.tally["judged"] += len(judged)
        self.tally["measured"] += sum(entry.measured is not None for entry in store.audit)

    def _check_flows(self, service: Service) -> None:
        """Every wanted flow is in the plan in force, or said to be held back."""
        records = (record for (role, _), record in self.store.members.items() if role == "receiver")
        wanted = {
            flow
            for record in records
            if isinstance(record, InterestRecord)
            for flow in record.flows
        }
        plan = self.store.plan
        carried = set() if plan is None else set(plan.flows)
        status = self.system.status
        alarms = {alarm.what for alarm in status.alarms}
        held = wanted - carried
        assert not held or "flows held back" in alarms, f"nobody says that {held} are held back"
        assert held or "flows held back" not in alarms
        self.tally["held"] += bool(held)
        if wanted - held:  # else the last plan stays, since none is empty
            assert carried <= wanted, f"{carried - wanted} are carried, and nobody wants them"
        for flow in held:
            path = self.system.ask(FlowRequest(flow))
            assert not isinstance(path, Refusal)
            assert path.session is None
        assert status.force is None or status.force.version == self.store.read(FORCE).version

    def _check_stream(self, service: Service) -> None:
        """The stream was told all interest, and each message once."""
        pairs = {
            (name, flow)
            for (role, name), record in self.store.members.items()
            if role == "receiver" and isinstance(record, InterestRecord)
            for flow in record.flows
        }
        assert service.stream.pairs == pairs
        # Reports from before it began may have had no names of flows.
        counted = self._catch_up(service).counted
        before = self.now - 3.0  # since then some may not be written yet
        told, heard = (
            {key: n for key, n in found.items() if self.began < key[0] < before}
            for found in (service.stream.counts, counted)
        )
        assert told == heard

    def _check_kept(self, service: Service) -> None:
        """What waits, and what can be rolled back to, is in the store."""
        store, status = self.store, self.system.status
        proposal = store.read(PROPOSAL)
        waiting = None if status.proposal is None else status.proposal.number
        if store.last_writer(PROPOSAL) == self.holder:  # not the one before, with its last write
            assert waiting == (None if proposal is None else proposal.number)
        assert proposal is None or proposal.plan in store.plans
        force = store.read(FORCE)
        if force is not None:
            assert force.plan in store.plans
            kept = [each for each in store.accepted if each.decision.version > force.version - 2]
            assert {each.decision.plan for each in kept} <= store.plans.keys() | self.lost


def run_schedule(seed: int, steps: int = STEPS) -> Counter[str]:
    """Play one seeded schedule; raises an AssertionError that says how to play it again."""
    before = terms._BUDGET_S, terms._PATIENCE
    terms._BUDGET_S, terms._PATIENCE = 0.005, math.inf  # so that the clock never decides
    try:
        schedule = Schedule(seed)
        for _ in range(steps):
            schedule.step()
        schedule.settle()
        schedule.check()
    except Exception as error:
        again = f"run_schedule({seed}, steps={steps})"
        raise AssertionError(f"{error!r}; again: {again}") from error
    finally:
        terms._BUDGET_S, terms._PATIENCE = before
    return schedule.tally
