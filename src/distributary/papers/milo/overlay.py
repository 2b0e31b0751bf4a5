"""Table 2 on real trees: the clusters that a run forms, on a ring of Pastry peers with Scribe.

Each user is a peer. Every channel is a tree that its subscribers join by messages; keep-alives and
events are sent down it and counted, with the helper peers that only forward. Table 2 prices trees
by the mean size of trees with as many random subscribers.

Then clusters form in a network of peers (`peers`), with all their messages sent, and users that
come, leave and crash.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.topics import clustering_cost, unclustered_cost
from distributary.model import FloatArray, IntArray
from distributary.model.topics import BoolArray, Clustering
from distributary.papers.drawing import QUIET, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.algorithms import (
    PRICES,
    CostChange,
    RoundsPolicy,
    play,
    price_change,
    rounds_of,
    tree_prices,
)
from distributary.papers.milo.baselines import starting_clustering
from distributary.papers.milo.peers import FULL_RING, QUICK_RING, RingCase, RingOutcome
from distributary.papers.milo.readings import DECISIONS
from distributary.papers.milo.ring_tables import (
    RINGS_NOTES,
    Rings,
    describe_rings,
    measure_saving,
    ring_claims,
    ring_rows,
    ring_tables,
)
from distributary.papers.milo.runs import FULL, QUICK, ClusteringCase, Scale
from distributary.papers.milo.world import INTERVALS_PER_DAY, MODELS
from distributary.papers.processes import run_apart
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.topics import topic_channel
from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.simulation import OverlayNetwork

__all__ = ["OverlayCase", "Trees", "carry_on_trees", "overlay"]

USERS = 1_000
SEEDS = 2
NEAR = 5.0  # percentage points of OC
_HOUR = 3_600.0
# Long periods: what is counted is one period of keep-alives, and the events.
_PARAMETERS = OverlayParameters(leaf_period=_HOUR, tree_period=_HOUR)
_SETTLE = 60.0  # seconds for all trees to form
_HOP_SAMPLES = 2_000
COLOURS = {"paper": "#8b9299", "prices": "#cf8417", "trees": "#2f74c0"}


@dataclass(frozen=True, slots=True)
class Trees:
    """The messages of all trees: keep-alives per interval, and those of one event by channel."""

    maintenance: float
    events: FloatArray
    hops: float  # from a subscriber to the root


@dataclass(frozen=True, slots=True)
class Carried:
    """One case: costs against plain Scribe by the paper's prices, by tree prices, and as sent.

    `excess` is by how much more the real trees send than tree prices say, for the clusters and for
    plain Scribe. `control` is the overhead as a share of plain Scribe's messages, if each control
    message is routed to its root.
    """

    paper: CostChange
    prices: CostChange
    trees: CostChange
    excess: float
    plain_excess: float
    hops: float
    control: float
    clusters: int


@dataclass(frozen=True, slots=True)
class OverlayCase:
    """One model of events and one seed of a growing system, for one algorithm."""

    case: ClusteringCase

    @property
    def is_large(self) -> bool:
        """Whether it is worth a process of its own."""
        return self.case.is_large

    def run(self) -> Carried:
        """Form the clusters, deciding by the sizes of trees, and carry them on an overlay."""
        case, (name,) = self.case, self.case.algorithms
        course, scale = case.course(), case.scale
        prices = tree_prices(scale.world.users)
        state = starting_clustering(course.before, course.start, course.frequency, prices)
        policy = RoundsPolicy(name, case.reading, prices)
        rounds = rounds_of(policy, state, course.frequency, scale.days, scale.plans, case.seed)
        duration = float(scale.days * INTERVALS_PER_DAY)
        outcome = play(rounds, course.requests, duration, scale.moments)
        return _compare(rounds.clustering, course.frequency, outcome.change.overhead, case.seed)


def _compare(state: Clustering, frequency: FloatArray, overhead: float, seed: int) -> Carried:
    """What the clusters cost by prices and on real trees."""
    members = [
        *(np.flatnonzero(state.direct[:, topic]) for topic in range(state.n_topics)),
        *(np.flatnonzero(state.member[:, cluster]) for cluster in state.clusters),
    ]
    names = [
        *(topic_channel(f"t{topic}") for topic in range(state.n_topics)),
        *(f"cluster/{cluster}" for cluster in state.clusters),
    ]
    flows = np.array(
        [*frequency, *(float(frequency[state.carries[c]].sum()) for c in state.clusters)]
    )
    plain = [np.flatnonzero(state.wants[:, topic]) for topic in range(state.n_topics)]
    shared = carry_on_trees(state.n_subscribers, names, members, seed)
    alone = carry_on_trees(state.n_subscribers, names[: state.n_topics], plain, seed)
    # Each event is handed to the root of its topic, and from there to those of its clusters.
    notify = PRICES.notify
    dissemination = float((flows * (notify + shared.events)).sum())
    plain_dissemination = float((frequency * (notify + alone.events)).sum())
    sent = shared.maintenance + dissemination
    plain_sent = alone.maintenance + plain_dissemination
    prices = tree_prices(state.n_subscribers)
    return Carried(
        paper=price_change(state, frequency, overhead, PRICES),
        prices=price_change(state, frequency, overhead, prices),
        trees=CostChange(
            shared.maintenance / alone.maintenance - 1,
            dissemination / plain_dissemination - 1,
            sent / plain_sent - 1,
            overhead,
        ),
        excess=sent / clustering_cost(state, frequency, prices).cost - 1,
        plain_excess=plain_sent / _price_plain(state.wants, frequency, prices) - 1,
        hops=shared.hops,
        # Overhead is a share of Scribe's cost by the paper's prices.
        control=overhead * shared.hops * _price_plain(state.wants, frequency, PRICES) / plain_sent,
        clusters=len(state.clusters),
    )


def _price_plain(wants: BoolArray, frequency: FloatArray, prices: OperatingPrices) -> float:
    return sum(unclustered_cost(wants.sum(axis=0), frequency, prices))


def carry_on_trees(
    peers: int, channels: Sequence[str], members: Sequence[IntArray], seed: int
) -> Trees:
    """Let members join the trees of their channels, and count what these send.

    One period of keep-alives is counted over all trees, and one event in each of them.
    """
    network = OverlayNetwork.build_converged(
        [f"u{at}" for at in range(peers)], np.random.default_rng([seed, 7]), _PARAMETERS
    )
    for channel, users in zip(channels, members, strict=True):
        for user in users:
            network.subscribe(f"u{user}", channel)
    network.run(_SETTLE)
    events = np.zeros(len(channels))
    for at, (channel, users) in enumerate(zip(channels, members, strict=True)):
        if len(users):
            events[at] = _count_event(network, channel)
    before = network.count_messages()["tree-keep-alive"]
    network.run(_HOUR)
    kept = network.count_messages()["tree-keep-alive"] - before
    hops = _measure_hops(network, channels, members, np.random.default_rng([seed, 8]))
    return Trees(float(kept), events, hops)


def _count_event(network: OverlayNetwork, channel: str) -> int:
    before = network.count_messages()["event"]
    network.publish(network.owner(channel), channel, b"")
    network.run(5.0)
    return network.count_messages()["event"] - before


def _measure_hops(
    network: OverlayNetwork,
    channels: Sequence[str],
    members: Sequence[IntArray],
    rng: np.random.Generator,
) -> float:
    """The mean number of hops from subscribers to the roots of their channels."""
    pairs = [
        (channel, user)
        for channel, users in zip(channels, members, strict=True)
        for user in users.tolist()
    ]
    chosen = rng.choice(len(pairs), min(len(pairs), _HOP_SAMPLES), replace=False)
    hops = 0
    for at in chosen.tolist():
        channel, user = pairs[at]
        key, peer = identifier(channel), network.peers[f"u{user}"]
        while (hop := peer.pastry.next_hop(key)) is not None:
            hops += 1
            peer = network.peers[hop.name]
    return hops / len(chosen)


# --- the figure ----------------------------------------------------------------------------------

Found = dict[tuple[str, str], list[Carried]]


def overlay(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """Table 2's rows on the trees of an overlay, beside the same rows with prices only."""
    found, rings = _measure(_cases(quick=quick, seed=seed), progress)
    users, ring_scale = _scale(quick).world.users, QUICK_RING if quick else FULL_RING
    return Figure(
        name="milo-overlay",
        title="Clusters of a growing system on Scribe's trees",
        source="Milo et al. (2007), Table 2 and sections 2 and 5.2",
        shown=(
            f"{users:,} users join an empty system, as for Table 2. Channels decide by the sizes "
            "of trees with helper peers. The clusters at the end are put on a ring of as many "
            "peers: each channel becomes a tree that its subscribers join, and its keep-alives of "
            "one interval and one event are sent and counted. "
            f"{'One seed' if quick else f'Means of {SEEDS} seeds'}."
            f"\n\n{describe_rings(ring_scale)}"
        ),
        columns=_COLUMNS,
        rows=(*_rows(found, users), *ring_rows(rings, ring_scale.world.users)),
        chart=_chart(found, rings),
        comparison="\n\n".join((_saving_table(found), _distance_table(found), ring_tables(rings))),
        claims=(*(_claim(found, model) for model in MODELS), *ring_claims(rings)),
        notes=(*_NOTES, *RINGS_NOTES, DECISIONS),
        quick=quick,
        seed=seed,
        own=_own(found),
    )


