"""How the figures of this paper name, format and draw the outcomes of their cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.network import CORE, CongestionOutcome
from distributary.papers.chen.pricing import (
    FIRST_RATE,
    FIRST_SECONDS_PER_BOX,
    SECONDS_PER_BOX,
    SECONDS_PER_MESSAGE,
)
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import SEEDS
from distributary.papers.figure import Cell
from distributary.papers.wording import NOTHING
from distributary.workloads.workflows import workflow_topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "CHOICE",
    "COLOURS",
    "FLAT",
    "INNER",
    "LABELS",
    "LATER",
    "NEARLY",
    "PRICED",
    "QUANTITIES",
    "READING",
    "delay_rows",
    "draw_bars",
    "draw_queues",
    "explain_words",
    "flat",
    "most_remembered",
    "name_seeds",
    "numbers",
    "samples",
    "seconds",
    "share",
    "times_as",
    "way",
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
NEARLY = 0.05  # how far below a stated share a result may be

PRICED = (
    f"The paper measured a program; here time is modelled. Every message costs a broker "
    f"{1e3 * SECONDS_PER_MESSAGE:g} ms plus {1e6 * SECONDS_PER_BOX:g} µs for each box in its "
    "table: a publication is matched with each box, and each box of a statement is compared with "
    "each. The costs are the same for every policy. Delays in seconds depend on them."
)
READING = (
    "The text has neither the drawing of the network nor the filters. Our network has the counts "
    "of section V-A: a chain A to E, 18 more inner brokers on A to D, 29 edge brokers with "
    "subscribers and three with publishers, these on E. Subscriptions are ranges; a root has "
    "children that no other covers. A root's children go to any edge broker, so the tables of A "
    "to D hold subscriptions that are covered on one side only, and are larger than the paper's."
)
CHOICE = (
    "What the text leaves open was decided by what it says, before the figures were run, except "
    f"for the price of a box. That was {1e6 * FIRST_SECONDS_PER_BOX:g} µs at first and gave "
    f"{FIRST_RATE:g} messages a second during congestion where the paper has 3.3, so it was "
    "raised. `paper run chen-readings` lists the decisions with their sentences, and what other "
    "readings give, the first price among them."
)

LATER = (
    "The claims about {} were added after the figure had been run once; how their words were "
    "judged was set then, and not again."
)


def name_seeds(quick: bool, seed: int) -> str:
    """How often each setting was run, as a sentence."""
    if quick:
        return "Every setting was run once."
    return f"Numbers are means over {SEEDS} draws, with the seeds {seed} to {seed + SEEDS - 1}."


def explain_words(words: Mapping[str, str]) -> str:
    """A note that says how the words and numbers in a page's claims were judged."""
    read = "; ".join(f"*{word}*: {means}" for word, means in words.items())
    return f"The claims' words were read so: {read}."


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


def way(counts: Sequence[float]) -> str:
    """Counts from A to E."""
    return ", ".join(f"{count:,.0f}" for count in counts)


def delay_rows(
    found: Mapping[str, Repeated], known: Mapping[str, tuple[str, str]]
) -> list[tuple[str, str, str, str]]:
    """The delay of probes under each policy, beside the paper's and an independent one."""
    return [
        (
            f"delay of probes, {LABELS[policy]}",
            seconds(each.delay),
            *known.get(policy, (NOTHING, NOTHING)),
        )
        for policy, each in found.items()
    ]


def numbers(found: Repeated, times: FloatArray) -> Iterator[tuple[Cell, Cell, Cell]]:
    """All numbers that the figures show, as (quantity, where or when, value)."""
    low, high = found.spread
    yield "delay_s", "mean", found.delay
    yield "delay_s", "10 percent", low
    yield "delay_s", "90 percent", high
    yield "delay_s", "at the end", found.settled
    for each in found.runs:
        yield "delay_s", "mean of one draw", float(each.delays.mean())
        yield "longest_queue", "core, one draw", each.core_queue
    triggered, messages = found.triggered(), found.triggered_messages()
    for broker, statements, packs in zip(CORE, triggered, messages, strict=True):
        yield "table_boxes_before", broker, found.table_before(broker)
        yield "table_boxes", broker, found.table(broker)
        yield "triggered", broker, statements
        yield "triggered_messages", broker, packs
        yield "longest_queue", broker, found.longest_queue(broker)
    for name, brokers in (("core", tuple(CORE)), ("inner", INNER)):
        yield "publications_per_broker", name, found.publications(brokers)
        yield "false_positive_share", name, found.false_positives(brokers)
        yield "dead_end_share", name, found.dead_ends(brokers)
        yield "triggered_messages", name, float(np.mean(found.triggered_messages(brokers)))
    yield "false_positive_share", "all", found.false_positives()
    yield "dead_end_share", "all", found.dead_ends()
    yield "history_entries", "most of a broker", found.mean(most_remembered)
    for time, waiting in zip(times.tolist(), found.queue(times).tolist(), strict=True):
        yield "core_queue", time, waiting


def most_remembered(outcome: CongestionOutcome) -> int:
    """The most entries in the history of one broker."""
    return max(outcome.remembered.values(), default=0)


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
    axes: Axes, times: FloatArray, queues: Mapping[str, FloatArray], title: str
) -> None:
    """Draw one line per policy of waiting messages, linear up to 10 and then logarithmic.

    An empty queue is at the bottom.
    """
    for name, waiting in queues.items():
        axes.plot(times / 60, waiting, color=COLOURS[name], label=LABELS[name], linewidth=1.3)
    axes.set_yscale("symlog", linthresh=10)
    axes.set(xlabel="minutes", ylabel="messages waiting", xlim=(0, times[-1] / 60))
    axes.set_ylim(bottom=0)
    axes.set_title(title)
