"""A day in the life of a demand: who subscribed and unsubscribed when, what was published when.

The log ends where the demand is: replaying it gives the interest again, and the publications come
at its rates, drawn over the day as a market breathes: busy when it opens and when it closes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distributary.model import FloatArray, Interest, Rates

__all__ = ["Day", "publication_log", "spoiled", "subscription_log"]

_MIDNIGHT = datetime(2025, 3, 3, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Day:
    """How long the day is, how many messages it has, and how much subscriptions change in it."""

    seconds: float = 6.5 * 3600
    messages: int = 2_000_000
    churn: float = 0.1  # subscriptions that were there for a while and are gone at the end
    mean_size: float = 200.0  # bytes of a message
    begin: datetime = _MIDNIGHT

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.messages > 0 and self.mean_size >= 1):
            raise ValueError("a day needs time, messages, and messages of at least a byte")
        if not 0 <= self.churn < 10:
            raise ValueError(f"churn is a share of the subscriptions, not {self.churn}")


def subscription_log(interest: Interest, day: Day, rng: np.random.Generator) -> pa.Table:
    """ts, receiver, flow, action, in order of time; ends with the interest as it is."""
    n_receivers, n_flows = len(interest.receivers), len(interest.flows)
    receiver = np.repeat(np.arange(n_receivers), np.diff(interest.receiver_offsets))
    flow = interest.receiver_flows.astype(np.int64)
    standing = receiver * n_flows + flow
    passing = rng.integers(n_receivers * n_flows, size=int(day.churn * len(standing)))
    passing = np.setdiff1d(passing, standing)
    came = day.seconds * 0.9 * rng.random(len(passing)) + day.seconds * 0.02
    gone = came + (day.seconds - came) * rng.random(len(passing))
    # Most subscriptions stand from the start: traders open their screens in the first minutes.
    early = np.where(rng.random(len(standing)) < 0.8, 0.02, 0.95) * day.seconds
    seconds = np.concatenate([early * rng.random(len(standing)), came, gone])
    pair = np.concatenate([standing, passing, passing])
    action = np.repeat([0, 0, 1], [len(standing), len(passing), len(passing)])
    order = np.argsort(seconds, kind="stable")
    return pa.table(
        {
            "ts": _moments(day, seconds[order]),
            "receiver": _named(interest.receivers, pair[order] // n_flows),
            "flow": _named(interest.flows, pair[order] % n_flows),
            "action": _named(("subscribe", "unsubscribe"), action[order]),
        }
    )


def publication_log(
    rates: Rates, day: Day, rng: np.random.Generator, messages: int | None = None
) -> pa.Table:
    """ts, flow, size, in order of time: messages drawn in proportion to the rates."""
    n = messages or day.messages
    share = rates.rate / rates.rate.sum()
    flow = rng.choice(len(rates.flows), size=n, p=share)
    seconds = np.sort(day.seconds * _breathing(rng.random(n)))
    size = np.maximum(1, rng.lognormal(np.log(day.mean_size) - 0.08, 0.4, n)).astype(np.int32)
    return pa.table(
        {"ts": _moments(day, seconds), "flow": _named(rates.flows, flow), "size": pa.array(size)}
    )


def spoiled(log: pa.Table, share: float, rng: np.random.Generator) -> pa.Table:
    """The log with so large a share of rows that cannot be used, as real logs have them."""
    hit = rng.random(len(log)) < share
    how = rng.integers(3, size=len(log))
    columns = {name: log[name] for name in log.column_names}
    columns["ts"] = pc.if_else(pa.array(hit & (how == 0)), None, columns["ts"])
    columns["flow"] = pc.if_else(pa.array(hit & (how == 1)), "", columns["flow"])
    if "action" in columns:
        columns["action"] = pc.if_else(pa.array(hit & (how == 2)), "subscrbe", columns["action"])
    else:
        columns["size"] = pc.if_else(
            pa.array(hit & (how == 2)), pa.scalar(-1, pa.int32()), columns["size"]
        )
    return pa.table(columns)


def _breathing(even: FloatArray) -> FloatArray:
    """Evenly drawn numbers pushed towards both ends of [0, 1): five times as many as midway."""
    pushed = even - 0.7 * np.sin(2 * np.pi * even) / (2 * np.pi)
    return np.clip(pushed, 0, np.nextafter(1, 0))


def _moments(day: Day, seconds: FloatArray) -> Any:
    begin = int(day.begin.timestamp() * 1e6)
    return pa.array(begin + np.floor(seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))


def _named(names: tuple[str, ...], codes: np.ndarray[Any, Any]) -> Any:
    """Text out of codes, as a dictionary: small in memory and in a file."""
    codes = pa.array(codes.astype(np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())).cast(pa.string())
