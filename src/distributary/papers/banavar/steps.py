"""Chart 3: matching steps on the way to a subscriber against one centralised match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from distributary.model import FloatArray
from distributary.papers.banavar.brokers import (
    NETWORK,
    ClientFilters,
    Pool,
    build_brokers,
    subscription_count,
    visits,
)
from distributary.papers.drawing import INK, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import ContentParams, content_world

__all__ = ["CENTRAL", "hops", "steps"]

PARAMS = ContentParams(attributes=10, values=3)
PER_CLIENT = (5, 10, 15, 20, 26)  # up to 10,140 subscriptions
QUICK_PER_CLIENT = (5, 13, 26)
FAR = 256  # much beyond 10,000
DRAWS, QUICK_DRAWS = 4, 1
EVENTS, QUICK_EVENTS = 500, 120  # of each publisher
CENTRAL = "centralised"
INDEPENDENT: Mapping[str, float] = {CENTRAL: 225, "4 hops": 205, "5 hops": 270}  # at 10,140
AXIS, TICK = 250, 50  # the last number on the chart's axis, and the distance between numbers
SOURCE = 'slides, section "Matching Time Results"'
COLOURS = ("#9ecae9", "#6aaed6", "#4090c5", "#2272b5", "#0b559f", "#083471")  # by hops


def hops(n: int) -> str:
    """The figure's name for link matching over n hops."""
    return f"{n} hop{'s' if n > 1 else ''}"


NAMES = (*(hops(n) for n in range(1, 7)), CENTRAL)
SAID = {hops(n): f"{'≤' if n <= 4 else '>'} {CENTRAL}" for n in range(1, 7)}

Steps = Mapping[int, Mapping[str, FloatArray]]  # subscriptions -> name -> mean of each draw


