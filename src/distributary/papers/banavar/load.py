"""The publish rate at which a network overloads: link matching against flooding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distributary.matching import TreeOptions
from distributary.papers.banavar.brokers import (
    FACTORED,
    NETWORK,
    PUBLISHERS,
    TREE,
    ClientFilters,
    Pool,
    build_brokers,
    subscription_count,
)
from distributary.papers.banavar.overload import (
    COSTS,
    COSTS_NOTE,
    BrokerCosts,
    BrokerSetting,
    OverloadSearch,
    busiest,
    find_limit,
)
from distributary.papers.drawing import QUIET, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, span, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import ContentParams, ContentWorld, content_world

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FLOODING", "LINKS", "MUCH", "OURS", "PARAMS", "load", "make_setting"]

PARAMS = ContentParams(attributes=15, values=3)
SHARES = (0.0005, 0.002, 0.006, 0.010, 0.014, 0.018)
QUICK_SHARES = (0.002, 0.018)
PER_CLIENT = (13, 25, 38)  # 5,070, 9,750 and 14,820 subscriptions
QUICK_PER_CLIENT = (13,)
EVENTS, QUICK_EVENTS = 400, 100  # per publisher, published cyclically
RUN = OverloadSearch(seconds=8.0, width=10.0)
QUICK_RUN = OverloadSearch(seconds=1.0, width=20.0, threshold=15)
LINKS, FLOODING = "link-matching", "flooding"
OURS = "link-matching, factoring"
OUR_SHARES, QUICK_OUR_SHARES = (0.0005, 0.002, 0.018), (0.002,)
OUR_PER_CLIENT, QUICK_OUR_PER_CLIENT = (13, 38), (13,)
STEP_COSTS = (1e-6, 5e-6, 10e-6)  # seconds; alternative costs of a step
INDEPENDENT: Mapping[float, tuple[int, ...]] = {0.002: (310, 240, 217), 0.018: (163, 128, 114)}
INDEPENDENT_FLOODING = 77
AXIS = 350  # the end of the chart's axis
MUCH = 2  # the least factor that counts as much higher
SOURCE = 'slides, section "Network Loading Results"'
LOOKS = {13: ("#6aaed6", "o"), 25: ("#2272b5", "s"), 38: ("#083471", "v")}
FLOOD_COLOUR = "#d1361c"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The highest load of one network, in events/s of each publisher."""

    limit: float  # as simulated
    full: float  # the rate at which the busiest broker is never idle, by its mean work
    other: tuple[float, ...] = ()  # the same with other costs of a step


Points = Mapping[tuple[str, float, int], LoadPoint]  # policy, share, per client


