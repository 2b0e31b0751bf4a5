"""Fig. 1: the burst under active covering that motivates the paper."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np

from distributary.model import FloatArray
from distributary.papers.chen.network import CONGESTED, CORE, CongestionOutcome
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import ACTIVE, OURS, SELECTIVE, cases, results
from distributary.papers.chen.telling import (
    CHOICE,
    COLOURS,
    LABELS,
    PRICED,
    READING,
    explain_words,
    name_seeds,
    samples,
)
from distributary.papers.drawing import Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress, silent

__all__ = ["fig1"]

EVERY = 20.0  # seconds from point to point
SHOWN = 4_800.0  # seconds
SEVERE = 1_000  # messages, at full scale
HOURS = 2.0  # the least time that counts as several hours
OF_BROKER = ("#8b9299", "#a5549b", "#cf8417", "#d1361c", "#22272e")
COMPARED = (SELECTIVE, OURS)  # drawn beside it: the longest queue of any core broker

Runs = Mapping[str, Repeated]


def fig1(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Queues of the core brokers over time after unsubscriptions."""
    wanted = {p: cases(p, quick=quick, seed=seed) for p in (ACTIVE, *COMPARED)}
    (found,) = results(progress, wanted)
    first, active = wanted[ACTIVE][0], found[ACTIVE]
    times = samples(SHOWN, EVERY)
    return Figure(
        name="chen-fig1",
        title="Some unsubscriptions congest the network for long",
        source="Chen et al. (2011), Fig. 1 and sections I and V-B",
        shown=(
            f"Messages that wait at each of the five core brokers under active covering, from the "
            f"first of {first.unsubscriptions} unsubscriptions on; all of them come within 150 s. "
            f"There are {first.workflows.subscriptions:,} subscriptions, and 2.5 publications a "
            "second. A is farthest from the publishers, which are at E. The dashed lines are the "
            "longest core queue under the paper's selective pruning and under our merging. "
            f"{name_seeds(quick, seed)}"
        ),
        columns=("policy", "broker", "time", "waiting"),
        rows=tuple(
            (policy, broker, float(time), float(n))
            for policy, each in found.items()
            for broker in CORE
            for time, n in zip(times, _queue(each, broker, times), strict=True)
        ),
        chart=_chart(found, times),
        comparison=_comparison(active),
        claims=(_severe_claim(active, first.scale), _long_claim(active)),
        own=_tell_ours(found),
        notes=(
            PRICED,
            CHOICE,
            READING,
            explain_words(
                {
                    "explode, to almost 2,000 messages": f"to at least {SEVERE:,} at the paper's "
                    "size; how many more is not judged",
                    "stable again": f"no core broker has {CONGESTED} waiting messages any more",
                    "several hours": f"at least {HOURS:g}",
                }
            ),
            f"The core broker with the longest queue handles {active.mean(_rate):.2g} messages a "
            f"second while {CONGESTED} or more wait; section V-B reports 3.3. Publications take "
            "2.5 of these, so the burst drains at the rest.",
            "The paper's chart is a picture whose numbers are not in its text; section V-B gives "
            "the height of the same experiment's queue.",
        ),
        quick=quick,
        seed=seed,
    )


def _queue(found: Repeated, broker: str, times: FloatArray) -> FloatArray:
    return np.asarray(np.mean([each.queues[broker].at(times) for each in found.runs], axis=0))


def _rate(outcome: CongestionOutcome) -> float:
    return outcome.congested_rate


def _over(outcome: CongestionOutcome) -> float:
    """The last time at which a long queue waits at a core broker."""
    queues = outcome.queues.values()
    return max(float(queue.times[queue.waiting >= CONGESTED].max(initial=0.0)) for queue in queues)


def _comparison(active: Repeated) -> str:
    rows = [
        (f"longest queue at {broker}", f"{active.longest_queue(broker):,.0f}", NOTHING, NOTHING)
        for broker in CORE
    ]
    rows.append(("longest core queue", f"{active.core_queue:,}", "almost 2,000", "3,991"))
    over = active.mean(_over) / 60
    rows.append(("the last ten wait after", f"{over:.0f} min", "several hours", NOTHING))
    return table(("", "ours", "paper", "independent"), rows)


def _severe_claim(active: Repeated, scale: float) -> Claim:
    return Claim(
        "a small number of unsubscriptions makes queues of core brokers explode, to almost 2,000 "
        "messages",
        "sections I and V-B",
        f"{active.core_queue:,} messages wait at the longest",
        active.core_queue >= scale * SEVERE,
    )


def _long_claim(active: Repeated) -> Claim:
    over = active.mean(_over)
    return Claim(
        "the network is stable again only after several hours",
        "section I",
        f"after {over / 60:.0f} minutes no queue is longer than ten messages any more",
        over >= 3_600 * HOURS,
    )


def _tell_ours(found: Runs) -> str:
    over = {policy: fmean(map(_over, each.runs)) / 60 for policy, each in found.items()}
    words = [
        f"{LABELS[p]} {found[p].core_queue:,}, over after {over[p]:.1f} minutes" for p in found
    ]
    factor = found[ACTIVE].core_queue / max(found[OURS].core_queue, 1)
    return (
        f"The longest core queue: {'; '.join(words)}. Merging's burst is {factor:,.0f} times "
        "smaller than active covering's, because it sends the exact union of what a subscription "
        "had hidden, step by step, as one range where the parts overlap."
    )


def _chart(found: Runs, times: FloatArray) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for broker, colour in zip(CORE, OF_BROKER, strict=True):
            waiting = _queue(found[ACTIVE], broker, times)
            axes.plot(times / 60, waiting, color=colour, linewidth=1.3, label=f"active, {broker}")
        for policy in COMPARED:
            axes.plot(
                times / 60,
                found[policy].queue(times),
                "--",
                color=COLOURS[policy],
                linewidth=1.3,
                label=LABELS[policy],
            )
        axes.set(xlabel="minutes since the first unsubscription", ylabel="messages waiting")
        axes.set_xlim(0, times[-1] / 60)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=0)
        axes.figure.legend(loc="outside upper center", ncols=4)

    return draw_chart("chen-fig1", "Core queues after unsubscriptions", (7.5, 4.5), paint)