def steps(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Mean matching steps against subscriptions, over one to six hops and centralised."""
    draws = QUICK_DRAWS if quick else DRAWS
    found = _measure(quick, draws, seed, progress)
    near = {n: by_name for n, by_name in found.items() if n <= max(_sizes(PER_CLIENT))}
    far = [_far_claim(found)] if len(found) > len(near) else []
    return Figure(
        name="banavar-steps",
        title="Matching steps on the way, and in one place",
        source=f"Banavar et al. (1999), {SOURCE} and Chart 3",
        shown=(
            f"Mean nodes visited per event against the number of subscriptions: at all brokers "
            f"from the publisher to a subscriber n hops away, and by one search for all matches. "
            f"{PARAMS.attributes} attributes of {PARAMS.values} values; "
            f"{QUICK_EVENTS if quick else EVENTS} events from each of three publishers, means of "
            f"{draws} draw{'s' if draws > 1 else ''}."
        ),
        columns=("subscriptions", "matching", "draws", "steps", "lowest", "highest"),
        rows=tuple(
            (n, name, draws, float(all_.mean()), float(all_.min()), float(all_.max()))
            for n, by_name in found.items()
            for name, all_ in by_name.items()
        ),
        chart=_chart(near),
        comparison="\n\n".join((_published_table(near), _size_table(found))),
        claims=(
            _up_to_claim(near),
            _beyond_claim(near),
            _growth_claim(near),
            *far,
            _range_claim(near),
        ),
        notes=_notes(near),
        quick=quick,
        seed=seed,
    )


def _notes(found: Steps) -> tuple[str, ...]:
    few = min(found)
    ahead = [n for n in range(1, 7) if _mean(found, few, hops(n)) <= _mean(found, few, CENTRAL)]
    return (
        "A hop is a broker that matches the event: the publisher's broker is the first. "
        "Publishers are at the edge of the network, so its longest path has six, as many as the "
        "chart has curves.",
        "For each pair of an event and a broker with a client that gets it, we count the nodes "
        "that link matching visits at all brokers on the way, including that one. Events without "
        "a receiver at a distance are not in its mean.",
        "The paper does not say how many tests a subscription has. Here it tests attribute i = "
        f"0, 1, ... with the probability {PARAMS.first_test} × {PARAMS.next_test}^i, the law with "
        "which the independent implementation reproduced the published crossing; values follow "
        f"Zipf's law with exponent {PARAMS.exponent:g}, in a different order for each region. "
        "Other laws moved its crossing to anywhere from 2 to 6 hops.",
        f"The crossing moves with size: at {few:,} subscriptions link matching takes no more steps "
        f"than one search up to {hops(max(ahead, default=0))}.",
        "The tree is that of the paper with trivial tests left out, and without factoring or "
        "delayed branching. Every broker has all subscriptions, even those upstream of it for "
        "all three publishers; the 390 clients have equally many.",
        "The slides' chart is a picture whose numbers are not in their text; only its axes and "
        "the statements about it can be compared.",
    )


# --- measuring -----------------------------------------------------------------------------------


def _sizes(per_client: Sequence[int]) -> list[int]:
    return [subscription_count(each) for each in per_client]


def _measure(quick: bool, draws: int, seed: int, progress: Progress) -> Steps:
    sizes = QUICK_PER_CLIENT if quick else (*PER_CLIENT, FAR)
    events = QUICK_EVENTS if quick else EVENTS
    found = {n: {name: np.empty(draws) for name in NAMES} for n in _sizes(sizes)}
    for draw in range(draws):
        for at, each in enumerate(sizes):
            progress(Step("networks", draw * len(sizes) + at, draws * len(sizes)))
            for name, value in _one(each, events, [seed, draw]).items():
                found[subscription_count(each)][name][draw] = value
    progress(Step("networks", draws * len(sizes), draws * len(sizes)))
    return found


def _one(per_client: int, events: int, seed: list[int]) -> dict[str, float]:
    """The mean steps by name; a draw's preferences and events are the same at every size."""
    world = content_world(PARAMS, np.random.default_rng(seed))
    pool = Pool.draw(world, events, np.random.default_rng([*seed, 0]))
    rng = np.random.default_rng([*seed, per_client])
    subscriptions = ClientFilters.draw(world, NETWORK, per_client, rng)
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


def _published_table(found: Steps) -> str:
    most = max(found)
    rows = [
        (
            name,
            f"{_mean(found, most, name):.0f}",
            SAID.get(name, NOTHING),
            f"{INDEPENDENT[name]:.0f}" if name in INDEPENDENT else NOTHING,
        )
        for name in NAMES
    ]
    low, high = _range(found)
    rows.append(("all points", f"{low:.0f} to {high:.0f}", f"0 to {AXIS} (axis)", NOTHING))
    return table(
        (f"steps at {most:,} subscriptions", "ours", "paper (10,000)", "independent (10,140)"),
        rows,
    )


def _size_table(found: Steps) -> str:
    return table(
        ("ours, steps", *(f"{n:,} subscriptions" for n in found)),
        ((name, *(f"{_mean(found, n, name):.0f}" for n in found)) for name in NAMES),
    )


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


def _chart(found: Steps) -> str:
    sizes = list(found)
    colours = dict(zip(NAMES, (*COLOURS, INK), strict=True))

    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for name in NAMES:
            label, line, mark = (name, "--", "s") if name == CENTRAL else (f"LM {name}", "-", "o")
            y = [_mean(found, n, name) for n in sizes]
            axes.plot(sizes, y, color=colours[name], linestyle=line, marker=mark, label=label)
        for name, steps in INDEPENDENT.items():
            label = "independent" if name == CENTRAL else ""
            axes.plot(10_140, steps, "D", color=colours[name], markerfacecolor="none", label=label)
        axes.set(xlabel="number of subscriptions", ylabel="matching steps")
        axes.set(xlim=(0, 10_500), ylim=(0, None))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))

    return draw_chart("banavar-steps", "Matching steps", (7.5, 5), paint)