def load(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The highest publish rate without overload against the share of subscriptions matched."""
    run = QUICK_RUN if quick else RUN
    points = _measure(quick, run, seed, progress)
    return Figure(
        name="banavar-load",
        title="The publish rate at which the network overloads",
        source=f"Banavar et al. (1999), {SOURCE}",
        shown=(
            "Events/s that each of three publishers can publish before some broker overloads, "
            "against the share of subscriptions that an event matches. "
            f"{PARAMS.attributes} attributes of {PARAMS.values} values, 39 brokers, simulated for "
            f"{run.seconds:g} s at each rate and known to ± {run.width / 2:g} events/s."
        ),
        columns=("policy", "matching_percent", "subscriptions", "max_rate", "full_rate"),
        rows=tuple(
            (policy, round(100 * share, 3), subscription_count(each), found.limit, found.full)
            for (policy, share, each), found in points.items()
        ),
        chart=_chart(points),
        comparison="\n\n".join((_rate_table(points), _cost_table(points))),
        claims=(_more_claim(points), _flat_claim(points, run), _narrow_claim(points)),
        notes=_notes(run),
        own=_own_words(points),
        quick=quick,
        seed=seed,
    )


def _notes(run: OverloadSearch) -> tuple[str, ...]:
    bias = run.threshold / len(PUBLISHERS) / run.seconds
    return (
        COSTS_NOTE,
        "Three sets of costs were tried, all with flooding at 77 events/s. In trial runs 1 ms "
        "for a message taken in, 0.25 ms for one sent and 5 µs for a step gave 192, 155 and 141 "
        "events/s at 0.2 % and 146, 112 and 95 at 1.8 %; 0.3 ms, 0.3 ms and 5 µs gave 241, 195 "
        "and 167, and 153, 128 and 103. The third, 2 µs for a step, was chosen with the "
        "independent numbers in view, so their agreement with ours confirms nothing. The order "
        "and the shape of the curves do not depend on the choice.",
        "All that the slides say of the cost of a step is that the extra time of link matching "
        "over more than four hops, 40 to 90 steps here, is much less than 1 ms: 1 or 5 µs would "
        "also satisfy that. The second table shows the results for these costs, by the mean work "
        "of the busiest broker.",
        "Under flooding a broker sends each event to all its clients and matches nothing; what "
        "clients discard costs the broker no time. So flooding cannot depend on the number of "
        "subscriptions here, but it was run for each of them.",
        f"A network is overloaded if more than {run.threshold} messages wait at some broker at "
        "some time of the run: the paper's own estimate of the threshold. A rate that is just "
        f"too high takes a while to reach the threshold, so limits are about {bias:.0f} events/s "
        "above the rate at which the busiest broker is never idle, which the CSV file also has.",
        "The matching share is set by how fast tests become rarer from one attribute to the "
        "next. Publishers are at the edge of the three regions and publish as Poisson processes; "
        "all rates use the same draw, scaled in time.",
        "The slides' chart is a picture whose numbers are not in their text, so the smallest "
        f"share on its curves is unknown. Its axis ends at {AXIS} events/s, which our curves "
        "exceed if less than 0.2 % match.",
        f"*Much higher* is read as at least {MUCH} times.",
    )


# --- measuring -----------------------------------------------------------------------------------


def make_setting(
    policy: str,
    world: ContentWorld,
    per_client: int,
    events: int,
    seed: int,
    options: TreeOptions = TREE,
) -> BrokerSetting:
    """The paper's network under a policy; subscriptions and events depend on the seed alone."""
    rng = np.random.default_rng([seed, 1, per_client])
    subscriptions = ClientFilters.draw(world, NETWORK, per_client, rng, options)
    pool = Pool.draw(world, events, np.random.default_rng([seed, 2]))
    return BrokerSetting(NETWORK, build_brokers(policy, NETWORK, subscriptions, pool), pool)


def _measure(quick: bool, run: OverloadSearch, seed: int, progress: Progress) -> Points:
    shares = QUICK_SHARES if quick else SHARES
    sizes = QUICK_PER_CLIENT if quick else PER_CLIENT
    todo = [(LINKS, share, each) for each in sizes for share in shares]
    todo += [(FLOODING, shares[0], each) for each in (PER_CLIENT[:2] if quick else PER_CLIENT)]
    our_shares = QUICK_OUR_SHARES if quick else OUR_SHARES
    our_sizes = QUICK_OUR_PER_CLIENT if quick else OUR_PER_CLIENT
    todo += [(OURS, share, each) for each in our_sizes for share in our_shares]
    tastes = content_world(PARAMS, np.random.default_rng(seed))
    points = {}
    for done, (policy, share, each) in enumerate(todo):
        progress(Step("networks", done, len(todo)))
        world = tastes.with_matching_share(share)
        events = QUICK_EVENTS if quick else EVENTS
        name, options = (LINKS, FACTORED) if policy == OURS else (policy, TREE)
        found = make_setting(name, world, each, events, seed, options)
        points[policy, share, each] = _point(found, run, seed)
    progress(Step("networks", len(todo), len(todo)))
    return points


def _point(found: BrokerSetting, run: OverloadSearch, seed: int) -> LoadPoint:
    work = found.work()
    _, full = busiest(work)
    other = (busiest(work, BrokerCosts(step=cost))[1] for cost in STEP_COSTS)
    highest = find_limit(lambda rate: found.overloads(rate, run, [seed, 3]), full, run.width)
    return LoadPoint(highest, full, tuple(other))


# --- reporting -----------------------------------------------------------------------------------


def _links(points: Points, of: str = LINKS) -> dict[int, dict[float, LoadPoint]]:
    """The points of link matching, or of ours: per client -> share -> point."""
    found: dict[int, dict[float, LoadPoint]] = {}
    for (policy, share, each), point in points.items():
        if policy == of:
            found.setdefault(each, {})[share] = point
    return found


def _flood(points: Points) -> list[float]:
    return [point.limit for (policy, _, _), point in points.items() if policy == FLOODING]


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _rate_table(points: Points) -> str:
    flood = span(f"{min(_flood(points)):.0f}", f"{max(_flood(points)):.0f}")
    rows = [
        (
            f"{_percent(share)} match, {subscription_count(each):,} subscriptions",
            f"{point.limit:.0f}",
            NOTHING,
            _independent(share, each),
        )
        for each, by_share in _links(points).items()
        for share, point in by_share.items()
    ]
    rows.append(("flooding, whatever matches", flood, NOTHING, str(INDEPENDENT_FLOODING)))
    every = sorted(point.limit for (policy, _, _), point in points.items() if policy != OURS)
    rows.append(
        ("all points", f"{every[0]:.0f} to {every[-1]:.0f}", f"0 to {AXIS} (axis)", NOTHING)
    )
    return table(("events/s per publisher", "ours", "paper", "independent"), rows)


def _own_words(points: Points) -> str:
    theirs = _links(points)
    rows = [
        (
            f"{_percent(share)} match, {subscription_count(each):,} subscriptions",
            f"{own.limit:.0f}",
            f"{paper.limit:.0f}",
            percent(own.full / paper.full - 1, signed=True),
        )
        for each, by_share in _links(points, OURS).items()
        for share, own in by_share.items()
        for paper in [theirs[each][share]]
    ]
    return "\n\n".join(
        (
            "Our brokers search a tree with factoring, whose index replaces the first tests (see "
            "[banavar-steps](banavar-steps.md)). The less a message costs beside the steps of its "
            "match, the more that brings; with the costs assumed here, a message sent costs as "
            f"much as {COSTS.sent / COSTS.step:.0f} steps. The last column goes by the rate at "
            "which the busiest broker never rests.",
            table(("events/s per publisher", "ours", "the paper's tree", "ours bears"), rows),
        )
    )


def _independent(share: float, per_client: int) -> str:
    found = INDEPENDENT.get(share)
    return str(found[PER_CLIENT.index(per_client)]) if found else NOTHING


def _cost_table(points: Points) -> str:
    """The greatest load of the busiest broker if steps had other costs."""
    steps = (STEP_COSTS[0], COSTS.step, *STEP_COSTS[1:])
    return table(
        ("ours, never at rest", *(f"{1e6 * step:g} µs a step" for step in steps)),
        (
            (
                f"{_percent(share)} match, {subscription_count(each):,} subscriptions",
                *(f"{rate:.0f}" for rate in (point.other[0], point.full, *point.other[1:])),
            )
            for each, by_share in _links(points).items()
            for share, point in by_share.items()
            if share in INDEPENDENT
        ),
    )


def _more_claim(points: Points) -> Claim:
    """The claim concerns few matches; the least lead is where most match."""
    flood = max(_flood(points))
    few = min(share for _, share, _ in points)
    lead = {each: by_share[few].limit / flood for each, by_share in _links(points).items()}
    every = [point.limit for by_share in _links(points).values() for point in by_share.values()]
    words = [f"{ratio:.1f} times with {subscription_count(n):,}" for n, ratio in lead.items()]
    return Claim(
        "link matching bears much higher publish rates than flooding where few subscriptions match",
        SOURCE,
        f"at {_percent(few)} {join_words(words)} subscriptions; "
        f"{'more' if min(every) > flood else 'not more'} at every share",
        min(lead.values()) >= MUCH and min(every) > flood,
    )


def _flat_claim(points: Points, run: OverloadSearch) -> Claim:
    flood = _flood(points)
    return Claim(
        "flooding overloads at the same rate, whatever the number of subscriptions",
        SOURCE,
        f"at {span(f'{min(flood):.0f}', f'{max(flood):.0f}')} events/s",
        max(flood) - min(flood) <= run.width,
    )


def _narrow_claim(points: Points) -> Claim:
    flood = max(_flood(points))
    leads = [
        (by_share[min(by_share)].limit / flood, by_share[max(by_share)].limit / flood)
        for by_share in _links(points).values()
    ]
    few, most = (_percent(f(share for _, share, _ in points)) for f in (min, max))
    words = [f"from {before:.1f} to {after:.1f} times" for before, after in leads]
    return Claim(
        "the difference is not as great when events are distributed widely",
        SOURCE,
        f"{join_words(words)} flooding's rate as the share grows from {few} to {most}",
        all(after < before for before, after in leads),
    )


def _chart(points: Points) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for each, by_share in _links(points).items():
            colour, mark = LOOKS[each]
            x = [100 * share for share in by_share]
            y = [point.limit for point in by_share.values()]
            label = f"LM, {subscription_count(each):,} subscriptions"
            axes.plot(x, y, color=colour, marker=mark, label=label)
            _dot_independent(axes, each, colour)
        for each, by_share in _links(points, OURS).items():
            colour, _ = LOOKS[each]
            x = [100 * share for share in by_share]
            y = [point.limit for point in by_share.values()]
            label = f"ours, {subscription_count(each):,} subscriptions"
            axes.plot(x, y, "*", color=colour, markersize=10, label=label)
        axes.axhline(float(np.mean(_flood(points))), color=FLOOD_COLOUR, label="flooding")
        axes.plot([], [], "D", color=QUIET, markerfacecolor="none", label="independent")
        axes.set(xlabel="percent of subscriptions matching an event", xlim=(0, 2), ylim=(0, None))
        axes.set(ylabel="max publish rate per publisher, events/s")
        axes.legend(loc="upper right")

    return draw_chart("banavar-load", "Overload against matching share", (7.5, 5), paint)


def _dot_independent(axes: Axes, per_client: int, colour: str) -> None:
    x = [100 * share for share in INDEPENDENT]
    y = [rates[PER_CLIENT.index(per_client)] for rates in INDEPENDENT.values()]
    axes.plot(x, y, "D", color=colour, markerfacecolor="none", markersize=5.5)
