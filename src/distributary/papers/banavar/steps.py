"""Chart 3: matching steps on the way to a subscriber against one centralised match.

The paper lists factoring among its optimisations and does not say whether the chart has it, so the
figure is drawn with it and without, from the same subscriptions and events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distributary.matching import TreeOptions
from distributary.model import FloatArray
from distributary.papers.banavar.brokers import (
    FACTORED,
    NETWORK,
    TREE,
    ClientFilters,
    Pool,
    build_brokers,
    subscription_count,
    visits,
)
from distributary.papers.drawing import INK, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import ContentParams, content_world

__all__ = ["CENTRAL", "FACTORING", "PLAIN", "hops", "steps"]

PARAMS = ContentParams(attributes=10, values=3)
PER_CLIENT = (5, 10, 15, 20, 26)  # up to 10,140 subscriptions
QUICK_PER_CLIENT = (5, 13, 26)
FAR = 256  # much beyond 10,000
DRAWS, QUICK_DRAWS = 4, 1
EVENTS, QUICK_EVENTS = 500, 120  # of each publisher
LAWS = (0.75, 0.78, 0.80, 0.82, 0.85)  # how much rarer tests become from attribute to attribute
LAW_DRAWS, LAW_EVENTS = 2, 250
CENTRAL = "centralised"
PLAIN, FACTORING = "without factoring", "with factoring"
READINGS: Mapping[str, TreeOptions] = {PLAIN: TREE, FACTORING: FACTORED}
ALL_THREE = TreeOptions(factoring=True, trivial_tests=True, delayed_branching=True)
INDEPENDENT: Mapping[str, float] = {CENTRAL: 225, "4 hops": 205, "5 hops": 270}  # at 10,140, plain
AXIS, TICK = 250, 50  # the last number on the chart's axis, and the distance between numbers
SOURCE = 'slides, section "Matching Time Results"'
COLOURS = ("#9ecae9", "#6aaed6", "#4090c5", "#2272b5", "#0b559f", "#083471")  # by hops


def hops(n: int) -> str:
    """The figure's name for link matching over n hops."""
    return f"{n} hop{'s' if n > 1 else ''}"


NAMES = (*(hops(n) for n in range(1, 7)), CENTRAL)
SAID = {hops(n): f"{'≤' if n <= 4 else '>'} {CENTRAL}" for n in range(1, 7)}

Steps = Mapping[int, Mapping[str, FloatArray]]  # subscriptions -> name -> mean of each draw


@dataclass(frozen=True, slots=True)
class LawResult:
    """What one law of tests gives at the most subscriptions, in one reading."""

    next_test: float
    reading: str
    central: float
    by_hops: tuple[float, ...]  # from 1 hop on

    @property
    def ahead(self) -> int:
        """The most hops over which link matching takes no more steps than one search."""
        return sum(each <= self.central for each in self.by_hops)

    @property
    def on_axis(self) -> bool:
        """Whether all points are on the chart's axis, or not as far as a number above it."""
        return max(*self.by_hops, self.central) < AXIS + TICK


