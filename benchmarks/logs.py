"""Logs of any length, generated in pieces, so that only one piece is in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distributary import Demand, Interest, Rates
from distributary.workloads import DayParams, publication_log, spoil_rows, subscription_log

PIECE = 1_000_000
RECEIVERS, FLOWS = 5_000, 100_003  # flows: a prime
ROWS_PER_PAIR = 2
BEGIN = 1_741_000_000_000_000  # microseconds
SECONDS = 6.5 * 3600


@dataclass(frozen=True)
class Logs:
    """The paths of the logs, and their numbers of rows."""

    subscriptions: Path
    publications: Path
    rows: int


def write_logs(
    folder: Path, rows: int, bad: float = 0.0, flows: int = FLOWS, receivers: int = RECEIVERS
) -> Logs:
    """Write logs: half of the rows are subscription actions, half are publications.

    A quarter of the actions are unsubscriptions. Each pair of receiver and flow has two actions on
    average. Flows with low numbers are published most: the first tenth of the flows has 55 % of the
    messages.
    """
    logs = Logs(folder / "subscriptions", folder / "publications", rows)
    half = rows // 2
    pairs = max(1, half // ROWS_PER_PAIR)
    if pairs > receivers * flows:
        raise ValueError(f"{receivers} receivers and {flows} flows have no {pairs} pairs")
    for path in (logs.subscriptions, logs.publications):
        path.mkdir(parents=True)
        for number, first in enumerate(range(0, half, PIECE)):
            rng = np.random.default_rng([rows, number, len(path.name)])
            length = min(PIECE, half - first)
            share = first / half, (first + length) / half
            if path == logs.subscriptions:
                table = _subscriptions(rng, length, share, pairs, receivers, flows)
            else:
                table = _publications(rng, length, share, flows)
            if bad:
                table = spoil_rows(table, bad, rng)
            pq.write_table(table, path / f"{number:05d}.parquet")
    return logs


def write_day(folder: Path, demand: Demand, messages: int, seed: int = 0) -> Logs:
    """Write a day of a demand: subscriptions that end in its interest, messages at its rates."""
    rng = np.random.default_rng(seed)
    day = DayParams(messages=messages)
    logs = Logs(folder / "subscriptions", folder / "publications", 0)
    logs.subscriptions.mkdir(parents=True)
    subscribed = subscription_log(demand.interest, day, rng)
    pq.write_table(subscribed, logs.subscriptions / "00000.parquet", row_group_size=PIECE)
    write_publications(logs.publications, demand, messages, rng)
    return Logs(logs.subscriptions, logs.publications, len(subscribed) + messages)


def write_publications(path: Path, demand: Demand, messages: int, rng: np.random.Generator) -> None:
    """Write messages at the rates of a demand; each piece spans the whole day."""
    path.mkdir(parents=True)
    rates = Rates(demand.interest.flows, demand.rate)
    for number, first in enumerate(range(0, messages, PIECE)):
        length = min(PIECE, messages - first)
        table = publication_log(rates, DayParams(messages=length), rng)
        pq.write_table(table, path / f"{number:05d}.parquet")


def interest_table(interest: Interest) -> pa.Table:
    """The columns receiver and flow, one row per pair."""
    return pa.table(
        {
            "receiver": _dictionary_column(interest.receivers, interest.flow_receivers),
            "flow": _dictionary_column(interest.flows, interest.pair_flows()),
        }
    )


def _subscriptions(
    rng: np.random.Generator,
    n: int,
    share: tuple[float, float],
    pairs: int,
    receivers: int,
    flows: int,
) -> pa.Table:
    pair = rng.integers(pairs, size=n)
    receiver = pair % receivers
    # Each pair has one number: steps by a prime visit all flows of a receiver once.
    flow = (pair // receivers * 7_919 + receiver * 104_729) % flows
    return pa.table(
        {
            "ts": _moments(rng, n, share),
            "receiver": _dictionary_column([f"trader-{r:05d}" for r in range(receivers)], receiver),
            "flow": _dictionary_column(_flow_names(flows), flow),
            "action": _dictionary_column(
                ["subscribe", "unsubscribe"], (rng.random(n) < 0.25).astype(int)
            ),
        }
    )


def _publications(
    rng: np.random.Generator, n: int, share: tuple[float, float], flows: int
) -> pa.Table:
    # -log(u) / 8 has 55 % of its mass in the first tenth; the tail beyond 1 wraps around to 0.
    flow = (rng.exponential(1 / 8, n) % 1.0 * flows).astype(np.int64)
    return pa.table(
        {
            "ts": _moments(rng, n, share),
            "flow": _dictionary_column(_flow_names(flows), flow),
            "size": pa.array(rng.integers(50, 400, n).astype(np.int32)),
        }
    )


def _moments(rng: np.random.Generator, n: int, share: tuple[float, float]) -> pa.Array:
    """Ascending times in the part of the day that a piece covers."""
    first, last = (int(SECONDS * 1e6 * one) for one in share)
    return pa.array(BEGIN + np.sort(rng.integers(first, last, n)), pa.timestamp("us", "UTC"))


def _flow_names(flows: int) -> list[str]:
    return [f"flow-{flow:07d}" for flow in range(flows)]


def _dictionary_column(names: object, codes: np.ndarray) -> pa.Array:
    words = pa.array(names, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), words).cast(pa.string())
