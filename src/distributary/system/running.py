"""Runs a system on one machine: control plane, dashboard, and a trading floor if one is wanted.

Parts are processes. The control plane is the first to be started and the last to be ended, so that
members leave while it is still there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distributary.errors import StateError
from distributary.extras import require
from distributary.machines.nats.server_file import write_private
from distributary.machines.real import AddressError, own_tasks, take_lock
from distributary.machines.real.log_lines import Log, LogLine
from distributary.system import commands
from distributary.system.floor import Floor
from distributary.system.part_log import PartLog
from distributary.system.parts import Part
from distributary.system.settings import LOCK, SystemSettings
from distributary.system.watch import OnStatus, watch_status
from distributary.workloads import ShiftingFloor, shifting_floor

__all__ = ["RunningSystem", "run_system"]

_SERVING = "serving"  # what the control plane says when it serves
_ADDRESS = re.compile(r"https?://[^\s/]+/")
_CONTROL_ENDS_WITHIN = 20.0  # seconds: Spark and NATS end before it


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """Where the pages are, and where they are for whoever may act."""

    page: str
    operator_page: str


async def run_system(
    settings: SystemSettings,
    *,
    on_ready: Callable[[RunningSystem], None],
    tell: Log,
    on_status: OnStatus | None = None,
) -> None:
    """Run everything until cancelled, or until a part cannot go on (`PartFailedError`).

    Nothing that it started is left then; a part that is slow to end is killed. `on_ready` is called
    when the pages can be opened, and `tell` for what happens: each line's `what` begins with the
    name of a part. `on_status` gets the control plane's status every second.
    """
    if settings.spark == "embedded":
        require("spark")
    _check_port(settings.port)
    with _hold_folder(settings):
        token = _keep_token(settings)
        system = _System(settings, tell)
        async with own_tasks() as start:
            await _start(start, system.control)
            async with own_tasks() as start:
                await _start(start, system.dashboard)
                on_ready(RunningSystem(system.page, f"{system.page}#token={token}"))
                if on_status is not None:
                    start(watch_status(settings.state, on_status))
                if settings.floor is not None:
                    start(system.play(settings.floor))
                await asyncio.Event().wait()


async def _start(start: Callable[[Any], None], part: Part) -> None:
    """Start a part, and wait until it works."""
    start(part.run())
    await part.ready.wait()


class _System:
    """The parts, and what they say."""

    def __init__(self, settings: SystemSettings, tell: Log) -> None:
        self._settings, self._tell = settings, tell
        self.page = ""
        self.control = self._make_part(
            "control",
            partial(commands.make_control, settings),
            is_ready=self._hear_control,
            end_within=_CONTROL_ENDS_WITHIN,
        )
        self.dashboard = self._make_part(
            "dashboard", partial(commands.make_dashboard, settings), is_ready=self._hear_dashboard
        )

    async def play(self, params: ShiftingFloor) -> None:
        """Play a trading floor, with real publishers and receivers."""
        says = f"{params.desks} desks and {params.exchanges} exchanges take their places"
        self._tell(LogLine("info", "floor", says))
        scenes_rng, trade_rng = np.random.default_rng(self._settings.seed).spawn(2)
        floor = Floor(
            shifting_floor(params, scenes_rng),
            partial(self._make_member, commands.make_desk),
            partial(self._make_member, commands.make_exchange),
            trade_rng,
            self._tell,
        )
        await floor.play()

    def _make_member(
        self,
        make_command: Callable[[SystemSettings, str, Sequence[str]], list[str]],
        name: str,
        list_flows: Callable[[], Sequence[str]],
    ) -> Part:
        return self._make_part(
            name,
            lambda: make_command(self._settings, name, list_flows()),
            is_ready=lambda line: line.startswith(commands.MEMBER_READY),
            drops_results=True,  # messages by the million
            takes_lines=True,
        )

    def _make_part(self, name: str, make_command: Callable[[], Sequence[str]], **how: Any) -> Part:
        def tell_trouble(says: str) -> None:
            self._tell(LogLine("warning", name, says))

        log = PartLog(self._settings.logs / f"{name}.log", time.time, tell_trouble)
        return Part(name, make_command, log, self._tell, **how)

    def _hear_control(self, line: str) -> bool:
        """Pass on what the control plane logs as JSON; returns whether it serves now."""
        try:
            found = json.loads(line)
            what, says, level = found["what"], found.get("says", ""), found["level"]
        except (ValueError, KeyError, TypeError):
            return False
        self._tell(LogLine(level, f"control: {what}", says))
        return bool(what == _SERVING)

    def _hear_dashboard(self, line: str) -> bool:
        """Find the address of the pages, which it says once they are there."""
        found = _ADDRESS.search(line)
        if found:
            self.page = found[0]
        return found is not None


def _check_port(port: int) -> None:
    """Find out before anything is started whether the pages can be served."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"the pages cannot be served there ({(error.strerror or str(error)).lower()})"
            raise AddressError(
                f"127.0.0.1 port {port}", reason, "choose another one with --port"
            ) from None


@contextmanager
def _hold_folder(settings: SystemSettings) -> Iterator[None]:
    lock = take_lock(settings.folder / LOCK)
    try:
        try:
            settings.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise StateError.from_os(settings.logs, error) from error
        yield
    finally:
        os.close(lock)


def _keep_token(settings: SystemSettings) -> str:
    """The operator's token, which stays the same for a folder."""
    path = settings.token_file
    try:
        if not path.exists():
            write_private(path, f"{secrets.token_urlsafe(24)}\n".encode())
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise StateError(str(path), f"cannot be used ({error})", "remove it") from None
