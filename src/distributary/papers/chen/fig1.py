"""Fig. 1: the burst under active covering that motivates the paper."""

from __future__ import annotations

from distributary.model import FloatArray
from distributary.papers.chen.network import CORE, CongestionOutcome
from distributary.papers.chen.runs import ACTIVE, case, results
from distributary.papers.chen.telling import PRICED, READING, samples
from distributary.papers.drawing import Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress, silent

__all__ = ["fig1"]

EVERY = 20.0  # seconds from point to point
SHOWN = 3_600.0  # seconds
SEVERE = 1_000  # messages, at full scale
HOURS = 2.0  # the least time that counts as several hours
COLOURS = ("#8b9299", "#2a9179", "#2f74c0", "#d1361c", "#a5549b")


def fig1(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Queues of the core brokers over time after unsubscriptions."""
    wanted = case(ACTIVE, quick=quick, seed=seed)
    outcome = results([wanted], progress)[wanted]
    over = _over(outcome)
    times = samples(SHOWN, EVERY)
    return Figure(
        name="chen-fig1",
        title="Some unsubscriptions congest the network for long",
        source="Chen et al. (2011), Fig. 1 and sections I and V-B",
        shown=(
            f"Messages that wait at each of the five core brokers under active covering, from the "
            f"first of {wanted.unsubscriptions} unsubscriptions on; all of them come within 150 s. "
            f"There are {wanted.workflows.subscriptions:,} subscriptions, and 2.5 publications a "
            "second. A is farthest from the publishers, which are at E."
        ),
        columns=("broker", "time", "waiting"),
        rows=tuple(
            (broker, float(time), int(waiting))
            for broker in CORE
            for time, waiting in zip(times, outcome.queues[broker].at(times), strict=True)
        ),
        chart=_chart(outcome, times),
        comparison=_comparison(outcome, over),
        claims=(_severe_claim(outcome, wanted.scale), _long_claim(over)),
        notes=(
            PRICED,
            READING,
            "The paper's chart is a picture whose numbers are not in its text; section V-B gives "
            "the height of the same experiment's queue. The duration of a burst is the triggered "
            "work divided by the share of time that publications leave for it: at our costs the "
            "fullest broker finishes it sooner than the paper's.",
        ),
        quick=quick,
        seed=seed,
    )


def _over(outcome: CongestionOutcome) -> float:
    """The last time at which as many as ten messages wait at a core broker."""
    last = [queue.times[queue.waiting >= 10].max(initial=0.0) for queue in outcome.queues.values()]
    return float(max(last))


def _comparison(outcome: CongestionOutcome, over: float) -> str:
    rows = [
        (f"longest queue at {broker}", f"{outcome.queues[broker].longest:,}", NOTHING, NOTHING)
        for broker in CORE
    ]
    rows.append(("longest core queue", f"{outcome.core_queue():,}", "almost 2,000", "3,991"))
    rows.append(("the last ten wait after", f"{over / 60:.0f} min", "several hours", NOTHING))
    return table(("", "ours", "paper", "independent"), rows)


def _severe_claim(outcome: CongestionOutcome, scale: float) -> Claim:
    longest = outcome.core_queue()
    return Claim(
        "a small number of unsubscriptions makes queues of core brokers explode, to almost 2,000 "
        "messages",
        "sections I and V-B",
        f"{longest:,} messages wait at the longest",
        longest >= scale * SEVERE,
    )


def _long_claim(over: float) -> Claim:
    return Claim(
        "the network is stable again only after several hours",
        "section I",
        f"after {over / 60:.0f} minutes no queue is longer than ten messages any more",
        over >= 3_600 * HOURS,
    )


def _chart(outcome: CongestionOutcome, times: FloatArray) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for broker, colour in zip(CORE, COLOURS, strict=True):
            waiting = outcome.queues[broker].at(times)
            axes.plot(times / 60, waiting, color=colour, linewidth=1.3, label=broker)
        axes.set(xlabel="minutes since the first unsubscription", ylabel="messages waiting")
        axes.set(xlim=(0, times[-1] / 60), ylim=(0, None))
        axes.legend(title="core broker", loc="upper right")

    return draw_chart("chen-fig1", "Core queues after unsubscriptions", (7.5, 4.5), paint)