_COLUMNS = (
    *("model", "algorithm", "seed", "way", "maintenance", "dissemination", "cost"),
    *("excess", "plain_excess", "hops", "control", "clusters", "users"),
)
_NOTES = (
    "*Paper's prices* count subscribers, *tree prices* the mean size of trees with as many random "
    "subscribers, measured once for a ring of this size. *Sent* counts messages between peers.",
    "A keep-alive goes from each parent to each child once per maintenance interval. An event "
    "costs one message to the root of its topic, one to the root of each cluster with the topic, "
    "and one for each edge of these trees. Tree prices count all peers of a tree, the root "
    "included: one more than its edges. They also count one message per interval for each topic "
    "of a cluster; peers send none, because a cluster and a topic tell each other of changes.",
    "Copies of channels at other peers, which the paper does not have, are not counted: three "
    "messages for each change of a channel and as many answers, for each event of a topic.",
    "Control messages are those of the run (surveys, joins, merges). Each is counted with all hops "
    "from a subscriber to a root, although only the first one of a subscriber to a channel needs "
    "them.",
    "The paper prints no numbers for trees with helper peers, and we know no independent ones.",
)


def _scale(quick: bool) -> Scale:
    return QUICK if quick else replace(FULL, world=replace(FULL.world, users=USERS))


