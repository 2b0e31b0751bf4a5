"""The queue of the busiest broker at publish rates around its overload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distributary.model import FloatArray
from distributary.papers.banavar.brokers import FACTORED, PUBLISHERS, subscription_count
from distributary.papers.banavar.load import LINKS, PARAMS, make_setting
from distributary.papers.banavar.overload import COSTS_NOTE, BrokerSetting, busiest
from distributary.papers.drawing import QUIET, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.queue_trace import QueueTrace
from distributary.papers.wording import NOTHING, join_words, percent, span, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import content_world

__all__ = ["queues"]

PUBLISHED = (408, 417, 425, 450)  # events/s, of which 417 was the first to overload
SAID = ("occasionally draining", "eventually overloads", "eventually drains", "increasing")
PER_CLIENT, SHARE = 13, 0.01
EVENTS, QUICK_EVENTS = 400, 100  # per publisher, published cyclically
SECONDS, QUICK_SECONDS = 6.0, 2.0
DRAWS, QUICK_DRAWS = 10, 1
SAMPLED = 0.05  # seconds from one point of a curve to the next
THRESHOLD, ERROR = 80, 12  # messages; the paper's estimate
SOURCE = 'slides, section "Network Loading Results"'
COLOURS = ("#2a9179", "#cf8417", "#2f74c0", "#d1361c")


Queues = Mapping[int, Sequence[QueueTrace]]  # published rate -> one per draw


def queues(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """How the longest queue grows and drains at four rates, 2 % to 8 % apart."""
    seconds = QUICK_SECONDS if quick else SECONDS
    full, ours, found = _measure(quick, seconds, seed, progress)
    samples = np.arange(0, seconds + SAMPLED / 2, SAMPLED)
    return Figure(
        name="banavar-queues",
        title="The queue of the busiest broker around overload",
        source=f"Banavar et al. (1999), {SOURCE}",
        shown=(
            f"Messages that wait at the busiest broker over time, at four publish rates with the "
            f"paper's proportions: 1 stands for its {PUBLISHED[1]} events/s, and for ours at which "
            f"that broker would never rest, {full:.0f} events/s of each publisher. Link matching "
            f"with {subscription_count(PER_CLIENT):,} subscriptions of which an event matches "
            f"{100 * SHARE:g} %; one run of {len(found[PUBLISHED[0]])} at each rate."
        ),
        columns=("rate_ratio", "events_per_s", "time", "waiting"),
        rows=tuple(
            (ratio(rate), len(PUBLISHERS) * full * ratio(rate), float(time), int(length))
            for rate, runs in found.items()
            for time, length in zip(samples, runs[0].at(samples), strict=True)
        ),
        chart=_chart(found, samples),
        comparison=_comparison(found, full),
        claims=(
            _drains_claim(found, seconds),
            _grows_claim(found, seconds),
            _chance_claim(found),
            _threshold_claim(found),
        ),
        notes=(
            COSTS_NOTE,
            "The slides do not say with which subscriptions their curves were made, nor whether "
            "their rates are of one publisher or of all, so only the proportions are used.",
            f"A run overloads if more than {THRESHOLD} messages wait at some time of its "
            f"{seconds:g} s. Every run has its own draw of the Poisson processes.",
            "The slides show one run at each rate, in which 425 drains and 417 does not: this "
            "close to the threshold, chance decides.",
            "Queues have no limit here; [banavar-drops](banavar-drops.md) has brokers whose full "
            "queue drops what arrives.",
        ),
        own=(
            "Our brokers search a tree with factoring: the busiest never rests at "
            f"{ours:.0f} events/s of each publisher instead of {full:.0f} "
            f"({percent(ours / full - 1, signed=True)}). The rates of this figure are "
            "relative to that one, so ours has no curve of its own."
        ),
        quick=quick,
        seed=seed,
    )


def ratio(rate: int) -> float:
    """A published rate over the first one that overloaded."""
    return rate / PUBLISHED[1]


# --- measuring -----------------------------------------------------------------------------------


def _measure(
    quick: bool, seconds: float, seed: int, progress: Progress
) -> tuple[float, float, Queues]:
    """The rates at which the busiest broker never rests, also of ours, and its queues."""
    draws = QUICK_DRAWS if quick else DRAWS
    world = content_world(PARAMS, np.random.default_rng(seed)).with_matching_share(SHARE)
    events = QUICK_EVENTS if quick else EVENTS
    network = make_setting(LINKS, world, PER_CLIENT, events, seed)
    broker, full = busiest(network.work())
    _, ours = busiest(make_setting(LINKS, world, PER_CLIENT, events, seed, FACTORED).work())
    found: dict[int, list[QueueTrace]] = {rate: [] for rate in PUBLISHED}
    for draw in range(draws):
        for at, rate in enumerate(PUBLISHED):
            progress(Step("runs", draw * len(PUBLISHED) + at, draws * len(PUBLISHED)))
            rng = np.random.default_rng([seed, 4, draw, rate])
            found[rate].append(_queue(network, broker, full * ratio(rate), seconds, rng))
    progress(Step("runs", draws * len(PUBLISHED), draws * len(PUBLISHED)))
    return full, ours, found


def _queue(
    network: BrokerSetting, broker: str, rate: float, seconds: float, rng: np.random.Generator
) -> QueueTrace:
    simulation = network.start_simulation(rate, seconds, rng)
    simulation.run(until=seconds)
    waiting = [(time, n) for time, node, n in simulation.record.waiting if node == broker]
    times, lengths = zip(*waiting, strict=True) if waiting else ((), ())
    return QueueTrace(np.array(times, np.float64), np.array(lengths, np.int64))


# --- reporting -----------------------------------------------------------------------------------


def _count_overloads(runs: Sequence[QueueTrace]) -> int:
    return sum(run.longest > THRESHOLD for run in runs)


def _comparison(found: Queues, full: float) -> str:
    return table(
        ("rate", "ours, events/s", "ours, longest queue", "ours, overload", "paper", "independent"),
        (
            (
                f"{ratio(rate):.2f}",
                f"{len(PUBLISHERS) * full * ratio(rate):.0f}",
                _lengths([run.longest for run in runs]),
                f"{_count_overloads(runs)} of {len(runs)} runs",
                f"{rate} events/s: {said}",
                NOTHING,
            )
            for (rate, runs), said in zip(found.items(), SAID, strict=True)
        ),
    )


def _lengths(found: Sequence[int]) -> str:
    return span(str(min(found)), str(max(found)))


def _drains_claim(found: Queues, seconds: float) -> Claim:
    runs = found[PUBLISHED[0]]
    drained = sum(run.drains_after(seconds / 2) for run in runs)
    return Claim(
        f"{PUBLISHED[0]} events/s: the queue drains occasionally",
        SOURCE,
        f"at {ratio(PUBLISHED[0]):.2f} it is empty again in the second half of {drained} of "
        f"{len(runs)} runs",
        2 * drained > len(runs),
    )


def _grows_claim(found: Queues, seconds: float) -> Claim:
    """Compares second by second: within a second, arrivals and departures alternate."""
    runs = found[PUBLISHED[-1]]
    lengths = [run.at(np.arange(1.0, seconds + 0.5)) for run in runs]
    grown = sum(bool((np.diff(each) > 0).all()) for each in lengths)
    ends = [int(each[-1]) for each in lengths]
    return Claim(
        f"{PUBLISHED[-1]} events/s: the queue increases monotonically",
        SOURCE,
        f"at {ratio(PUBLISHED[-1]):.2f} it is longer after every second in {grown} of {len(runs)} "
        f"runs, and {_lengths(ends)} long at the end",
        2 * grown > len(runs),
    )


def _chance_claim(found: Queues) -> Claim:
    middle = PUBLISHED[1:-1]
    counts = [_count_overloads(found[rate]) for rate in middle]
    runs = sum(len(found[rate]) for rate in middle)
    words = [f"{n} at {ratio(rate):.2f}" for n, rate in zip(counts, middle, strict=True)]
    return Claim(
        f"{middle[0]} events/s overloads and {middle[1]} drains: in between, either can happen",
        SOURCE,
        f"of {len(found[middle[0]])} runs each, {join_words(words)} overload",
        0 < sum(counts) < runs,
    )


def _threshold_claim(found: Queues) -> Claim:
    longest = max(run.longest_before_drain for runs in found.values() for run in runs)
    return Claim(
        f"a queue longer than {THRESHOLD} ± {ERROR} does not drain any more",
        SOURCE,
        f"the longest that was empty again later had {longest}",
        longest <= THRESHOLD + ERROR,
    )


def _chart(found: Queues, samples: FloatArray) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for (rate, runs), colour in zip(found.items(), COLOURS, strict=True):
            label = f"{ratio(rate):.2f} (paper: {rate} events/s)"
            axes.plot(samples, runs[0].at(samples), color=colour, linewidth=1.2, label=label)
        axes.axhline(THRESHOLD, color=QUIET, linewidth=1, linestyle="--")
        axes.axhspan(THRESHOLD - ERROR, THRESHOLD + ERROR, color=QUIET, alpha=0.15, linewidth=0)
        axes.set(xlabel="simulation time, s", ylabel="queue length, messages")
        axes.set(xlim=(0, samples[-1]), ylim=(0, None))
        axes.legend(loc="upper left", title="publish rate")

    return draw_chart("banavar-queues", "Queue lengths around overload", (7.5, 4.8), paint)