def steps(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Mean matching steps against subscriptions, over one to six hops and centralised."""
    draws = QUICK_DRAWS if quick else DRAWS
    found, laws = _measure(quick, draws, seed, progress)
    most = max(_sizes(PER_CLIENT))
    near = {
        reading: {n: by_name for n, by_name in by_size.items() if n <= most}
        for reading, by_size in found.items()
    }
    return Figure(
        name="banavar-steps",
        title="Matching steps on the way, and in one place",
        source=f"Banavar et al. (1999), {SOURCE} and Chart 3",
        shown=(
            f"Mean nodes visited per event against the number of subscriptions: at all brokers "
            f"from the publisher to a subscriber n hops away, and by one search for all matches; "
            f"{PLAIN} and {FACTORING}. "
            f"{PARAMS.attributes} attributes of {PARAMS.values} values; "
            f"{QUICK_EVENTS if quick else EVENTS} events from each of three publishers, means of "
            f"{draws} draw{'s' if draws > 1 else ''}."
        ),
        columns=("reading", "subscriptions", "matching", "draws", "steps", "lowest", "highest"),
        rows=tuple(
            (reading, n, name, draws, float(all_.mean()), float(all_.min()), float(all_.max()))
            for reading, by_size in found.items()
            for n, by_name in by_size.items()
            for name, all_ in by_name.items()
        ),
        chart=_chart(near),
        comparison="\n\n".join(
            (
                _published_table(near),
                *(_size_table(reading, by_size) for reading, by_size in found.items()),
                *([_law_table(laws), _law_sentence(laws)] if laws else []),
            )
        ),
        claims=tuple(
            claim
            for reading in READINGS
            for claim in _claims(reading, near[reading], found[reading])
        ),
        notes=_notes(near),
        own=_own_words(near),
        quick=quick,
        seed=seed,
    )


def _claims(reading: str, near: Steps, found: Steps) -> list[Claim]:
    claims = [
        _up_to_claim(near),
        _beyond_claim(near),
        _growth_claim(near),
        *([_far_claim(found)] if len(found) > len(near) else []),
        _range_claim(near),
    ]
    return [replace(claim, says=f"{reading}: {claim.says}") for claim in claims]


def _notes(found: Mapping[str, Steps]) -> tuple[str, ...]:
    few = min(found[PLAIN])
    ahead = {
        reading: max(
            (n for n in range(1, 7) if _mean(by, few, hops(n)) <= _mean(by, few, CENTRAL)),
            default=0,
        )
        for reading, by in found.items()
    }
    words = [f"{hops(n)} {reading}" for reading, n in ahead.items()]
    return (
        "A hop is a broker that matches the event: the publisher's broker is the first. "
        "Publishers are at the edge of the network, so its longest path has six, as many as the "
        "chart has curves.",
        "For each pair of an event and a broker with a client that gets it, we count the nodes "
        "that link matching visits at all brokers on the way, including that one. Events without "
        "a receiver at a distance are not in its mean.",
        "The paper does not say how many tests a subscription has. Here it tests attribute i = "
        f"0, 1, ... with the probability {PARAMS.first_test} × {PARAMS.next_test}^i, the law with "
        "which the independent implementation reproduced the published crossing without "
        f"factoring; values follow Zipf's law with exponent {PARAMS.exponent:g}, in a different "
        "order for each region. Other laws moved its crossing to anywhere from 2 to 6 hops.",
        "The slides list factoring, with trivial-test elimination and delayed branching, among "
        "the optimisations, and do not say which of them the chart has. With factoring, the "
        "attributes that subscriptions test most often are looked up in an index, as the slides "
        "prefer, as long as that makes at most 2.5 copies of a subscription on average: here the "
        "first two. The look-up is no step. The law was not chosen anew for it; the last table "
        "has what other laws would give, and no claim is judged by them.",
        f"The crossing moves with size: at {few:,} subscriptions link matching takes no more steps "
        f"than one search up to {join_words(words)}.",
        "Trivial tests are left out of every tree, and delayed branching is only in the last "
        "table. Every broker has all subscriptions, even those upstream of it for "
        "all three publishers; the 390 clients have equally many.",
        "The slides' chart is a picture whose numbers are not in their text; only its axes and "
        "the statements about it can be compared.",
    )


def _own_words(found: Mapping[str, Steps]) -> str:
    most = max(found[PLAIN])
    saved = [
        percent(1 - _mean(found[FACTORING], most, name) / _mean(found[PLAIN], most, name))
        for name in (CENTRAL, hops(4))
    ]
    return (
        f"Our brokers match links in the tree {FACTORING}, choosing its attributes by themselves: "
        f"at {most:,} subscriptions that saves {saved[0]} of the steps of one search, and "
        f"{saved[1]} of those over {hops(4)}. Where not links but receivers are wanted, ours is no "
        "tree at all: two-level bitmaps count the matches of an event several times as fast as the "
        "paper's tree ([Matching](../benchmarks.md) has both, measured). They visit no nodes, so "
        "they are not in the chart."
    )


# --- measuring -----------------------------------------------------------------------------------


def _sizes(per_client: Sequence[int]) -> list[int]:
    return [subscription_count(each) for each in per_client]


def _measure(
    quick: bool, draws: int, seed: int, progress: Progress
) -> tuple[Mapping[str, Steps], list[LawResult]]:
    sizes = QUICK_PER_CLIENT if quick else (*PER_CLIENT, FAR)
    laws = () if quick else LAWS
    events = QUICK_EVENTS if quick else EVENTS
    found = {
        reading: {n: {name: np.empty(draws) for name in NAMES} for n in _sizes(sizes)}
        for reading in READINGS
    }
    total = draws * len(sizes) + len(laws)
    for draw in range(draws):
        for at, each in enumerate(sizes):
            progress(Step("networks", draw * len(sizes) + at, total))
            for reading, by_name in _one(each, events, [seed, draw]).items():
                for name, value in by_name.items():
                    found[reading][subscription_count(each)][name][draw] = value
    tried = []
    for at, next_test in enumerate(laws):
        progress(Step("networks", draws * len(sizes) + at, total))
        tried += _try_law(next_test, seed)
    progress(Step("networks", total, total))
    return found, tried


def _try_law(next_test: float, seed: int) -> list[LawResult]:
    readings = {**READINGS, "with all three": ALL_THREE}
    params = replace(PARAMS, next_test=next_test)
    drawn = [
        _one(PER_CLIENT[-1], LAW_EVENTS, [seed, draw], params, readings)
        for draw in range(LAW_DRAWS)
    ]
    return [
        LawResult(
            next_test,
            reading,
            float(np.mean([each[reading][CENTRAL] for each in drawn])),
            tuple(float(np.mean([each[reading][hops(n)] for each in drawn])) for n in range(1, 7)),
        )
        for reading in readings
    ]


def _one(
    per_client: int,
    events: int,
    seed: list[int],
    params: ContentParams = PARAMS,
    readings: Mapping[str, TreeOptions] = READINGS,
) -> dict[str, dict[str, float]]:
    """The mean steps by reading and name.

    A draw's preferences and events are the same at every size, and its subscriptions in every
    reading.
    """
    world = content_world(params, np.random.default_rng(seed))
    pool = Pool.draw(world, events, np.random.default_rng([*seed, 0]))
    rng = np.random.default_rng([*seed, per_client])
    plain = ClientFilters.draw(world, NETWORK, per_client, rng)
    found = {}
    for reading, options in readings.items():
        subscriptions = plain if options == TREE else plain.with_tree(options)
        found[reading] = _count_steps(subscriptions, pool)
    return found


def _count_steps(subscriptions: ClientFilters, pool: Pool) -> dict[str, float]:
    _, central = subscriptions.tree.count(subscriptions.axes.codes(pool.table))
    taken = defaultdict(list)
    brokers = build_brokers("link-matching", NETWORK, subscriptions, pool)
    for root, published in pool.events.items():
        for keys in published:
            for visit in visits(brokers, root, keys):
                if visit.receivers:
                    taken[hops(visit.hops)].append(visit.steps)
    return {name: float(np.mean(values)) for name, values in taken.items()} | {
        CENTRAL: float(central.mean())
    }


def _mean(found: Steps, subscriptions: int, name: str) -> float:
    return float(found[subscriptions][name].mean())


def _range(found: Steps) -> tuple[float, float]:
    every = [_mean(found, n, name) for n in found for name in NAMES]
    return min(every), max(every)


def _exponent(found: Steps, name: str) -> float:
    """The exponent with which the steps grow with the number of subscriptions."""
    log_steps = np.log([_mean(found, n, name) for n in found])
    return float(np.polyfit(np.log(list(found)), log_steps, 1)[0])


# --- reporting -----------------------------------------------------------------------------------


def _published_table(found: Mapping[str, Steps]) -> str:
    most = max(found[PLAIN])
    rows = [
        (
            name,
            *(f"{_mean(by_size, most, name):.0f}" for by_size in found.values()),
            SAID.get(name, NOTHING),
            f"{INDEPENDENT[name]:.0f}" if name in INDEPENDENT else NOTHING,
        )
        for name in NAMES
    ]
    ranges = [_range(by_size) for by_size in found.values()]
    rows.append(
        (
            "all points",
            *(f"{low:.0f} to {high:.0f}" for low, high in ranges),
            f"0 to {AXIS} (axis)",
            NOTHING,
        )
    )
    ours = (f"ours, {reading}" for reading in found)
    header = (f"steps at {most:,} subscriptions", *ours, "paper (10,000)")
    return table((*header, "independent (10,140), without"), rows)


def _size_table(reading: str, found: Steps) -> str:
    return table(
        (f"ours, steps {reading}", *(f"{n:,} subscriptions" for n in found)),
        ((name, *(f"{_mean(found, n, name):.0f}" for n in found)) for name in NAMES),
    )


def _law_table(laws: Sequence[LawResult]) -> str:
    return table(
        (
            f"tests at {subscription_count(PER_CLIENT[-1]):,} subscriptions",
            "reading",
            CENTRAL,
            "4 hops",
            "5 hops",
            "6 hops",
            f"no more than {CENTRAL} up to",
            f"on the axis, to {AXIS}",
        ),
        (
            (
                f"{PARAMS.first_test} × {each.next_test}^i",
                each.reading,
                f"{each.central:.0f}",
                *(f"{value:.0f}" for value in each.by_hops[3:]),
                hops(each.ahead),
                "yes" if each.on_axis else "no",
            )
            for each in laws
        ),
    )


def _law_sentence(laws: Sequence[LawResult]) -> str:
    both: dict[str, list[str]] = {}
    for each in laws:
        kept = both.setdefault(each.reading, [])
        if each.ahead == 4 and each.on_axis:
            kept.append(f"{each.next_test}^i")
    words = [f"{reading} at {join_words(kept, 'no law')}" for reading, kept in both.items()]
    return f"The published crossing, after 4 hops, and the axis hold together {join_words(words)}."


def _against(found: Steps, over: Sequence[int]) -> tuple[str, list[float]]:
    """Link matching over these hops against centralised, at the most subscriptions."""
    most = max(found)
    central = _mean(found, most, CENTRAL)
    taken = [_mean(found, most, hops(n)) for n in over]
    words = [f"{steps:.0f} over {hops(n)}" for n, steps in zip(over, taken, strict=True)]
    return f"{join_words(words)} against {central:.0f}", [each / central for each in taken]


def _up_to_claim(found: Steps) -> Claim:
    words, ratios = _against(found, (3, 4))
    return Claim(
        "at 10,000 subscriptions link matching over up to 4 hops takes no more steps than "
        "centralised matching",
        SOURCE,
        words,
        max(ratios) <= 1,
    )


def _beyond_claim(found: Steps) -> Claim:
    words, ratios = _against(found, (5, 6))
    return Claim("over more than 4 hops it takes more", SOURCE, words, min(ratios) > 1)


def _growth_claim(found: Steps) -> Claim:
    exponent = _exponent(found, CENTRAL)
    return Claim(
        "the cost of matching grows less than linearly with the number of subscriptions",
        'slides, section "The Matching Algorithm"',
        f"as their number to the power of {exponent:.2f}, over 4 hops of "
        f"{_exponent(found, hops(4)):.2f}",
        exponent < 1,
    )


def _far_claim(found: Steps) -> Claim:
    most = max(found)
    central, six = _mean(found, most, CENTRAL), _mean(found, most, hops(6))
    return Claim(
        "with really many subscriptions, much beyond 10,000, centralised matching may take more "
        "steps than link matching",
        SOURCE,
        f"at {most:,} centralised {central:.0f}, over 6 hops {six:.0f} "
        f"({percent(six / central - 1, signed=True)})",
        central > six,
    )


def _range_claim(found: Steps) -> Claim:
    """Points may lie a little above the last number on the axis, but not as far as the next."""
    low, high = _range(found)
    return Claim(
        f"all points are on the chart's axis, the last number of which is {AXIS}",
        "Chart 3",
        f"{low:.0f} to {high:.0f}, the most over 6 hops",
        high < AXIS + TICK,
    )


def _chart(found: Mapping[str, Steps]) -> str:
    colours = dict(zip(NAMES, (*COLOURS, INK), strict=True))

    def paint(sheet: Sheet) -> None:
        top = max(_range(by_size)[1] for by_size in found.values())
        for axes, (reading, by_size) in zip(sheet.panels, found.items(), strict=True):
            for name in NAMES:
                label, line, mark = (
                    (name, "--", "s") if name == CENTRAL else (f"LM {name}", "-", "o")
                )
                y = [_mean(by_size, n, name) for n in by_size]
                axes.plot(
                    list(by_size), y, color=colours[name], linestyle=line, marker=mark, label=label
                )
            if reading == PLAIN:
                for name, steps in INDEPENDENT.items():
                    label = "independent" if name == CENTRAL else ""
                    colour = colours[name]
                    axes.plot(10_140, steps, "D", color=colour, markerfacecolor="none", label=label)
            axes.set_title(reading)
            axes.set(xlabel="number of subscriptions", xlim=(0, 10_500), ylim=(0, 1.05 * top))
            axes.xaxis.set_major_formatter("{x:,.0f}")
        sheet.panels[0].set_ylabel("matching steps")
        draw_legend(sheet)

    return draw_chart("banavar-steps", "Matching steps", (9, 4.8), paint, shape=(1, 2))
