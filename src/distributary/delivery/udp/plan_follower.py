"""Keeps a receiver's plans and interest as they are in their folder and table."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from distributary.delivery import MulticastAction, NeedPlan, ReceiverMachine, Report
from distributary.delivery.portion_wire import Portion
from distributary.delivery.routes import fingerprint_of, subscribed_groups
from distributary.delivery.udp.interest import read_flows
from distributary.delivery.udp.plan_watch import PlanWatch, stamp_of
from distributary.errors import DistributaryError
from distributary.model import Plan

__all__ = ["PlanFollower"]

_MOST_NEEDS = 16  # plans that are looked for at a time
_TAIL = 10.0  # seconds after a change in which packets from before it may be repaired


@dataclass(slots=True)
class _Tail:
    """What is wanted of a plan alone, after a while in which the flows of the last one come too."""

    fingerprint: int
    portion: Portion
    version: int  # before the plan took effect
    since: float | None = None  # when it did


class PlanFollower:
    """Watches the folder of plans, and the table of interest, as far as there are any.

    What cannot be read goes to `on_fault`, and a plan of the sender that the folder does not have
    to `on_report`, once.
    """

    def __init__(
        self,
        machine: ReceiverMachine,
        folder: str | os.PathLike[str] | None,
        interest: os.PathLike[str] | None,
        *,
        every: float,
        check: Callable[[Plan], None],
        perform: Callable[[list[MulticastAction]], None],
        want: Callable[[tuple[str, ...]], None],
        choose: Callable[[Plan], Iterable[str]] | None = None,
        on_report: Callable[[Report], None],
        on_fault: Callable[[DistributaryError], None],
    ) -> None:
        """`check` raises where a plan cannot be used; `perform` performs the machine's actions.

        `want` takes the flows that the table has for the receiver, whenever it has changed.
        `choose` says which flows of a plan are wanted, instead of all that it brings; it is called
        in a thread for plans in the folder, and again where it raises an error.
        """
        self._machine = machine
        self._interest = interest
        self._interest_stamp = None if interest is None else stamp_of(interest)
        self._every = every
        self._check = check
        self._perform = perform
        self._want = want
        self._on_report = on_report
        self._on_fault = on_fault
        self._needs: dict[int, NeedPlan] = {}  # plans to look for, by fingerprint
        self._reported_needs: set[int] = set()
        self._choose = choose
        self._wanted: tuple[str, ...] = ()  # chosen of the last plan
        self._tail: _Tail | None = None
        self._chosen: dict[int, tuple[str, ...]] = {}  # of a plan that is about to be learnt
        self._watch: PlanWatch | None = None
        if folder is not None:
            self._watch = PlanWatch(folder, every, on_fault, self._prepare)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run while the receiver is open."""
        found = []
        if self._watch is not None:
            found.append(self._follow_folder(self._watch))
        if self._interest is not None:
            found.append(self._follow_interest(self._interest))
        return found

    def learn_plan(self, plan: Plan) -> None:
        """Take a plan, before or after the sender announces it."""
        self._check(plan)
        if self._choose is None:
            self._perform(self._machine.learn_plan(plan, time.monotonic()))
            return
        fingerprint = fingerprint_of(plan)
        if fingerprint not in self._chosen:
            self._prepare(plan)
        chosen = self._chosen.pop(fingerprint)
        exact = Portion(chosen, subscribed_groups(plan, self._machine.name))
        portion = exact._replace(flows=tuple(sorted({*chosen, *self._wanted})))
        self._wanted = chosen
        self._tail = _Tail(fingerprint, exact, self._machine.version)
        self._perform(self._machine.learn_portion(fingerprint, portion, time.monotonic()))

    def _leave_flows(self, now: float) -> None:
        """Leave flows that were chosen of the previous plan, once their last packets are known."""
        tail = self._tail
        if tail is None or self._machine.version == tail.version:
            return
        if tail.since is None:
            tail.since = now
        elif now >= tail.since + _TAIL:
            self._tail = None
            self._perform(self._machine.learn_portion(tail.fingerprint, tail.portion, now))

    def look_now(self) -> None:
        """Look into the folder now."""
        if self._watch is not None:
            self._watch.look_now()

    def _prepare(self, plan: Plan) -> None:
        if self._choose is not None:
            self._chosen = {fingerprint_of(plan): tuple(self._choose(plan))}

    def look_for(self, need: NeedPlan) -> None:
        """Look for a plan in the folder; report once if it is not there."""
        if len(self._needs) < _MOST_NEEDS:
            self._needs[need.fingerprint] = need
        if self._watch is not None:
            self._watch.look_now()
        else:
            self._report_needs()

    def _report_needs(self) -> None:
        """Report plans of the sender that the receiver still lacks."""
        needs, self._needs = self._needs, {}
        unknown = {found for found in needs if not self._machine.knows(found)}
        for fingerprint in unknown - self._reported_needs:
            self._on_report(needs[fingerprint])
        if needs:
            self._reported_needs = unknown

    async def _follow_folder(self, watch: PlanWatch) -> None:
        while True:
            await watch.wait()
            try:
                plan = await watch.look()
                if plan is not None:
                    await self._read_interest()
                    self.learn_plan(plan)
            except DistributaryError as error:
                self._on_fault(error)
            self._leave_flows(time.monotonic())
            self._report_needs()

    async def _follow_interest(self, path: os.PathLike[str]) -> None:
        seen = self._interest_stamp
        while True:
            await asyncio.sleep(self._every)
            stamp = stamp_of(path)
            if stamp is not None and stamp != seen:
                seen = stamp
                await self._read_interest()

    async def _read_interest(self) -> None:
        """Read the table of interest again, since it or the plan made from it has changed."""
        if self._interest is None:
            return
        try:
            wanted = await asyncio.to_thread(read_flows, self._interest, self._machine.name)
        except DistributaryError as error:
            self._on_fault(error)
        else:
            self._want(wanted)
