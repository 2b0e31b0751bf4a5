"""A whole system whose processes are killed and suspended: `python -m tests.system.soak SETTINGS`.

It runs in a network namespace of its own, with NATS, two control services, `pipeline stream` on
Spark, publishers and receivers, all as processes. It prints the verdict as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distributary.control.nats.client import ControlClient
from distributary.errors import LiveError
from distributary.machines.nats import NatsOptions
from tests.system.soak.diary import Line, name_diary, read_diary
from tests.system.soak.faults import Fault, draw_faults
from tests.system.soak.members import REST, run_publisher, run_receiver
from tests.system.soak.operator import Operator
from tests.system.soak.processes import Command, Member, Process, find_child, make_forks
from tests.system.soak.runs import PublisherRun, ReceiverRun
from tests.system.soak.verdict import Verdict, judge
from tests.system.soak.waste import Waste, compare_waste
from tests.system.soak.world import World

URL: Final = "nats://127.0.0.1:4222"
GROUPS, SESSIONS = 4, 8
SETTLED: Final = 5.0  # seconds over which waste is measured
CLOSE: Final = 1.1  # times the waste of a fresh plan
_IN_A_ROW: Final = 2  # measurements that must be so close, since one may be by chance
_LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class SoakSettings:
    """How long faults come, how often, and how long it may take until all is well again."""

    folder: str
    seed: int
    seconds: float
    every: float
    patience: float = 900.0


class Soak:
    """The processes of a soak, and what becomes of them."""

    def __init__(self, settings: SoakSettings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._world = World(settings.seed)
        self._troubles: list[str] = []
        self._faults: Counter[str] = Counter()
        self._phases: dict[str, float] = {}
        self._ratios: list[float] = []  # of waste, one measurement after the other
        self._began = time.monotonic()
        self._operator = Operator(settings.seed, self._world.flows, GROUPS, URL)
        self._nats = self._make_nats()
        self._controls = [self._make_control(name) for name in ("c0", "c1")]
        forks = make_forks("tests.system.soak.preloaded")

        def make(name: str, work: Callable[..., None]) -> Member:
            return Member(
                name, forks, work, lambda run: (self._world, name, run, settings.folder, URL)
            )

        self._publishers = [make(name, run_publisher) for name in self._world.publisher_names]
        self._receivers = [make(name, run_receiver) for name in self._world.receiver_names]

    async def run(self) -> dict[str, Any]:
        """Run it, and judge."""
        everybody = [self._nats, *self._controls, *self._publishers, *self._receivers]
        try:
            for process in everybody:
                process.start()
            await self._until("flowing", self._is_flowing)
            await self._blow()
            blown_at = time.time()
            self._note("blown")
            waste = await self._settle()
            await asyncio.gather(*(each.end() for each in self._publishers))
            await self._until("judged", lambda: self._judge().is_clean)
            await asyncio.gather(*(each.end() for each in self._receivers))
            verdict = self._judge()
            self._check()
            changes = await self._list_changes(blown_at)
        finally:
            for process in (*self._receivers, *self._publishers, *self._controls, self._nats):
                await process.end(signal.SIGKILL if process is self._nats else signal.SIGTERM)
        self._check()
        return self._describe(verdict, waste, changes)

    # --- processes --------------------------------------------------------------------------------

    def _make_nats(self) -> Command:
        config = self._folder / "nats.conf"
        store = json.dumps(str(self._folder / "jetstream"))
        config.write_text(f'listen: "127.0.0.1:4222"\njetstream {{ store_dir: {store} }}\n')
        beside = Path(sys.executable).with_name("nats-server")
        binary = str(beside) if beside.exists() else shutil.which("nats-server")
        assert binary is not None
        return Command("nats", [binary, "-c", str(config)], self._folder)

    def _make_control(self, name: str) -> Command:
        words = [
            *("control", "serve", "--state", str(self._folder / name), "--nats", URL, "--log-json"),
            *("--groups", str(GROUPS), "--sessions", str(SESSIONS), "--ttl", "0"),
            # 2 % of so few flows is a single one, and one at a time they end at 1.4 times the waste
            # of a fresh plan; a quarter at a time at 1.1.
            *("--drift", "2%", "--max-moves", str(len(self._world.flows))),
            *("--rate-window", "10s", "--trigger", "2s", "--master", "local[1]"),
        ]
        return Command(name, [sys.executable, "-m", "distributary", *words], self._folder)

    async def _find_serving(self) -> tuple[Command, Command]:
        """The control service that serves, and the one that stands by, as far as they say."""
        with suppress(LiveError):
            async with ControlClient(NatsOptions(URL), within=1.0) as client:
                serves = (await client.status()).service.where
                for at, control in enumerate(self._controls):
                    if serves.startswith(f"process {control.pid} "):
                        return control, self._controls[1 - at]
        return self._controls[0], self._controls[1]

    # --- faults -----------------------------------------------------------------------------------

    async def _blow(self) -> None:
        """Let faults happen, each in a task of its own, until the last one is over."""
        began, seconds = time.monotonic(), self._settings.seconds
        faults = draw_faults(self._settings.seed, seconds, self._settings.every)
        async with asyncio.TaskGroup() as group:
            operating = group.create_task(self._operator.run())
            for fault in faults:
                await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
                group.create_task(self._fail(fault))
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
            operating.cancel()

    async def _fail(self, fault: Fault) -> None:
        what = "killed" if fault.kills else "suspended"
        target = await self._choose(fault)
        if target is None:
            self._faults[f"no {fault.kind}"] += 1
            return
        self._say(f"{target.name} ({fault.kind}) is {what}")
        if await (target.kill if fault.kills else target.suspend)(fault.pause):
            self._faults[f"{fault.kind} {what}"] += 1
        else:
            self._faults[f"{fault.kind} was not running"] += 1

    async def _choose(self, fault: Fault) -> Process | _Stream | None:
        if fault.kind == "nats":
            return self._nats
        if fault.kind == "publisher":
            return self._publishers[fault.which % len(self._publishers)]
        if fault.kind == "receiver":
            return self._receivers[fault.which % len(self._receivers)]
        serving, standing_by = await self._find_serving()
        if fault.kind == "stream":
            found = [find_child(each.pid, "pipeline", "stream") for each in self._controls]
            pids = [pid for pid in found if pid is not None]
            return _Stream(pids[0]) if pids else None
        return serving if fault.kind == "control" else standing_by

    # --- what there is to see ---------------------------------------------------------------------

    def _read(self, member: Process, run: int | None = None) -> list[Line]:
        return list(
            read_diary(name_diary(self._folder, member.name, member.run if run is None else run))
        )

    def _read_log(self, command: Process) -> list[str]:
        log = self._folder / f"{command.name}.{command.run}.log"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def _read_all(self, member: Process) -> list[list[Line]]:
        runs = (self._read(member, run) for run in range(1, member.run + 1))
        return [lines for lines in runs if lines]

    def _judge(self) -> Verdict:
        return judge(
            [PublisherRun(lines) for each in self._publishers for lines in self._read_all(each)],
            [ReceiverRun(lines) for each in self._receivers for lines in self._read_all(each)],
        )

    def _is_flowing(self) -> bool:
        """Whether every receiver has got something."""
        return all("got" in {line[0] for line in self._read(each)} for each in self._receivers)

    def _is_served(self) -> bool:
        """Whether everything is carried that every receiver wants."""
        return all(_is_served(self._read(each)) for each in self._receivers)

    async def _settle(self) -> Waste:
        """Shift no more, and wait until receivers throw away little more than by a fresh plan."""
        (self._folder / REST).touch()
        async with asyncio.timeout(self._settings.patience):
            await self._operator.release_all()
        await self._until("served", self._is_served)
        deadline = time.monotonic() + self._settings.patience
        found = [await self._measure() for _ in range(_IN_A_ROW)]
        while time.monotonic() < deadline and any(w.ratio > CLOSE for w in found[-_IN_A_ROW:]):
            found.append(await self._measure())
        self._note("settled")
        self._ratios = [round(waste.ratio, 3) for waste in found]
        return max(found[-_IN_A_ROW:], key=lambda waste: waste.ratio)

    async def _measure(self) -> Waste:
        """Compare a span of time in which every receiver has written what it counted."""
        begin = time.monotonic()
        await asyncio.sleep(SETTLED)
        end = time.monotonic()
        await self._until(
            "measured", lambda: all(self._read(each)[-1][1] > end for each in self._receivers)
        )
        receivers = {each.name: self._read(each) for each in self._receivers}
        interest = {name: ReceiverRun(lines).wanted for name, lines in receivers.items()}
        publishers = [self._read(each) for each in self._publishers]
        size = GROUPS, SESSIONS
        return await asyncio.to_thread(
            compare_waste, receivers, publishers, interest, size, (begin, time.monotonic())
        )

    def _check(self) -> None:
        """Raise an error if a process has ended by itself."""
        for process in (self._nats, *self._controls, *self._publishers, *self._receivers):
            if process.failed:
                last = self._read(process)[-1:] or self._read_log(process)[-1:]
                raise RuntimeError(f"{process.name}.{process.run} has ended by itself: {last}")

    async def _list_changes(self, blown_at: float) -> Counter[str]:
        """The log of changes by kinds, and how many versions moved flows among the faults."""
        async with ControlClient(NatsOptions(URL), within=30.0) as client:
            entries = await client.changes(10_000)
        found = Counter(f"{entry.what} {entry.kind or ''}".strip() for entry in entries)
        moving = (each for each in entries if each.what == "in force" and each.moves)
        found["in force among faults, with moves"] = sum(each.at < blown_at for each in moving)
        return found

    async def _until(self, phase: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._settings.patience
        while not await asyncio.to_thread(condition):
            self._check()
            if time.monotonic() > deadline:
                self._troubles.append(f"not {phase} within {self._settings.patience:g} s")
                return
            await asyncio.sleep(_LOOK_EVERY)
        self._note(phase)

    def _note(self, phase: str) -> None:
        self._phases[phase] = round(time.monotonic() - self._began, 1)
        self._say(phase)

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s: {what}", file=sys.stderr, flush=True)

    def _describe(self, verdict: Verdict, waste: Waste, changes: Counter[str]) -> dict[str, Any]:
        reports = Counter(
            line[0] if line[0] != "report" else line[2].partition("(")[0]
            for each in self._receivers
            for lines in self._read_all(each)
            for line in lines
        )
        return {
            "seed": self._settings.seed,
            "seconds": self._settings.seconds,
            "phases": self._phases,
            "faults": self._faults,
            "verdict": verdict,
            "waste": {**waste.document(), "ratios": self._ratios},
            "changes": changes,
            "reports": reports,
            "runs": {each.name: each.run for each in (*self._publishers, *self._receivers)},
            "troubles": self._troubles,
        }


class _Stream:
    """The process of the stream, which its control service starts again."""

    name = "stream"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def kill(self, pause: float) -> bool:
        """Kill it; whether it was running."""
        return self._send(signal.SIGKILL)

    async def suspend(self, seconds: float) -> bool:
        """Stop it, and let it go on later; whether it was running."""
        is_running = self._send(signal.SIGSTOP)
        await asyncio.sleep(seconds if is_running else 0.0)
        self._send(signal.SIGCONT)
        return is_running

    def _send(self, number: signal.Signals) -> bool:
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return False
        return True


def _is_served(lines: list[Line]) -> bool:
    """Whether everything is carried that a receiver wants, as it says itself."""
    states = [line for line in lines if line[0] == "state"]
    run = ReceiverRun(lines)
    return bool(states) and not states[-1][6] and run.is_subscribed
