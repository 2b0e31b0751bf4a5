"""The lateral links of the paper's network, which the other figures leave out.

The slides give them a delay of 50 ms and no place. With them the network has cycles, so the trees
of the publishers differ, and a link may lead away from one publisher and towards another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from distributary.model import Topology
from distributary.papers.banavar.brokers import (
    NETWORK,
    ClientFilters,
    Pool,
    build_brokers,
    subscription_count,
    visits,
)
from distributary.papers.banavar.load import FLOODING, LINKS, MUCH
from distributary.papers.banavar.load import PARAMS as LOAD_PARAMS
from distributary.papers.banavar.overload import COSTS_NOTE, BrokerSetting, busiest
from distributary.papers.banavar.steps import CENTRAL, hops
from distributary.papers.banavar.steps import PARAMS as STEP_PARAMS
from distributary.papers.drawing import INK, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import content_world

__all__ = ["CHOSEN", "NONE", "PLACES", "lateral", "network_with"]

DELAY = 0.050  # seconds, of a lateral link
NONE, CHOSEN = "none", "between regions, below the roots"
PLACES: Mapping[str, tuple[tuple[str, str], ...]] = {
    NONE: (),
    CHOSEN: (("0.0", "1.0"), ("1.1", "2.1"), ("0.2", "2.2")),
    "between regions, at the edge": (
        ("0.0.0", "1.0.0"),
        ("1.1.0", "2.1.0"),
        ("0.2.0", "2.2.0"),
    ),
    "inside regions, below the roots": tuple(
        (f"{region}.{a}", f"{region}.{b}")
        for region in range(3)
        for a, b in ((0, 1), (1, 2), (0, 2))
    ),
}
QUICK_PLACES = (NONE, CHOSEN)
STEP_PER_CLIENT, QUICK_STEP_PER_CLIENT = 26, 5
LOAD_PER_CLIENT, QUICK_LOAD_PER_CLIENT = 13, 5
SHARES = (0.002, 0.018)  # few and most
EVENTS, QUICK_EVENTS = 400, 60  # of each publisher
SOURCE = 'slides, sections "Simulated Network" and '
LOADING, TIME = '"Network Loading Results"', '"Matching Time Results"'
COLOURS = (INK, "#2272b5", "#cf8417", "#2a9179")
MARKS = ("s", "o", "^", "v")


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """What a place of the lateral links changes."""

    virtual: int  # links of all brokers to others, each once for every set of trees
    path: float  # brokers on the way of a delivery, on average
    delay: float  # of the links on that way, in seconds
    central: float  # steps
    by_hops: Mapping[int, float]  # steps on the way to a subscriber so many hops away
    rates: Mapping[float, float]  # share matched -> events/s of link matching
    flooding: float
    busiest: str  # the broker, under link matching with few matches

    @property
    def ahead(self) -> int:
        """The most hops over which link matching takes no more steps than one search."""
        return max((n for n, steps in self.by_hops.items() if steps <= self.central), default=0)


Places = Mapping[str, PlaceResult]


def network_with(links: Sequence[tuple[str, str]]) -> Topology:
    """The paper's network with these lateral links."""
    return Topology({**NETWORK.delays, **dict.fromkeys(links, DELAY)}, NETWORK.clients)


