"""What happens in the namespace when events are published by their content."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from distributary.cli.event_intake import EventIntake
from distributary.cli.wanted_events import WantedEvents
from distributary.delivery import Gap, Messages, Missing, NeedPlan, fingerprint_of
from distributary.delivery.content import Event, EventSorter
from distributary.delivery.udp import Loss, Publisher, Receiver
from distributary.delivery.udp.events import publish_events
from distributary.errors import InputError
from distributary.files import FlowFilters
from distributary.model import Attribute, AttributeKind, Plan, Schema
from tests.delivery.content_plans import plan_content, save_content
from tests.delivery.udp.command_scenarios import start_command, until_joined
from tests.delivery.udp.scenarios import LOOPBACK, QUICK

STOCKS = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("volume", AttributeKind.INTEGER),
    )
)
IBM, DEAR, LARGE, RARE = "symbol = 'IBM'", "price > 120", "volume >= 500", "symbol = 'RARE'"
FLOWS = {"c-ibm": [IBM], "c-ibm-dear": [IBM, DEAR], "c-large": [LARGE], "c-silent": [RARE]}
OWNERS = {"ann": [IBM, LARGE], "bob": [DEAR], "cy": [LARGE], "dee": [RARE]}
ADHOC = "symbol = 'IBM' AND price > 125"


def _is_wanted(name: str, event: dict[str, Any]) -> bool:
    symbol, price, volume = event["symbol"], event["price"], event["volume"]
    match name:
        case "ann":
            return bool(symbol == "IBM" or volume >= 500)
        case "bob":
            return bool(price > 120)
        case "cy":
            return bool(volume >= 500)
        case "dee":
            return bool(symbol == "RARE")
    return bool(symbol == "IBM" and price > 125)


async def events_by_content(folder: str) -> None:
    where = Path(folder)
    save_content(FlowFilters.of(STOCKS, FLOWS, OWNERS), where)
    shared = (
        *("--plan", str(where / "plan"), "--content", str(where / "content")),
        *("--interface", "lo"),
    )
    events = [
        {
            "symbol": ("IBM", "GE", "RARE")[at % 3],
            "price": 100 + at % 41,
            "volume": at * 7 % 1_000,
            "id": at,
        }
        for at in range(600)
    ]
    wanted = {
        name: [event for event in events if _is_wanted(name, event)] for name in (*OWNERS, "adhoc")
    }
    receivers = {}
    for name, found in wanted.items():
        asked = ("--filter", ADHOC) if name == "adhoc" else ("--as", name)
        receivers[name] = await start_command(
            "receive", *shared, *asked, "--out", str(where / name), "--count", str(len(found)),
            "--json",
        )  # fmt: skip
    for at in range(len(receivers)):
        await until_joined("239.192.77.0", at + 1)
    sending = await start_command(
        "publish", *shared, "--json", "--max-bad", "1%", stdin=asyncio.subprocess.PIPE
    )
    lines = [json.dumps(event) for event in events]
    told, faults = await sending.communicate("\n".join([*lines, '{"symbol": 7}', ""]).encode())
    assert sending.returncode == 0, faults
    document = json.loads(told)["content"]
    assert document["bad"] == 1
    assert document["events"] == 601
    assert document["several"] > 0
    assert document["exact"] > 0
    assert b"have no flow of their own" in faults
    assert b"stdin, row 601" in faults
    for name, receiver in receivers.items():
        _, faults = await receiver.communicate()
        assert receiver.returncode == 0, faults
        assert b"Traceback" not in faults
        got = [json.loads(line) for line in (where / name).read_text().splitlines()]
        printed = [found for found in got if "report" not in found]
        # In the order of the publisher's numbers: flows of different sessions may overtake.
        printed.sort(key=lambda found: found["number"])
        assert [json.loads(found["payload"]) for found in printed] == wanted[name], name
        for flow in FLOWS:
            sequences = [found["sequence"] for found in got if found.get("flow") == flow]
            assert sequences == sorted(sequences)


NUMBERS = Schema((Attribute("a", AttributeKind.INTEGER), Attribute("b", AttributeKind.INTEGER)))
MEANING: dict[str, Callable[[int, int], bool]] = {
    "a >= 0": lambda a, b: a >= 0,
    "a = 1": lambda a, b: a == 1,
    "a > 5": lambda a, b: a > 5,
    "b < 3": lambda a, b: b < 3,
    "a = 2 OR b = 7": lambda a, b: a == 2 or b == 7,
    "a > 3 AND b > 3": lambda a, b: a > 3 and b > 3,
    "b IN (1, 4, 9)": lambda a, b: b in (1, 4, 9),
}
NAMES = ("ann", "bob", "cy", "dee")


def _draw_content(rng: random.Random) -> FlowFilters:
    """Any owners of some filters, and flows of any sets of them; every event has a filter."""
    texts = ["a >= 0", *rng.sample(sorted(MEANING)[1:], rng.randint(2, 5))]
    owners: dict[str, set[str]] = {name: {rng.choice(texts)} for name in NAMES}
    for text in texts:
        owners[rng.choice(NAMES)].add(text)
    wanted = sorted(set().union(*owners.values()))
    sets = [set(rng.sample(wanted, rng.randint(1, len(wanted)))) for _ in range(rng.randint(1, 5))]
    sets += [{text} for text in wanted if not any(text in found for found in sets)]
    flows = {f"c{'-'.join(sorted(found))}": found for found in sets}
    return FlowFilters.of(NUMBERS, flows, owners)


def _replace_run(table: FlowFilters, where: Path) -> None:
    """Put another run in place of the one that is there, as the pipeline does."""
    aside, new = where.with_name(f"{where.name}-old"), where.with_name(f"{where.name}-new")
    save_content(table, new)
    if where.exists():
        where.rename(aside)
    new.rename(where)
    shutil.rmtree(aside, ignore_errors=True)


async def content_that_changes(folder: str, seed: int) -> None:
    """Each event reaches exactly those whose filters match it by the content that it went by."""
    rng = random.Random(seed)
    tables = [_draw_content(rng) for _ in range(3)]
    plans = [plan_content(table) for table in tables]
    sending, receiving = Path(folder) / "sending", Path(folder) / "receiving"
    for where in (sending, receiving):
        _replace_run(tables[0], where)
    events: list[tuple[int, int]] = []
    got: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in NAMES}
    reports: list[object] = []
    first_of: list[int] = [1]  # the first event by each content

    def take(name: str, wanted: WantedEvents, messages: Messages) -> None:
        for message in messages:
            for found in wanted.find(message):
                number, payload = int(str(found["number"])), json.loads(str(found["payload"]))
                assert number not in got[name], (name, number)
                got[name][number] = payload["a"], payload["b"]

    def draw_chunk() -> list[Event | InputError]:
        drawn = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(40)]
        events.extend(drawn)
        return [Event(0, {"a": a, "b": b}, json.dumps({"a": a, "b": b}).encode()) for a, b in drawn]

    async def feed() -> AsyncIterator[list[Event | InputError]]:
        """Events before, during and after each change."""
        yield draw_chunk()
        for table, plan in zip(tables[1:], plans[1:], strict=True):
            _replace_run(table, receiving)
            fingerprint = fingerprint_of(plan)
            while not all(each._machine.knows(fingerprint) for each in receivers):
                await asyncio.sleep(0.01)
            _replace_run(table, sending)
            while publisher.fingerprint != fingerprint:
                yield draw_chunk()
            yield draw_chunk()

    intake = EventIntake(sending / "content", 0.0)
    find = lambda fingerprint: intake._sorters[fingerprint]  # noqa: E731
    async with AsyncExitStack() as stack:
        receivers, all_wanted = [], []
        for at, name in enumerate(NAMES):
            wanted = WantedEvents(receiving / "content", name, ())
            receiver = Receiver(
                receiving / "plan", wanted.choose, name=name, network=LOOPBACK, watch_every=0.02,
                loss=Loss(0.05, seed=at), on_messages=partial(take, name, wanted),
                on_report=reports.append,
            )  # fmt: skip
            receivers.append(await stack.enter_async_context(receiver))
            all_wanted.append(wanted)
        publisher = await stack.enter_async_context(
            Publisher(
                sending / "plan", LOOPBACK, params=QUICK, watch_every=0.02, prepare=intake.prepare
            )
        )
        await publish_events(publisher, feed(), find, refuse, "events", rate=1_000)
        assert publisher.unplanned == {}
        counts = [sorter.counts.routed.total() for sorter in find_sorters(intake, plans)]
        for count in counts:
            assert count >= 40
            first_of.append(first_of[-1] + count)
        assert first_of[-1] == len(events) + 1
        expected = {
            name: {
                number: event
                for table, begin, end in zip(tables, first_of, first_of[1:], strict=False)
                for number, event in enumerate(events[begin - 1 : end - 1], begin)
                if any(MEANING[table.texts[at]](*event) for at in table.owners[name])
            }
            for name in NAMES
        }
        while any(len(got[name]) < len(expected[name]) for name in NAMES):
            await asyncio.sleep(0.01)
        assert got == expected
    assert not any(each.waiting for each in all_wanted)
    lost = [report for report in reports if isinstance(report, Gap | Missing | NeedPlan)]
    assert not lost, lost


def find_sorters(intake: EventIntake, plans: Sequence[Plan]) -> list[EventSorter]:
    return [intake._sorters[fingerprint_of(plan)] for plan in plans]


def refuse(error: InputError) -> None:
    raise error
