"""One term of a control service: from the lease to its end.

A term begins with what the server has: settings, the version in force, all interest and the last
reports. Then it hands the machine what members and operators send, and performs its actions.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import nats.errors
from nats.aio.client import Client

from distributary.control import messages as m
from distributary.control.alarms import SERVER_AWAY
from distributary.control.errors import KeptSettingsError
from distributary.control.machine import ControlMachine
from distributary.control.nats.answering import Answering
from distributary.control.nats.intake import Intake
from distributary.control.nats.kept_settings import compare_settings, keep_choices
from distributary.control.nats.layout import Layout
from distributary.control.nats.stand_bys import count_stand_bys
from distributary.control.nats.store import ControlStore
from distributary.control.nats.stream_files import StreamFiles
from distributary.control.nats.stream_process import SparkChoice, StreamProcess
from distributary.control.requests import OperatorRequest
from distributary.control.settings import ControlSettings
from distributary.control.status import Alarm, ControlStatus
from distributary.control.terms import read_terms
from distributary.delivery.addresses import GroupAddresses
from distributary.delivery.routes import group_name
from distributary.errors import InputError
from distributary.machines.nats.lease import KeptLease, count_seconds
from distributary.machines.real import Driver
from distributary.machines.real.clock import make_clock
from distributary.machines.real.driver import Answer
from distributary.machines.real.log_lines import Log, LogLine
from distributary.machines.real.tasks import own_tasks

__all__ = ["Term"]

_Message = tuple[str, m.ControlMessage]
# What the machine may have to search a plan for, which takes seconds where limits are tight.
_PLANNED_FOR = (m.Proposed, m.PlanFetched, *get_args(OperatorRequest))

_HOUSEKEEPING = 0.5  # seconds between two looks at the lease
_STATUS_EVERY = 1.0  # seconds
_NAMES_FOR = 60.0  # seconds of reports that have the names of all flows
_COUNT_EVERY = 2.0  # seconds between two counts of the services that stand by
_PROBE_EVERY = 2.0  # seconds between two looks whether reports are stored
_UNHELD = 3.0  # seconds without the lease beside a server that is there, before that is an alarm
_ASLEEP = 3.0  # seconds without a turn: this process, or its machine, was suspended
_SHOWN = 60.0  # seconds after somebody was refused
_WRONG_TOKEN = "wrong token"


class Term:
    """Serves until `stop`, or until another service has taken over (`ControlReplacedError`).

    `prove` returns once this service holds the lease, and raises if it never may again. `given`
    are the settings of the command line; what operators changed is kept.
    """

    def __init__(
        self,
        nc: Client,
        lease: KeptLease,
        given: ControlSettings,
        folder: Path,
        *,
        spark: SparkChoice,
        where: str,
        prove: Callable[[int], Awaitable[None]],
        log: Log,
        started: asyncio.Event,
    ) -> None:
        self._nc, self._lease, self._given, self._where = nc, lease, given, where
        self._prove, self._log, self._started = prove, log, started
        self._layout = Layout(given.prefix)
        self._spark = spark
        self._store = ControlStore(nc, self._layout, may_write=prove, trouble=self._note_trouble)
        self._files = StreamFiles(
            folder / "stream",
            counts_every=max(1.0, given.trigger / 2),
            trouble=self._note_trouble,
        )
        self._force: m.Decision | None = None
        self._early: list[m.ControlMessage] = []  # before there is a machine
        self._status: ControlStatus | None = None  # of about a second ago
        self._troubles: dict[tuple[str, str], Alarm] = {}  # of our own, such as a full disk
        self._alarms: set[tuple[str, str]] = set()  # that were logged
        self._refused: deque[float] = deque()  # when somebody was, by the monotonic clock
        self._is_stopping = False
        self._driver: Driver[_Message] | None = None
        self._machine: ControlMachine
        self._stream: StreamProcess

    @property
    def latest(self) -> ControlStatus | None:
        """The status of about a second ago, or of before the machine was held up, with its cause.

        None before there is one.
        """
        status = self._status
        if status is None or not self._troubles:
            return status
        known = {(alarm.what, alarm.who): alarm for alarm in status.alarms}
        ours = [  # as they are now
            msgspec.structs.replace(alarm, since=known.pop(key, alarm).since)
            for key, alarm in self._troubles.items()
        ]
        return msgspec.structs.replace(status, alarms=[*ours, *known.values()])

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._is_stopping = True
        if self._driver is not None:
            self._driver.stop()

    def note_connection(self, *, is_connected: bool) -> None:
        """Note that the connection was lost, or is there again.

        The machine hears of it once the lease is proven, which takes a connection: until then, the
        alarm is ours.
        """
        self._troubles.pop((SERVER_AWAY.what, SERVER_AWAY.who), None)
        if not is_connected:
            what, who, says = SERVER_AWAY.what, SERVER_AWAY.who, SERVER_AWAY.says
            self._troubles[what, who] = Alarm(what, who, time.time(), says)
        self._tell(m.ConnectionChanged(is_connected))

    def note_refused(self, who: str) -> None:
        """Note that the server refused somebody, in words, for a wrong name or token."""
        self._refused.append(time.monotonic())
        self._drop_old_refusals()
        number = len(self._refused)
        times = "once" if number == 1 else f"{number:,} times"
        says = (
            f"the server refused members or operators for a wrong name or token, {times} in the "
            f"last minute, the last one {who}; look at the token file of whoever does not get in"
        )
        self._note_trouble(_WRONG_TOKEN, "", says)

    def _drop_old_refusals(self) -> None:
        while self._refused and time.monotonic() - self._refused[0] > _SHOWN:
            self._refused.popleft()

    async def run(self) -> None:
        """Serve."""
        async with own_tasks() as start:
            start(self._keep_lease())  # reading a large plan takes seconds
            start(self._watch_lease())
            settings = await self._restore()
        self._stream = StreamProcess(
            self._files,
            self._spark,
            settings,
            on_status=lambda status: self._tell(m.StreamChanged(status)),
            on_plan=self._tell,
            log=self._log,
        )
        driver = self._driver = Driver[_Message](
            self._take,
            lambda name, now: asyncio.to_thread(self._machine.on_timer, name, now),
            self._list_performers(),
            clock=make_clock(),
        )
        for message in self._early:
            self._tell(message)
        if self._is_stopping:
            driver.stop()
        try:
            async with driver, AsyncExitStack() as stack:
                driver.start(self._keep_lease())
                driver.start(self._watch_lease())
                await self._take_in(driver)
                driver.call(lambda now: asyncio.to_thread(self._machine.start, now))
                await self._answers.listen(self._nc, stack)
                self._started.set()
                self._log(
                    LogLine("info", "serving", f"as {self._where}", {"version": self._version})
                )
                works = self._look_around(driver), self._count(), self._watch_reports()
                for work in (*works, self._stream.run()):
                    driver.start(work)
                await self._take_turns(driver)
        finally:
            self._driver = None

    @property
    def _version(self) -> int:
        return 0 if self._force is None else self._force.version

    async def _restore(self) -> ControlSettings:
        """Make the machine, with what the server has."""
        await self._store.create()
        kept = await self._store.read_settings()
        settings = keep_choices(self._given, kept)
        for line in compare_settings(self._given, kept):
            self._log(LogLine("warning", "settings", line))
        _check_kept(settings)
        await self._store.write_settings(settings)
        restored = await self._store.restore(self._where)
        self._force = restored.decision
        network = settings.network
        groups = GroupAddresses(network.group_base, network.port, network.pairs, network.source)
        self._machine = await asyncio.to_thread(
            ControlMachine,
            settings,
            restored,
            addresses=lambda group: groups.of(group_name(group)),
        )
        self._answers = Answering(
            self._layout,
            self._put,
            lambda: self.latest,
            self._log,
            may_answer=lambda: self._lease.held,
            is_stuck=lambda: self._store.has_no_lease,
        )
        return settings

    def _take(self, message: _Message, now: float) -> Answer:
        """Hand the machine a message; where it may plan, in a thread: the lease is renewed."""
        sender, given = message
        request = given.request if isinstance(given, m.Ask) else given
        if isinstance(request, _PLANNED_FOR):
            return asyncio.to_thread(self._machine.on_message, sender, given, now)
        return self._machine.on_message(sender, given, now)

    async def _put(self, message: m.ControlMessage) -> None:
        if self._driver is not None:
            await self._driver.put(("", message))

    def _tell(self, message: m.ControlMessage) -> None:
        """Hand the machine something of the host's own."""
        if self._driver is None:
            self._early.append(message)
        else:
            self._driver.call(lambda now: self._take(("", message), now))

    def _note_trouble(self, what: str, who: str, says: str | None) -> None:
        """Raise an alarm, or end it (None); it is seen even while the machine is held up."""
        if says is None:
            self._troubles.pop((what, who), None)
        else:
            self._troubles[what, who] = Alarm(what, who, time.time(), says)
        self._tell(m.HostTrouble(what, who, says))
        self._log_alarms()

    async def _take_in(self, driver: Driver[_Message]) -> None:
        """Hand over all interest, and the reports of the last window, before the machine starts."""
        intake = Intake(self._nc, self._layout, driver, self._note_trouble)
        driver.start(intake.watch_members())
        since = time.time() - max(self._given.rate_window, _NAMES_FOR)
        driver.start(intake.follow_reports(since))
        while not intake.is_complete and await driver.wait():
            await driver.turn()

    # --- turns ------------------------------------------------------------------------------------

    async def _take_turns(self, driver: Driver[_Message]) -> None:
        turned = count_seconds()
        while await driver.wait():
            if not self._lease.held:
                await self._prove(0)
            if count_seconds() - turned > _ASLEEP:
                self._excuse(driver)
            await driver.turn()
            turned = count_seconds()

    def _excuse(self, driver: Driver[_Message]) -> None:
        """Let nobody count as gone for what this process slept through."""
        now = time.time()
        for is_connected in (False, self._nc.is_connected):
            message = m.ConnectionChanged(is_connected)
            actions = self._machine.on_message("", message, now)
            driver.call(partial(_repeat, actions))

    async def _keep_lease(self) -> None:
        """Renew the lease; raises `ControlReplacedError` if another service has it."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            if self._lease.held or self._driver is None:
                await self._lease.announce(self._nc)
            else:
                self._driver.call(lambda now: ())  # a turn begins with proving it

    async def _watch_lease(self) -> None:
        """Raise an alarm while the server is there, and does not let the lease be renewed."""
        unheld = 0  # by turns of this process: it may have been suspended
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            is_held = self._lease.held
            unheld = 0 if is_held or not self._nc.is_connected else unheld + 1
            if is_held:
                self._store.note_lease(is_stored=True)
            elif unheld * _HOUSEKEEPING > _UNHELD:
                self._store.note_lease(is_stored=False)

    async def _watch_reports(self) -> None:
        """Let nobody count as gone while the server stores no reports."""
        were_heard = True
        while True:
            await asyncio.sleep(_PROBE_EVERY)
            are_heard = await self._store.stores_reports()
            if not (are_heard and were_heard):
                self._tell(m.ConnectionChanged(are_heard and self._nc.is_connected))
            were_heard = are_heard

    async def _look_around(self, driver: Driver[_Message]) -> None:
        """Take the status every second, and log which alarms begin and end."""
        while True:
            driver.call(self._take_status)
            await asyncio.sleep(_STATUS_EVERY)
            if self._refused:
                self._drop_old_refusals()
                if not self._refused:
                    self._note_trouble(_WRONG_TOKEN, "", None)

    def _take_status(self, now: float) -> tuple[()]:
        self._status = self._machine.status(now)
        self._log_alarms()
        return ()

    def _log_alarms(self) -> None:
        """Log which alarms began, and which are over."""
        status = self.latest
        found = self._troubles.values() if status is None else status.alarms
        alarms = {(alarm.what, alarm.who): alarm for alarm in found}
        for key, alarm in alarms.items():
            if key not in self._alarms:
                self._log(LogLine("warning", alarm.what, alarm.says, {"who": alarm.who}))
        for what, who in self._alarms - alarms.keys():
            self._log(LogLine("info", f"{what}: over", facts={"who": who}))
        self._alarms = set(alarms)

    async def _count(self) -> None:
        while True:
            with suppress(nats.errors.Error):
                found = await count_stand_bys(self._nc, self._layout)
                self._tell(m.StandBysCounted(found, time.process_time()))
            await asyncio.sleep(_COUNT_EVERY)

    # --- actions ----------------------------------------------------------------------------------

    def _list_performers(self) -> dict[type, Callable[[list[Any]], Awaitable[None] | None]]:
        return {
            m.Decide: self._decide,
            m.KeepProposal: self._keep_proposals,
            m.Audit: self._append,
            m.SettingsChanged: self._change_settings,
            m.SetBase: self._set_base,
            m.WriteInterest: self._write_interest,
            m.WriteCounts: self._write_counts,
            m.ForgetReceiver: self._forget,
            m.ForgetPublisher: self._forget,
            m.FetchPlan: self._fetch,
            m.DropPlan: self._drop,
            m.AnswerRequest: lambda actions: self._answers.answer(actions),
        }

    async def _decide(self, actions: list[m.Decide]) -> None:
        for action in actions:
            await self._store.decide(action.decision, action.plan)
            self._force = decision = action.decision
            facts = msgspec.to_builtins(decision)
            says = f"version {decision.version} ({decision.kind}): {decision.why}"
            self._log(LogLine("info", "in force", says, facts))

    async def _keep_proposals(self, actions: list[m.KeepProposal]) -> None:
        last = actions[-1]
        await self._store.keep_proposal(last.proposal, last.plan)

    async def _append(self, actions: list[m.Audit]) -> None:
        for action in actions:
            entry = action.entry
            await self._store.append(entry)
            if entry.what != "in force":  # was logged already
                says = f"{entry.who}: {entry.why}"
                self._log(LogLine("info", entry.what, says, msgspec.to_builtins(entry)))

    async def _change_settings(self, actions: list[m.SettingsChanged]) -> None:
        settings = actions[-1].settings
        await self._store.write_settings(settings)
        if any(action.restart_stream for action in actions):
            self._stream.restart(settings)

    def _set_base(self, actions: list[m.SetBase]) -> None:
        if self._spark.mode != "off":
            self._files.set_base(actions[-1].plan)

    def _write_interest(self, actions: list[m.WriteInterest]) -> None:
        for action in actions if self._spark.mode != "off" else ():
            self._files.write_interest(action.at, action.rows)

    def _write_counts(self, actions: list[m.WriteCounts]) -> None:
        for action in actions if self._spark.mode != "off" else ():
            self._files.write_counts(action.rows)

    async def _forget(self, actions: list[m.ForgetReceiver | m.ForgetPublisher]) -> None:
        for action in actions:
            if isinstance(action, m.ForgetReceiver):
                await self._store.forget("receiver", action.receiver, action.incarnation)
            else:
                await self._store.forget("publisher", action.publisher, action.incarnation)

    async def _fetch(self, actions: list[m.FetchPlan]) -> None:
        for action in actions:
            self._tell(m.PlanFetched(action.name, await self._store.fetch_plan(action.name)))

    async def _drop(self, actions: list[m.DropPlan]) -> None:
        for action in actions:
            await self._store.drop_plan(action.name)


def _check_kept(settings: ControlSettings) -> None:
    """Refuse to serve with pins or limits of before that do not go with what is given now."""
    try:
        read_terms(settings)
    except (ValueError, InputError) as error:
        raise KeptSettingsError(settings.prefix, str(error)) from None


def _repeat(actions: list[m.ControlAction], now: float) -> list[m.ControlAction]:
    """Actions that a call returned, to be performed."""
    del now
    return actions