def lateral(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """Steps, delays and overload with lateral links in several places."""
    places = QUICK_PLACES if quick else tuple(PLACES)
    found = {}
    for done, place in enumerate(places):
        progress(Step("networks", done, len(places)))
        found[place] = _measure(network_with(PLACES[place]), quick, seed)
    progress(Step("networks", len(places), len(places)))
    each = QUICK_STEP_PER_CLIENT if quick else STEP_PER_CLIENT
    return Figure(
        name="banavar-lateral",
        title="Lateral links between the brokers",
        source='Banavar et al. (1999), slides, section "Simulated Network"',
        shown=(
            f"The paper's network with lateral links of {1e3 * DELAY:g} ms in three places, and "
            "without. On the left the mean matching steps on the way to a subscriber n hops away, "
            f"without factoring, at {subscription_count(each):,} subscriptions; dashed is one "
            "search for all matches. On the right the publish rate at which the busiest broker "
            "never rests, of link matching and of flooding."
        ),
        columns=("place", "quantity", "at", "value"),
        rows=tuple(row for place, result in found.items() for row in _rows(place, result)),
        chart=_chart(found),
        comparison="\n\n".join((_comparison(found), _change_words(found))),
        claims=(
            _more_claim(found[CHOSEN]),
            _narrow_claim(found[CHOSEN]),
            _up_to_claim(found[CHOSEN]),
            _beyond_claim(found[CHOSEN]),
        ),
        notes=(
            "The slides name the links right after the delays of the levels: top-level brokers, "
            f"levels below, then lateral links of {1e3 * DELAY:g} ms. Lateral is read as sideways: "
            "between brokers of the same level, and of different regions, for inside a region two "
            "such brokers are already as near by way of the one above them. One link for each pair "
            "of regions, a level below the roots, is the place by which the claims are judged. It "
            "was chosen before the networks were run. Two other places are shown beside it.",
            "Best paths go by delay, then by hops. A message from one region to another saves up "
            "to 75 ms sideways; inside a region a lateral link is as fast as the way by the root "
            "of the region, and taken because it has fewer hops.",
            "Where some brokers behind a link are downstream of one publisher and not of another, "
            "the link is split into virtual ones; otherwise events would be forwarded for "
            "destinations that get them elsewhere.",
            COSTS_NOTE,
            "Rates are of the mean work of the busiest broker; the limits of "
            "[banavar-load](banavar-load.md) are about 3 events/s above these.",
            f"*Much higher* is read as at least {MUCH} times.",
        ),
        own=(
            "Link matching and flooding are the paper's; ours is the splitting into virtual links, "
            "without which the paper's masks send more than is needed on a network with cycles. "
            "Our own brokers know no cycles: each subscription has one way, and a link that would "
            "close a cycle is refused ([content routing](../content-routing.md)). So no curve of "
            "theirs belongs here."
        ),
        quick=quick,
        seed=seed,
    )


# --- measuring -----------------------------------------------------------------------------------


def _measure(topology: Topology, quick: bool, seed: int) -> PlaceResult:
    events = QUICK_EVENTS if quick else EVENTS
    per_client = QUICK_STEP_PER_CLIENT if quick else STEP_PER_CLIENT
    rng = np.random.default_rng([seed, 6])
    world = content_world(STEP_PARAMS, np.random.default_rng(seed))
    pool = Pool.draw(world, events, rng)
    subscriptions = ClientFilters.draw(world, topology, per_client, rng)
    _, central = subscriptions.tree.count(subscriptions.axes.codes(pool.table))
    steps: defaultdict[int, list[float]] = defaultdict(list)
    paths: list[tuple[int, float]] = []
    brokers = build_brokers(LINKS, topology, subscriptions, pool)
    for root, published in pool.events.items():
        delays = _delays(topology, root)
        for keys in published:
            for visit in visits(brokers, root, keys):
                if visit.receivers:
                    steps[visit.hops].append(visit.steps)
                    paths += [(visit.hops, delays[visit.broker])] * len(visit.receivers)
    path, delay = np.mean(paths, axis=0).tolist()
    loads = {share: _load(LINKS, topology, share, quick, seed) for share in SHARES}
    few, most = (busiest(load.work()) for load in loads.values())
    return PlaceResult(
        virtual=sum(len(topology.links(name).virtual) for name in topology.brokers),
        path=path,
        delay=delay,
        central=float(central.mean()),
        by_hops={n: float(np.mean(values)) for n, values in sorted(steps.items())},
        rates=dict(zip(SHARES, (few[1], most[1]), strict=True)),
        flooding=busiest(_load(FLOODING, topology, SHARES[0], quick, seed).work())[1],
        busiest=few[0],
    )


def _delays(topology: Topology, root: str) -> dict[str, float]:
    """The delay of the links from the root to each broker."""
    both = {**topology.delays, **{(b, a): delay for (a, b), delay in topology.delays.items()}}
    tree = topology.tree(root)
    return {
        broker: sum(both[link] for link in pairwise(tree.path(broker)))
        for broker in topology.brokers
    }


def _load(policy: str, topology: Topology, share: float, quick: bool, seed: int) -> BrokerSetting:
    world = content_world(LOAD_PARAMS, np.random.default_rng(seed)).with_matching_share(share)
    per_client = QUICK_LOAD_PER_CLIENT if quick else LOAD_PER_CLIENT
    rng = np.random.default_rng([seed, 7])
    subscriptions = ClientFilters.draw(world, topology, per_client, rng)
    pool = Pool.draw(world, QUICK_EVENTS if quick else EVENTS, rng)
    return BrokerSetting(topology, build_brokers(policy, topology, subscriptions, pool), pool)


def _rows(place: str, result: PlaceResult) -> list[tuple[str, str, str, float]]:
    return [
        (place, "virtual links", "", float(result.virtual)),
        (place, "brokers on the way", "", result.path),
        (place, "delay of the links, s", "", result.delay),
        (place, "steps", CENTRAL, result.central),
        *((place, "steps", hops(n), value) for n, value in result.by_hops.items()),
        *((place, "events/s", f"{share:g}", rate) for share, rate in result.rates.items()),
        (place, "events/s", FLOODING, result.flooding),
    ]


# --- reporting -----------------------------------------------------------------------------------


def _comparison(found: Places) -> str:
    far = max(n for result in found.values() for n in result.by_hops)
    return table(
        ("ours", *found, "paper", "independent"),
        (
            ("lateral links", *(str(len(PLACES[place])) for place in found), NOTHING, NOTHING),
            ("virtual links", *(str(each.virtual) for each in found.values()), NOTHING, NOTHING),
            (
                "brokers on the way of a delivery",
                *(f"{each.path:.2f}" for each in found.values()),
                NOTHING,
                NOTHING,
            ),
            (
                "delay of its links",
                *(f"{1e3 * each.delay:.0f} ms" for each in found.values()),
                NOTHING,
                NOTHING,
            ),
            (
                f"steps, {CENTRAL}",
                *(f"{each.central:.0f}" for each in found.values()),
                NOTHING,
                NOTHING,
            ),
            *(
                (
                    f"steps over {hops(n)}",
                    *(
                        f"{each.by_hops[n]:.0f}" if n in each.by_hops else NOTHING
                        for each in found.values()
                    ),
                    NOTHING if n < 3 or n > 6 else f"{'≤' if n <= 4 else '>'} {CENTRAL}",
                    NOTHING,
                )
                for n in range(1, far + 1)
            ),
            *(
                (
                    f"events/s, {100 * share:g} % match",
                    *(f"{each.rates[share]:.0f}" for each in found.values()),
                    NOTHING,
                    NOTHING,
                )
                for share in SHARES
            ),
            (
                "events/s, flooding",
                *(f"{each.flooding:.0f}" for each in found.values()),
                NOTHING,
                NOTHING,
            ),
            ("busiest broker", *(each.busiest for each in found.values()), NOTHING, NOTHING),
        ),
    )


def _change_words(found: Places) -> str:
    """What the lateral links change in the place by which the claims are judged."""
    before, after = found[NONE], found[CHOSEN]
    few, most = (
        percent(after.rates[share] / before.rates[share] - 1, signed=True) for share in SHARES
    )
    return (
        f"Lateral links {CHOSEN} change the way of a delivery by "
        f"{after.path - before.path:+.2f} brokers and "
        f"{1e3 * (after.delay - before.delay):+.0f} ms on average. Link matching bears {few} "
        f"events/s where {100 * SHARES[0]:g} % match and {most} where {100 * SHARES[1]:g} % do, "
        f"flooding {percent(after.flooding / before.flooding - 1, signed=True)}: events from one "
        "region to another need not pass the regions' roots. Link matching takes no more steps "
        f"than one search up to {hops(after.ahead)}, without lateral links up to "
        f"{hops(before.ahead)}."
    )


def _more_claim(found: PlaceResult) -> Claim:
    lead = found.rates[SHARES[0]] / found.flooding
    return Claim(
        "with lateral links, link matching bears much higher publish rates than flooding where "
        "few subscriptions match",
        SOURCE + LOADING,
        f"{lead:.1f} times at {100 * SHARES[0]:g} %",
        lead >= MUCH,
    )


def _narrow_claim(found: PlaceResult) -> Claim:
    few, most = (rate / found.flooding for rate in found.rates.values())
    return Claim(
        "with lateral links, the difference is not as great when events are distributed widely",
        SOURCE + LOADING,
        f"from {few:.1f} to {most:.1f} times flooding's rate",
        most < few,
    )


def _up_to_claim(found: PlaceResult) -> Claim:
    over = [n for n in (3, 4) if n in found.by_hops]
    return Claim(
        "with lateral links, at 10,000 subscriptions link matching over up to 4 hops takes no "
        "more steps than centralised matching",
        SOURCE + TIME,
        _against(found, over),
        all(found.by_hops[n] <= found.central for n in over),
    )


def _beyond_claim(found: PlaceResult) -> Claim:
    over = [n for n in found.by_hops if n > 4]
    return Claim(
        "with lateral links, over more than 4 hops it takes more",
        SOURCE + TIME,
        _against(found, over),
        bool(over) and all(found.by_hops[n] > found.central for n in over),
    )


def _against(found: PlaceResult, over: Sequence[int]) -> str:
    words = [f"{found.by_hops[n]:.0f} over {hops(n)}" for n in over]
    return f"{join_words(words)} against {found.central:.0f}"


def _chart(found: Places) -> str:
    def paint(sheet: Sheet) -> None:
        left, right = sheet.panels
        for (place, result), colour, mark in zip(found.items(), COLOURS, MARKS, strict=False):
            label = "no lateral links" if place == NONE else place
            left.plot(
                list(result.by_hops),
                list(result.by_hops.values()),
                color=colour,
                marker=mark,
                label=label,
            )
            shares = [100 * share for share in result.rates]
            right.plot(shares, list(result.rates.values()), color=colour, marker=mark)
            right.axhline(result.flooding, color=colour, linestyle=":", linewidth=1.2)
        left.axhline(found[NONE].central, color=INK, linestyle="--", linewidth=1)
        left.set(xlabel="hops", ylabel="matching steps", ylim=(0, None))
        right.set(xlabel="percent of subscriptions matching (flooding: dotted)")
        right.set(ylabel="events/s of each publisher", xlim=(0, 2), ylim=(0, None))
        draw_legend(sheet, columns=2)

    return draw_chart("banavar-lateral", "Lateral links", (9, 4.5), paint, shape=(1, 2))