def _cases(*, quick: bool, seed: int) -> list[OverlayCase | RingCase]:
    clusterings = [
        OverlayCase(ClusteringCase(model, _scale(quick), seed + at, (name,), trees=True))
        for at in range(1 if quick else SEEDS)
        for model in MODELS
        for name in ("Tamara", "ours")
    ]
    rings = [
        RingCase(model, QUICK_RING if quick else FULL_RING, seed, clusters)
        for model in (("Average",) if quick else MODELS)
        for clusters in (False, True)
    ]
    return [*clusterings, *rings]


def _measure(cases: Sequence[OverlayCase | RingCase], progress: Progress) -> tuple[Found, Rings]:
    progress(Step("runs", 0, len(cases)))
    ended: dict[OverlayCase | RingCase, Carried | RingOutcome] = {}
    with closing(_run_all(cases)) as running:
        for done, (each, outcome) in enumerate(running, 1):
            ended[each] = outcome
            progress(Step("runs", done, len(cases)))
    found: Found = {}
    rings: dict[tuple[str, bool], RingOutcome] = {}
    for each in cases:
        match each, ended[each]:
            case OverlayCase(ClusteringCase(model=model, algorithms=(name,))), Carried() as carried:
                found.setdefault((model, name), []).append(carried)
            case RingCase(model=model, clusters=clusters), RingOutcome() as outcome:
                rings[model, clusters] = outcome
    pairs = {model: (rings[model, False], rings[model, True]) for model, _ in rings}
    return found, pairs


def _run_all(
    cases: Sequence[OverlayCase | RingCase],
) -> Generator[tuple[OverlayCase | RingCase, Carried | RingOutcome], None, None]:
    if not any(each.is_large for each in cases):
        return ((each, each.run()) for each in cases)
    return run_apart(_run_case, cases)


def _run_case(case: OverlayCase | RingCase) -> Carried | RingOutcome:
    return case.run()


