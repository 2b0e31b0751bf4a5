"""What `up` starts, keeps running and ends, with processes that only pretend."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from distributary.errors import StateError
from distributary.machines.real import AddressError, take_lock
from distributary.machines.real.log_lines import LogLine
from distributary.system import LOCK, PartFailedError, RunningSystem, SystemSettings, run_system
from distributary.workloads import ShiftingFloor
from tests.system.up_with_fakes import make_settings

PATIENCE = 240.0  # seconds that nothing here takes, on however slow a machine


@dataclass
class Seen:
    """What a system has said, and what its processes wrote."""

    folder: Path
    lines: list[LogLine] = field(default_factory=list)
    ready: list[RunningSystem] = field(default_factory=list)

    def diary(self) -> list[tuple[str, str, int]]:
        path = self.folder / "diary"
        if not path.exists():
            return []
        entries = [line.split() for line in path.read_text().splitlines()]
        return [(name, what, int(pid)) for name, what, pid in entries]

    def started(self, name: str) -> list[int]:
        return [pid for who, what, pid in self.diary() if (who, what) == (name, "started")]

    def heard(self, name: str) -> tuple[list[str], list[str]]:
        """The flows that a member began with, the last time, and the lines that it got since."""
        lines = (self.folder / f"{name}.lines").read_text().splitlines()
        at = max(number for number, line in enumerate(lines) if line.startswith("["))
        return json.loads(lines[at]), lines[at + 1 :]

    def wanted(self, name: str) -> set[str]:
        flows, lines = self.heard(name)
        wanted = set(flows)
        for line in lines:
            (wanted.add if line[0] == "+" else wanted.discard)(line[1:])
        return wanted

    def alive(self) -> list[str]:
        return [name for name, what, pid in self.diary() if what == "started" and is_alive(pid)]

    async def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            await asyncio.sleep(0.01)

    async def until_said(self, text: str) -> None:
        await self.until(lambda: any(text in line.as_text() for line in self.lines))

    async def until_ready(self) -> None:
        await self.until(lambda: bool(self.ready))


def begin(settings: SystemSettings, seen: Seen) -> asyncio.Future[None]:
    """A system that runs until it fails or is cancelled."""
    return asyncio.ensure_future(
        run_system(settings, on_ready=seen.ready.append, tell=seen.lines.append)
    )


@asynccontextmanager
async def running(settings: SystemSettings) -> AsyncIterator[Seen]:
    """A system that runs until the block ends; then none of its processes is left."""
    seen = Seen(settings.folder)
    work = begin(settings, seen)
    try:
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.ensure_future(seen.until_ready())
            await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if work.done():
                work.result()
            yield seen
    finally:
        work.cancel()
        await asyncio.wait((work,))
        assert not seen.alive()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(run())


# --- starting and ending --------------------------------------------------------------------------


def test_the_control_plane_starts_first_and_ends_last(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(make_settings(tmp_path, desks=2)) as seen:
            assert [name for name, _, _ in seen.diary()][:2] == ["control", "dashboard"]
            await seen.until(lambda: len(seen.diary()) == 6)
            page = seen.ready[0].page
            assert page.startswith("http://127.0.0.1:")
            token = (tmp_path / "operator-token").read_text().strip()
            assert seen.ready[0].operator_page == f"{page}#token={token}"
            assert len(token) >= 32
        ended = [name for name, what, _ in seen.diary() if what == "ended"]
        assert set(ended[:-1]) == {"desk-1", "desk-2", "x1", "x2", "dashboard"}
        assert ended[-1] == "control"

    play(work)


def test_the_token_is_for_its_owner_alone_and_stays_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        pages = []
        for _ in range(2):
            async with running(make_settings(tmp_path)) as seen:
                pages.append(seen.ready[0].operator_page.partition("#")[2])
        assert pages[0] == pages[1]
        assert stat.S_IMODE((tmp_path / "operator-token").stat().st_mode) == 0o600

    play(work)


# --- what goes wrong at the start -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["control", "dashboard", "desk-1", "x2"])
def test_a_part_that_fails_at_once_ends_everything_with_its_own_words(
    tmp_path: Path, name: str
) -> None:
    async def work() -> None:
        (tmp_path / f"{name}.does").write_text("fail")
        seen = Seen(tmp_path)
        says = f"^{name} exited with 1: {name} does not like it here; go elsewhere$"
        with pytest.raises(PartFailedError, match=says):
            await begin(make_settings(tmp_path, desks=1), seen)
        assert not seen.alive()

    play(work)


def test_a_port_that_is_taken_is_known_before_anything_is_started(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            settings = make_settings(tmp_path, port=other.getsockname()[1])
            with pytest.raises(AddressError, match="choose another one with --port"):
                await run_system(settings, on_ready=print, tell=print)
        assert list(tmp_path.iterdir()) == []

    play(work)


def test_a_folder_that_is_none_or_is_in_use_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "file").touch()
        settings = make_settings(tmp_path / "file")
        with pytest.raises(StateError, match=r"file: cannot be"):
            await run_system(settings, on_ready=print, tell=print)
        lock = take_lock(tmp_path / LOCK)
        with pytest.raises(StateError, match="another process uses this folder"):
            await run_system(make_settings(tmp_path), on_ready=print, tell=print)
        os.close(lock)

    play(work)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        settings = replace(make_settings(tmp_path), program=("/no/such/program",))
        with pytest.raises(PartFailedError, match=r"^control cannot be started: no such file"):
            await run_system(settings, on_ready=print, tell=print)

    play(work)


# --- what goes wrong later ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["control", "dashboard", "desk-1"])
def test_a_part_that_is_killed_is_started_again(tmp_path: Path, name: str) -> None:
    async def work() -> None:
        async with running(make_settings(tmp_path, desks=1)) as seen:
            await seen.until(lambda: len(seen.diary()) == 5)
            (pid,) = seen.started(name)
            os.kill(pid, signal.SIGKILL)
            await seen.until(lambda: len(seen.started(name)) == 2)
            await seen.until_said(f"{name}: was killed by signal 9 and is started again")
            assert all(len(seen.started(each)) == 1 for each in ("x1", "x2"))
        assert len(seen.ready) == 1

    play(work)


def test_a_part_that_worked_and_fails_again_and_again_ends_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distributary.system.parts._SHORTEST_PAUSE", 0.001)

    async def work() -> None:
        seen = Seen(tmp_path)
        system = begin(make_settings(tmp_path), seen)
        await seen.until_ready()
        (tmp_path / "dashboard.does").write_text("fail")
        os.kill(seen.started("dashboard")[0], signal.SIGKILL)
        with pytest.raises(PartFailedError, match="dashboard exited with 1: dashboard does not"):
            await system
        assert len(seen.started("dashboard")) == 5
        assert not seen.alive()

    play(work)


# --- the floor ------------------------------------------------------------------------------------


def test_desks_say_what_they_want_as_the_scenes_do(tmp_path: Path) -> None:
    floor = ShiftingFloor(desks=3, leaves=0.0, theme_s=2.0)

    async def work() -> None:
        settings = replace(make_settings(tmp_path), floor=floor)
        async with running(settings) as seen:
            names = ("desk-1", "desk-2", "desk-3")
            await seen.until(lambda: all((tmp_path / f"{name}.lines").exists() for name in names))
            began = {name: set(seen.heard(name)[0]) for name in names}
            assert all(len(flows) >= 15 for flows in began.values())
            await seen.until_said("a theme ends and another comes up")
            await seen.until(lambda: any(seen.wanted(name) != began[name] for name in names))

    play(work)


def test_a_desk_that_was_killed_begins_with_what_it_wants_now(tmp_path: Path) -> None:
    floor = ShiftingFloor(desks=1, leaves=0.0, themes=1, themes_by_desk=1, theme_s=1.5)

    async def work() -> None:
        async with running(replace(make_settings(tmp_path), floor=floor)) as seen:
            await seen.until(lambda: (tmp_path / "desk-1.lines").exists())
            first = set(seen.heard("desk-1")[0])
            await seen.until(lambda: seen.wanted("desk-1") != first)
            os.kill(seen.started("desk-1")[0], signal.SIGKILL)
            await seen.until(lambda: len(seen.started("desk-1")) == 2)
            await seen.until(lambda: set(seen.heard("desk-1")[0]) != first)

    play(work)


def test_a_desk_that_leaves_the_floor_ends_and_comes_back(tmp_path: Path) -> None:
    floor = ShiftingFloor(desks=4, leaves=0.6, theme_s=0.4)

    async def work() -> None:
        async with running(replace(make_settings(tmp_path), floor=floor)) as seen:
            names = [f"desk-{number}" for number in range(1, 5)]
            await seen.until(lambda: any(len(seen.started(name)) > 1 for name in names))
            await seen.until_said(" came")
            assert not any("started again" in line.as_text() for line in seen.lines)

    play(work)


def test_exchanges_publish_their_own_symbols_at_the_rates_of_the_scene(tmp_path: Path) -> None:
    floor = ShiftingFloor(desks=1, rate=2_000.0)

    async def work() -> None:
        async with running(replace(make_settings(tmp_path), floor=floor)) as seen:
            await seen.until(lambda: (tmp_path / "x2.lines").exists())
            await seen.until(lambda: len(seen.heard("x2")[1]) > 2_000)
            flows, lines = seen.heard("x2")
            symbols = [line.partition("\t")[0] for line in lines[:-1]]
            assert set(symbols) <= set(flows)
            assert all(float(line.partition("\t")[2]) > 0 for line in lines[:-1])
            # Most trade is in the symbols of themes, which are 48 of 120.
            counts = sorted((symbols.count(flow) for flow in flows), reverse=True)
            assert sum(counts[: len(flows) // 2]) > 0.6 * len(symbols)

    play(work)
