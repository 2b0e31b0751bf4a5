"""Acts out a trading floor whose interests shift, with a process for each desk and each exchange.

A desk is a receiver that subscribes and unsubscribes as the scenes say, and ends while it is away
from the floor. An exchange is a publisher whose symbols trade at the rates of the scene.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from distributary.machines.real import own_tasks
from distributary.machines.real.log_lines import Log, LogLine
from distributary.system.parts import Part
from distributary.workloads import FloorScene

__all__ = ["Floor"]

_TICK = 0.05  # seconds between two moments at which an exchange publishes
_LONGEST_GAP = 1.0  # seconds; what was missed before that is not made up for
_LOOK_AGAIN = 1.0  # seconds, for a desk that was just being started again

MakePart = Callable[[str, Callable[[], Sequence[str]]], Part]


class Floor:
    """Plays scenes until cancelled.

    `make_desk` and `make_exchange` make a part from its name and from a function that gives its
    flows, each time the part starts.
    """

    def __init__(
        self,
        scenes: Iterator[FloorScene],
        make_desk: MakePart,
        make_exchange: MakePart,
        rng: np.random.Generator,
        tell: Log,
    ) -> None:
        self._scenes, self._rng, self._tell = scenes, rng, tell
        self._scene = next(scenes)
        self._changed = asyncio.Event()
        self._make_desk, self._make_exchange = make_desk, make_exchange

    async def play(self) -> None:
        """Start everybody, and shift from scene to scene."""
        exchanges = self._scene.exchanges
        desks = sorted(self._scene.wanted)
        async with own_tasks() as start:
            for name, random in zip(exchanges, self._rng.spawn(len(exchanges)), strict=True):
                start(_Exchange(self, name, random).run(self._make_exchange))
            for name in desks:
                start(_Desk(self, name).run(self._make_desk))
            await self._shift()

    @property
    def scene(self) -> FloorScene:
        """The scene that is played."""
        return self._scene

    async def wait_for_change(self, within: float | None = None) -> None:
        """Wait for the next scene, at most so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _shift(self) -> None:
        began = asyncio.get_running_loop().time()
        for scene in self._scenes:
            await asyncio.sleep(began + scene.at - asyncio.get_running_loop().time())
            says = _describe_change(self._scene, scene)
            self._scene = scene
            self._changed.set()
            self._changed = asyncio.Event()
            self._tell(LogLine("info", "floor", says))


class _Desk:
    def __init__(self, floor: Floor, name: str) -> None:
        self._floor, self._name = floor, name
        self._told: frozenset[str] = frozenset()  # to the process that runs

    async def run(self, make: MakePart) -> None:
        """Sit at the desk while the scenes say so."""
        part = make(self._name, self._list_wanted)
        while True:
            while self._name not in self._floor.scene.wanted:
                await self._floor.wait_for_change()
            async with own_tasks() as start:
                start(part.run())
                await self._follow(part)

    def _list_wanted(self) -> list[str]:
        self._told = self._floor.scene.wanted.get(self._name, frozenset())
        return sorted(self._told)

    async def _follow(self, part: Part) -> None:
        """Say what is wanted and what no longer is, until the desk leaves."""
        while (wanted := self._floor.scene.wanted.get(self._name)) is not None:
            lines = [f"+{flow}\n" for flow in sorted(wanted - self._told)]
            lines += [f"-{flow}\n" for flow in sorted(self._told - wanted)]
            if lines and await part.send("".join(lines).encode()):
                self._told = wanted
            # One that is just being started again may have begun with the former scene.
            await self._floor.wait_for_change(_LOOK_AGAIN)


class _Exchange:
    def __init__(self, floor: Floor, name: str, rng: np.random.Generator) -> None:
        self._floor, self._name, self._rng = floor, name, rng
        self._flows = floor.scene.exchanges[name]
        self._cents = rng.integers(2_000, 40_000, len(self._flows))  # what each symbol costs

    async def run(self, make: MakePart) -> None:
        """Publish quotes at the rates of the scene."""
        part = make(self._name, lambda: self._flows)
        async with own_tasks() as start:
            start(part.run())
            await self._trade(part)

    async def _trade(self, part: Part) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(_TICK)
            now = loop.time()
            await part.send(self._quote(min(now - last, _LONGEST_GAP)))
            last = now

    def _quote(self, seconds: float) -> bytes:
        """The quotes of some seconds, as lines."""
        rates = self._floor.scene.rates
        ours = np.isin(rates.flows, self._flows)
        counts = self._rng.poisson(rates.rate[ours] * seconds)
        lines = []
        for number in self._rng.permutation(np.repeat(np.arange(len(counts)), counts)):
            step = int(self._rng.integers(-5, 6))
            self._cents[number] = max(1, self._cents[number] + step)
            lines.append(f"{self._flows[number]}\t{self._cents[number] / 100:.2f}\n")
        return "".join(lines).encode()


def _describe_change(before: FloorScene, after: FloorScene) -> str:
    """What a new scene brings, in words."""
    came = sorted(after.wanted.keys() - before.wanted.keys())
    left = sorted(before.wanted.keys() - after.wanted.keys())
    both = before.wanted.keys() & after.wanted.keys()
    turned = sum(before.wanted[desk] != after.wanted[desk] for desk in both)
    desks = "1 desk follows" if turned == 1 else f"{turned} desks follow"
    says = [f"a theme ends and another comes up; {desks} other symbols"]
    if came:
        says.append(f"{' and '.join(came)} came")
    if left:
        says.append(f"{' and '.join(left)} left")
    return "; ".join(says)
