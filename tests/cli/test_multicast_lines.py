"""Lines that a thread writes: in order, bounded, and nothing lost without a word."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cli.multicast_lines import LineWriter


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


class Held:
    """Notes what a writer asks of who makes the lines."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changed = asyncio.Event()

    def writer(self, descriptor: int, most: int, name: str = "there") -> LineWriter:
        def note(word: str) -> Callable[[], None]:
            def noted() -> None:
                self.asked.append(word)
                self.changed.set()

            return noted

        return LineWriter(
            descriptor, name, on_full=note("full"), on_room=note("room"), on_end=note("end"),
            most=most,
        )  # fmt: skip

    async def until(self, word: str) -> None:
        while word not in self.asked:
            self.changed.clear()
            await self.changed.wait()


@settings(deadline=None)
@given(
    chunks=st.lists(st.binary(max_size=9_000), max_size=60),
    most=st.integers(1, 100_000),
    blocking=st.booleans(),
)
def test_all_lines_are_written_in_order(chunks: list[bytes], most: int, blocking: bool) -> None:
    async def scenario() -> None:
        out, into = os.pipe()
        os.set_blocking(into, blocking)
        held = Held()
        writer = held.writer(into, most)
        for chunk in chunks:
            writer.put(chunk)
        total = sum(map(len, chunks))

        def read() -> bytes:
            found = b""
            while len(found) < total:
                found += os.read(out, 65_536)
            return found

        assert await asyncio.to_thread(read) == b"".join(chunks)
        await writer.finish()
        assert writer.waiting == 0
        assert held.asked.count("full") - held.asked.count("room") in (0, 1)
        assert held.asked[:1] in ([], ["full"])
        os.close(out)
        os.close(into)

    run(scenario)


def test_a_reader_that_waits_holds_back_who_makes_the_lines_until_half_is_read() -> None:
    async def scenario() -> None:
        out, into = os.pipe()
        held = Held()
        writer = held.writer(into, 500_000)
        made = 0
        while "full" not in held.asked:
            writer.put(b"x" * 10_000)
            made += 10_000
        assert made >= 500_000
        assert "room" not in held.asked
        found = 0
        while "room" not in held.asked:
            found += len(await asyncio.to_thread(os.read, out, 65_536))
            await asyncio.sleep(0)
        assert writer.waiting <= 250_000
        while found < made:
            found += len(await asyncio.to_thread(os.read, out, 65_536))
        await writer.finish()
        assert held.asked == ["full", "room"]
        os.close(out)
        os.close(into)

    run(scenario)


def test_a_pipe_that_is_closed_ends_the_writing() -> None:
    async def scenario() -> None:
        out, into = os.pipe()
        held = Held()
        writer = held.writer(into, 1_000)
        os.close(out)
        writer.put(b"line\n")
        await held.until("end")
        writer.put(b"another\n")
        await writer.finish()
        assert writer.failure is None
        os.close(into)

    run(scenario)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_a_failure_that_names_the_place() -> None:
    async def scenario() -> None:
        held = Held()
        with open("/dev/full", "wb", buffering=0) as file:
            writer = held.writer(file.fileno(), 1_000, "/dev/full")
            writer.put(b"line\n")
            await held.until("end")
            await writer.finish()
        assert "/dev/full" in str(writer.failure)
        assert "No space left" in str(writer.failure)

    run(scenario)
