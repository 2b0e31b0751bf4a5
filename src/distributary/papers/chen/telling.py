"""How the figures of this paper name, format and draw the outcomes of their cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.network import CORE, CongestionOutcome
from distributary.papers.figure import Cell
from distributary.papers.queue_trace import QueueTrace
from distributary.papers.wording import NOTHING
from distributary.workloads.workflows import workflow_topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "INNER",
    "LABELS",
    "PRICED",
    "QUANTITIES",
    "READING",
    "core_queue",
    "delay_rows",
    "draw_bars",
    "draw_queues",
    "flat",
    "numbers",
    "per_broker",
    "samples",
    "seconds",
    "share",
    "times_as",
]

LABELS: Mapping[str, str] = {
    "active": "active covering",
    "lazy": "lazy covering",
    "packing": "packing",
    "selective": "selective pruning",
    "swept": "selective, swept",
    "ours": "ours (merging)",
}
COLOURS: Mapping[str, str] = {
    "active": "#d1361c",
    "lazy": "#cf8417",
    "packing": "#a5549b",
    "selective": "#2f74c0",
    "swept": "#8b9299",
    "ours": "#2a9179",
}
INNER = tuple(name for name in workflow_topology().brokers if name.startswith("inner"))
QUANTITIES = ("quantity", "at", "value")
FLAT = 1.5  # values within this factor count as the same

PRICED = (
    "The paper measured a program; here time is modelled. Every message costs a broker 10 ms "
    "plus 12 µs for each box in its table: a publication is matched with each box, and each box "
    "of a statement is compared with each. So the fullest core brokers handle 4 to 5 messages a "
    "second after active covering's burst; section V-B reports 3.3 for the paper's brokers. The "
    "costs are the same for every policy. Delays in seconds depend on them."
)
READING = (
    "The text has neither the drawing of the network nor the filters. Our network has the counts "
    "of section V-A: a chain A to E, 18 more inner brokers on A to D, 29 edge brokers with "
    "subscribers and three with publishers, these on E. Subscriptions are ranges; a root has "
    "children that no other covers. A root's children go to any edge broker, so the tables of A "
    "to D hold subscriptions that are covered on one side only, and are larger than the paper's."
)


def samples(last: float, every: float) -> FloatArray:
    """Times from 0 to `last`."""
    return np.arange(0.0, last + every / 2, every)


def share(found: float) -> str:
    """A small share as a percentage."""
    return f"{100 * found:.2g} %" if found < 0.1 else f"{100 * found:.0f} %"


def seconds(found: float) -> str:
    """A time with a useful number of digits."""
    return f"{found:,.0f} s" if found >= 10 else f"{found:.2f} s"


def times_as(found: float) -> str:
    """A ratio with a useful number of digits."""
    return f"{found:,.0f}" if found >= 10 else f"{found:.1f}"


def flat(found: Sequence[float]) -> bool:
    """Whether all values are about the same."""
    return max(found) <= FLAT * min(found)


def per_broker(counts: Mapping[str, int], brokers: Sequence[str]) -> float:
    """The mean count of some brokers."""
    return float(np.mean([counts.get(broker, 0) for broker in brokers]))


def core_queue(outcome: CongestionOutcome, times: FloatArray) -> FloatArray:
    """The number of messages waiting at the core broker with the longest queue, at each time."""
    waiting = np.array([outcome.queues[broker].at(times) for broker in CORE], np.float64)
    return np.asarray(waiting.max(axis=0))


def delay_rows(
    found: Mapping[str, CongestionOutcome], known: Mapping[str, tuple[str, str]]
) -> list[tuple[str, str, str, str]]:
    """The delay of probes under each policy, beside the paper's and an independent one."""
    return [
        (
            f"delay of probes, {LABELS[policy]}",
            seconds(float(outcome.delays.mean())),
            *known.get(policy, (NOTHING, NOTHING)),
        )
        for policy, outcome in found.items()
    ]


def numbers(outcome: CongestionOutcome, times: FloatArray) -> Iterator[tuple[Cell, Cell, Cell]]:
    """All numbers of an outcome that the figures show, as (quantity, where or when, value)."""
    low, high = np.percentile(outcome.delays, [10, 90]).tolist()
    yield "delay_s", "mean", float(outcome.delays.mean())
    yield "delay_s", "10 percent", low
    yield "delay_s", "90 percent", high
    yield "delay_s", "at the end", outcome.settled
    for broker in CORE:
        yield "table_boxes_before", broker, outcome.before[broker]
        yield "table_boxes", broker, outcome.tables[broker]
        yield "triggered", broker, outcome.triggered.get(broker, 0)
        yield "longest_queue", broker, outcome.queues[broker].longest
    for name, brokers in (("core", tuple(CORE)), ("inner", INNER)):
        yield "publications_per_broker", name, per_broker(outcome.publications, brokers)
        yield "unwanted_per_broker", name, per_broker(outcome.unwanted, brokers)
    yield "false_positive_share", "all", outcome.false_positives()
    for time, waiting in zip(times.tolist(), core_queue(outcome, times).tolist(), strict=True):
        yield "core_queue", time, int(waiting)


# --- drawing -------------------------------------------------------------------------------------


def draw_bars(axes: Axes, found: Mapping[str, float], title: str, *, log: bool = False) -> None:
    """Draw one bar per policy, labelled with its value."""
    names = list(found)
    axes.bar(names, list(found.values()), color=[COLOURS[name] for name in names], width=0.7)
    for at, value in enumerate(found.values()):
        label = f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
        axes.annotate(label, (at, value), (0, 2), textcoords="offset points", ha="center")
    if log:
        axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.grid(visible=False, axis="x")
    axes.set_title(title)


def draw_queues(
    axes: Axes, times: FloatArray, queues: Mapping[str, FloatArray | QueueTrace], title: str
) -> None:
    """Draw one line per policy of waiting messages, linear up to 10 and then logarithmic.

    An empty queue is at the bottom.
    """
    for name, queue in queues.items():
        waiting = queue.at(times) if isinstance(queue, QueueTrace) else queue
        axes.plot(times / 60, waiting, color=COLOURS[name], label=LABELS[name], linewidth=1.3)
    axes.set_yscale("symlog", linthresh=10)
    axes.set(xlabel="minutes", ylabel="messages waiting", xlim=(0, times[-1] / 60))
    axes.set_ylim(bottom=0)
    axes.set_title(title)
