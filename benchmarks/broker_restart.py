"""A content broker starts again: seconds and memory, by the number of subscriptions."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measure import Section
from distributary.content import COVERING_POLICIES
from distributary.content.host import BrokerHost
from distributary.content.messages import Name
from distributary.content.sessions import SessionRecord, hop_of
from distributary.content.store import BrokerStore
from distributary.machines.actions import Save
from distributary.machines.real import Store
from distributary.machines.real.collection import hold_collection
from distributary.model import Filter
from distributary.workloads.quotes import QUOTE_SCHEMA, Quotes, quote_filters

SIZES = (1_000, 10_000, 100_000)
POLICIES = ("merging", "pruning")
LINKS, CLIENTS = 3, 100
_EVENT = {"symbol": "S1", "price": 50.0, "volume": 100, "venue": "ARCA"}


def broker_restart(sizes: Sequence[int] = SIZES) -> Section:
    """Save subscriptions in one process, start in another."""
    rows = []
    for policy in POLICIES:
        for n in sizes:
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                size = _save(Path(folder), n)
                saving = (time.process_time() - began) / n
                found = subprocess.run(
                    [sys.executable, "-m", "benchmarks.broker_restart", folder, policy],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.split()
            count, memory, *seconds = map(float, found)
            assert count == n, f"{count} subscriptions of {n} are there again"
            rows.append(
                [
                    policy,
                    f"{n:,}",
                    *(f"{each:.2f}" for each in seconds),
                    f"{sum(seconds):.2f}",
                    f"{memory / n:,.0f}",
                    f"{size / n:.0f}",
                    f"{1e6 * saving:.0f}",
                ]
            )
    return Section(
        "A broker's restart",
        f"Filters on stock quotes; half of them are of {CLIENTS} local clients, half of {LINKS} "
        "neighbours, each of which has advertised everything. CPU seconds in a new process, after "
        "all imports and a start with 300 subscriptions: reading all rows, building the tables "
        "and what each link covers, compiling the filters for the first event. The bytes are the "
        "growth of the process, for each subscription, and the size of the file. Saving is the CPU "
        "time for each row in one batch. All subscriptions are there again (asserted).",
        [
            "policy",
            "subscriptions",
            "reading",
            "tables",
            "first event",
            "together, s",
            "bytes in memory",
            "bytes on disk",
            "saving, µs",
        ],
        rows,
    )


def _make(n: int) -> Iterator[Save]:
    everything = Filter.everything(QUOTE_SCHEMA)
    record = SessionRecord(1, 1e9, "wait", 10_000, 1 << 20)
    yield from (Save(("session", f"client {at}"), record) for at in range(CLIENTS))
    for at in range(LINKS):
        yield Save(("neighbour", f"n{at}"), True)
        yield Save(("heard", f"n{at}", Name(f"n{at}", 0)), ("promise", everything))
    found = quote_filters(Quotes(), 2 * n, np.random.default_rng(1))
    narrow = [each for each in found if each != everything][:n]
    for number, filter in enumerate(narrow, 1):
        if number % 2:
            hop = hop_of(f"client {number % CLIENTS}")
            yield Save(("own", hop, "subscription", number), (Name("b", number), filter))
        else:
            hop = f"n{number % LINKS}"
            yield Save(("heard", hop, Name(hop, number)), ("subscription", filter))


def _save(folder: Path, n: int) -> int:
    with Store(folder) as store:
        state = BrokerStore(store, "b", QUOTE_SCHEMA)
        state.recover()
        state.save(_make(n))
        store.flush()
        return store.path.stat().st_size


def _start(folder: Path, policy: str) -> tuple[BrokerHost, list[float]]:
    with Store(folder) as store, hold_collection():
        times = [time.process_time()]
        recovery = BrokerStore(store, "b", QUOTE_SCHEMA).recover()
        times.append(time.process_time())
        host = BrokerHost("b", QUOTE_SCHEMA, COVERING_POLICIES[policy], recovery=recovery)
        host.start(0.0)
        times.append(time.process_time())
        host.broker.core.subscriptions.index.find_hops(QUOTE_SCHEMA.keys(_EVENT), None)
        times.append(time.process_time())
    return host, np.diff(times).tolist()


def _main(folder: str, policy: str) -> None:
    """Start in this process, and print what was measured."""
    with tempfile.TemporaryDirectory() as small:
        _save(Path(small), 300)
        _start(Path(small), policy)
    before = _memory()
    host, seconds = _start(Path(folder), policy)
    memory = _memory() - before
    print(len(host.broker.core.subscriptions), memory, *seconds)


def _memory() -> int:
    """The resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


SECTIONS = {"broker_restart": broker_restart}

if __name__ == "__main__":
    _main(*sys.argv[1:])
