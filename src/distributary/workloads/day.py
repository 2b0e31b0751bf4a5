"""A day of logs for a demand: subscriptions, unsubscriptions and publications over time.

Replaying the subscription log gives the interest. Publications occur at the demand's rates,
distributed over the day like trading: busy at the opening and at the close.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distributary.model import FloatArray, Interest, Rates

__all__ = ["DayParams", "publication_log", "spoil_rows", "subscription_log"]

_MIDNIGHT = datetime(2025, 3, 3, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DayParams:
    """The length of the day, its number of messages, and the churn of subscriptions."""

    seconds: float = 6.5 * 3600
    messages: int = 2_000_000
    churn: float = 0.1  # subscriptions that end during the day, as a share of those that remain
    mean_size: float = 200.0  # bytes of a message
    begin: datetime = _MIDNIGHT

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.messages > 0 and self.mean_size >= 1):
            raise ValueError("seconds and messages must be above 0, and mean_size at least 1 byte")
        if not 0 <= self.churn < 10:
            raise ValueError(f"churn must be at least 0 and below 10, not {self.churn}")


def subscription_log(interest: Interest, day: DayParams, rng: np.random.Generator) -> pa.Table:
    """Columns ts, receiver, flow and action, by time; ends with the given interest."""
    n_receivers, n_flows = len(interest.receivers), len(interest.flows)
    receiver = np.repeat(np.arange(n_receivers), np.diff(interest.receiver_offsets))
    flow = interest.receiver_flows.astype(np.int64)
    standing = receiver * n_flows + flow
    passing = rng.integers(n_receivers * n_flows, size=int(day.churn * len(standing)))
    passing = np.setdiff1d(passing, standing)
    came = day.seconds * 0.9 * rng.random(len(passing)) + day.seconds * 0.02
    gone = came + (day.seconds - came) * rng.random(len(passing))
    # Most subscriptions start early: traders open their screens in the first minutes.
    early = np.where(rng.random(len(standing)) < 0.8, 0.02, 0.95) * day.seconds
    seconds = np.concatenate([early * rng.random(len(standing)), came, gone])
    pair = np.concatenate([standing, passing, passing])
    action = np.repeat([0, 0, 1], [len(standing), len(passing), len(passing)])
    order = np.argsort(seconds, kind="stable")
    return pa.table(
        {
            "ts": _timestamps(day, seconds[order]),
            "receiver": _text_column(interest.receivers, pair[order] // n_flows),
            "flow": _text_column(interest.flows, pair[order] % n_flows),
            "action": _text_column(("subscribe", "unsubscribe"), action[order]),
        }
    )


def publication_log(
    rates: Rates, day: DayParams, rng: np.random.Generator, messages: int | None = None
) -> pa.Table:
    """Columns ts, flow and size, by time; messages are drawn in proportion to the rates."""
    n = messages or day.messages
    share = rates.rate / rates.rate.sum()
    flow = rng.choice(len(rates.flows), size=n, p=share)
    seconds = np.sort(day.seconds * _crowd_ends(rng.random(n)))
    size = np.maximum(1, rng.lognormal(np.log(day.mean_size) - 0.08, 0.4, n)).astype(np.int32)
    return pa.table(
        {
            "ts": _timestamps(day, seconds),
            "flow": _text_column(rates.flows, flow),
            "size": pa.array(size),
        }
    )


def spoil_rows(log: pa.Table, share: float, rng: np.random.Generator) -> pa.Table:
    """Make a share of the rows unusable, as in real logs."""
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


def _crowd_ends(even: FloatArray) -> FloatArray:
    """Move uniform numbers towards both ends of [0, 1): five times as dense as the middle."""
    pushed = even - 0.7 * np.sin(2 * np.pi * even) / (2 * np.pi)
    return np.clip(pushed, 0, np.nextafter(1, 0))


def _timestamps(day: DayParams, seconds: FloatArray) -> Any:
    begin = int(day.begin.timestamp() * 1e6)
    return pa.array(begin + np.floor(seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))


def _text_column(names: tuple[str, ...], codes: np.ndarray[Any, Any]) -> Any:
    """A text column from codes."""
    codes = pa.array(codes.astype(np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())).cast(pa.string())