def _rows(found: Found, users: int) -> tuple[tuple[str | int | float, ...], ...]:
    return tuple(
        (
            *(model, name, at, way, change.maintenance, change.dissemination, change.cost),
            *(each.excess, each.plain_excess, each.hops, each.control, each.clusters),
            users,
        )
        for (model, name), several in found.items()
        for at, each in enumerate(several)
        for way, change in (("paper", each.paper), ("prices", each.prices), ("trees", each.trees))
    )


def _mean(found: Found, key: tuple[str, str], way: str) -> CostChange:
    return CostChange.mean([getattr(each, way) for each in found[key]])


def _triple(change: CostChange) -> str:
    parts = (change.maintenance, change.dissemination, change.cost)
    return " / ".join(percent(part, 1, signed=True) for part in parts)


def _saving_table(found: Found) -> str:
    rows = [
        (
            f"{model}, {name}",
            _triple(_mean(found, (model, name), "paper")),
            _triple(_mean(found, (model, name), "prices")),
            _triple(_mean(found, (model, name), "trees")),
            NOTHING,
        )
        for model, name in found
    ]
    header = ("MC / DC / OC against plain Scribe", "paper's prices", "tree prices", "sent", "paper")
    return table(header, rows)


def _distance_table(found: Found) -> str:
    def mean(several: Sequence[Carried], what: str) -> float:
        return float(np.mean([getattr(each, what) for each in several]))

    rows = [
        (
            f"{model}, {name}",
            f"{mean(several, 'clusters'):.0f}",
            percent(mean(several, "excess"), 1, signed=True),
            percent(mean(several, "plain_excess"), 1, signed=True),
            f"{mean(several, 'hops'):.2f}",
            percent(mean(several, "control"), 2),
        )
        for (model, name), several in found.items()
    ]
    header = (
        *("", "clusters", "sent, against tree prices", "the same for plain Scribe"),
        *("hops to a root", "control messages, of plain Scribe's"),
    )
    return table(header, rows)


def _claim(found: Found, model: str) -> Claim:
    """The paper's ranking of costs holds on trees if the saving is what the prices say."""
    prices = 100 * _mean(found, (model, "Tamara"), "prices").cost
    sent = 100 * _mean(found, (model, "Tamara"), "trees").cost
    return Claim(
        f"{model} events: clusters of Tamara save on Scribe what the cost model says",
        "section 2",
        f"OC {sent:+.1f} % sent, {prices:+.1f} % by the sizes of trees",
        abs(sent - prices) <= NEAR,
    )


def _own(found: Found) -> str:
    words = []
    for model in MODELS:
        ours, theirs = (100 * _mean(found, (model, n), "trees").cost for n in ("ours", "Tamara"))
        words.append(f"{model} {ours:+.1f} % (Tamara {theirs:+.1f} %)")
    return f"OC of our policy as sent on the trees: {join_words(words)}."


def _chart(found: Found, rings: Rings) -> str:
    labels = {"paper": "paper's prices", "prices": "tree prices", "trees": "sent on trees"}

    def paint(sheet: Sheet) -> None:
        for axes, model in zip(sheet.panels, MODELS, strict=True):
            for at, (way, label) in enumerate(labels.items()):
                values = [100 * _mean(found, (model, n), way).cost for n in ("Tamara", "ours")]
                places = np.arange(2) + 0.27 * (at - 1)
                axes.bar(places, values, 0.25, color=COLOURS[way], label=label)
            labels_at = ["Tamara", "our policy"]
            if model in rings:
                plain, shared = (each.churn for each in rings[model])
                priced, sent = shared.priced / plain.priced - 1, measure_saving(plain, shared).cost
                for way, saved, place in (("prices", priced, 2.0), ("trees", sent, 2.27)):
                    axes.bar(place, 100 * saved, 0.25, color=COLOURS[way])
                labels_at.append("formed in\nchurn")
            axes.axhline(0, color=QUIET, linewidth=0.8)
            axes.set(title=f"{model} events", xticks=range(len(labels_at)), xticklabels=labels_at)
        sheet.panels[0].set_ylabel("OC against Scribe, %")
        draw_legend(sheet)

    return draw_chart(
        "milo-overlay",
        "Clusters of a growing system on Scribe's trees",
        (9, 3.8),
        paint,
        shape=(1, len(MODELS)),
    )
