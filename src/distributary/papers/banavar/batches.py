"""Changes of subscriptions: one by one, and in batches as the paper spreads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from distributary.content import POLICIES, Broker, ContentEvent, PublishEvent, SubscribeRequest
from distributary.machines.virtual import Simulation, VirtualNetwork, price_work
from distributary.matching import LinkMatcher
from distributary.matching.links import MOST_RECENT
from distributary.model import Filter, FloatArray, Key
from distributary.papers.banavar.batching import BatchingBroker
from distributary.papers.banavar.brokers import (
    NETWORK,
    PUBLISHERS,
    TREE,
    ClientFilters,
    Pool,
    build_brokers,
    subscription_count,
)
from distributary.papers.banavar.load import LINKS, PARAMS
from distributary.papers.banavar.overload import COSTS, COSTS_NOTE, BrokerLoad, BrokerSetting
from distributary.papers.drawing import INK, QUIET, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import ContentWorld, content_world, poisson_times, region_of

__all__ = ["OwnWork", "Prices", "Staleness", "batches", "measure_staleness"]

PER_CLIENT, QUICK_PER_CLIENT = 13, 3
SHARE = 0.01  # of subscriptions that an event matches
EVENTS, QUICK_EVENTS = 400, 60  # of each publisher
PERIODS = (0.0, 1.0, 10.0, 60.0)  # seconds; 0: each change by itself
CHANGES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # a second, in all
RARE = 0.01  # changes for each event
JUDGED = 10.0  # the period by which the claim is judged
SMALL = 0.05  # of the publish rate
STALE_PERIODS, QUICK_STALE_PERIODS = (0.0, 1.0, 10.0), (0.0, 1.0)
STALE_SECONDS, QUICK_STALE_SECONDS = 60.0, 4.0
STALE_CHANGES = 10.0  # a second, in all
STALE_EVENTS = 5.0  # a second, of each publisher
STALE_PER_CLIENT = 2
REPLACED, QUICK_REPLACED = 4_000, 300  # subscriptions, one by one, to count our own work
COUNTED_EVERY = 100  # replacements: matching steps are counted
SOURCE = 'slides, section "The Matching Algorithm"'
COLOURS = ("#d1361c", "#cf8417", "#2a9179", "#2272b5")
OWN_COLOUR = "#7a4fa3"


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What our matcher does where subscriptions are replaced one by one."""

    nodes: float  # built or updated for each change
    steps_ratio: float  # of an event, to those in one tree that has just been prepared
    tries: float = (MOST_RECENT - 1) / 2  # of the latest subscriptions, for each event


@dataclass(frozen=True, slots=True)
class Prices:
    """What the network's brokers do for events, and what one preparation of the tree costs."""

    events: Mapping[str, BrokerLoad]  # for one event of each publisher
    nodes: int  # of the tree, each of which a preparation visits
    own: OwnWork

    def rate(self, changes: float, period: float) -> float:
        """Events/s of each publisher at which the busiest broker never rests."""
        return max(
            0.0,
            min(
                (1 - self._seconds(name, changes, period)) / load.seconds(COSTS)
                for name, load in self.events.items()
            ),
        )

    def own_rate(self, changes: float) -> float:
        """The same for our brokers, which spread each change by itself."""
        rates = []
        for name, load in self.events.items():
            update = COSTS.received + COSTS.sent * _children(name) + COSTS.step * self.own.nodes
            steps = self.own.steps_ratio * load.steps + self.own.tries * load.received
            event = replace(load, steps=steps if changes else load.steps).seconds(COSTS)
            rates.append((1 - changes * update) / event)
        return max(0.0, min(rates))

    def _seconds(self, name: str, changes: float, period: float) -> float:
        """The share of a broker's time that changes take, by their number a second in all."""
        homes = len(NETWORK.brokers)
        each = changes / homes  # from the clients of one broker
        passed, prepare = COSTS.sent * _children(name), COSTS.step * self.nodes
        if not period:
            return changes * (COSTS.received + passed + prepare)
        batches = (1 - exp(-each * period)) / period  # of one broker, a second
        heard = each + (homes - 1) * batches
        prepared = (1 - exp(-changes * period)) / period
        return heard * COSTS.received + homes * batches * passed + prepared * prepare


@dataclass(frozen=True, slots=True)
class Staleness:
    """What becomes of events while changes are on their way."""

    period: float
    wanted: int
    missed: int
    unwanted: int


def batches(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """The publish rate that changes leave, and the events missed meanwhile."""
    periods = QUICK_STALE_PERIODS if quick else STALE_PERIODS
    seconds = QUICK_STALE_SECONDS if quick else STALE_SECONDS
    progress(Step("runs", 0, 1 + len(periods)))
    prices = _measure_prices(quick, seed)
    stale = []
    for done, period in enumerate(periods):
        progress(Step("runs", 1 + done, 1 + len(periods)))
        stale.append(measure_staleness(period, seconds, seed))
    progress(Step("runs", 1 + len(periods), 1 + len(periods)))
    each = QUICK_PER_CLIENT if quick else PER_CLIENT
    return Figure(
        name="banavar-batches",
        title="Changes of subscriptions, one by one and in batches",
        source=f"Banavar et al. (1999), {SOURCE}",
        shown=(
            "The publish rate at which the busiest broker never rests, against the changes of "
            "subscriptions a second in the whole network, when each is spread by itself and when "
            f"they are spread once in a period. Link matching, {subscription_count(each):,} "
            f"subscriptions of which an event matches {100 * SHARE:g} %. In the second table real "
            f"matchers of {STALE_PER_CLIENT * len(NETWORK.clients):,} subscriptions learn of "
            f"{STALE_CHANGES:g} changes a second for {seconds:g} s."
        ),
        columns=("brokers", "period_s", "changes_per_s", "events_per_s"),
        rows=(
            *(
                ("paper's", period, float(changes), prices.rate(changes, period))
                for period in PERIODS
                for changes in CHANGES
            ),
            *(("ours", 0.0, float(changes), prices.own_rate(changes)) for changes in CHANGES),
        ),
        chart=_chart(prices),
        comparison="\n\n".join((_rate_table(prices), _stale_table(stale))),
        claims=(_rare_claim(prices),),
        notes=_notes(prices),
        own=_own_words(prices),
        quick=quick,
        seed=seed,
    )


def _notes(prices: Prices) -> tuple[str, ...]:
    return (
        COSTS_NOTE,
        "The slides assume that changes are rare relative to events, batch them, and spread them "
        "periodically; they give neither numbers nor a claim beyond that. Rare is read as one "
        f"change for {1 / RARE:.0f} events, the period as {JUDGED:g} s, and a loss of up to "
        f"{percent(SMALL)} of the publish rate as small; all three were set before the run.",
        "The slides annotate the tree when it is prepared. A preparation is taken to visit each of "
        f"its nodes once, {prices.nodes:,} here, at the price of a matching step: "
        f"{1e3 * COSTS.step * prices.nodes:.1f} ms. One by one, every change needs one at every "
        "broker; in batches, one is due in a period.",
        "A change goes along the tree of its client's broker. A batch is one message for all "
        "changes of a broker's clients in a period, whatever its length. Changes come from all "
        "clients alike, by a Poisson process.",
        "In the second table a client's change counts from the moment it is made. An event is "
        "missed if its publisher sent it after that, and a broker on the way did not know yet; "
        "it is unwanted if it comes to a client that had already changed its subscription.",
    )


def _own_words(prices: Prices) -> str:
    own, many = prices.own, 10
    return (
        "Ours prepares no tree anew for each change. Where a subscription ends, its nodes are "
        "updated on the way to the root. A new one is tried by itself until "
        f"{MOST_RECENT} have come, and trees are merged only with those of about their size. Where "
        f"each change replaces a subscription, that is {own.nodes:.0f} nodes a change, of "
        f"{prices.nodes:,}; an event takes {own.steps_ratio:.2f} times the steps in one new tree, "
        f"and {own.tries:g} tries. With {many} changes/s our brokers, which spread each at once, "
        f"carry {prices.own_rate(many):.0f} events/s; the paper's carry "
        f"{prices.rate(many, 0.0):.0f} one by one and {prices.rate(many, JUDGED):.0f} in batches "
        f"{_name(JUDGED)}, by which events are missed. What is left is the price of a message for "
        "each change: above about "
        f"{_find_bearable_changes(prices):g} changes/s batches {_name(JUDGED)} carry more by over "
        f"{percent(SMALL)}. [The benchmarks](../benchmarks.md) have the time for each change."
    )


def _find_bearable_changes(prices: Prices) -> float:
    """The most changes a second at which ours loses little against batches."""
    return max(
        changes
        for changes in CHANGES
        if prices.own_rate(changes) >= (1 - SMALL) * prices.rate(changes, JUDGED)
    )


# --- measuring -----------------------------------------------------------------------------------


def _children(name: str) -> float:
    """The brokers to which a broker passes a change on, on average over the homes of clients."""
    return float(np.mean([len(NETWORK.tree(home).children(name)) for home in NETWORK.brokers]))


def _measure_prices(quick: bool, seed: int) -> Prices:
    world = content_world(PARAMS, np.random.default_rng(seed)).with_matching_share(SHARE)
    rng = np.random.default_rng([seed, 8])
    subscriptions = ClientFilters.draw(
        world, NETWORK, QUICK_PER_CLIENT if quick else PER_CLIENT, rng
    )
    pool = Pool.draw(world, QUICK_EVENTS if quick else EVENTS, rng)
    network = BrokerSetting(NETWORK, build_brokers(LINKS, NETWORK, subscriptions, pool), pool)
    replaced = QUICK_REPLACED if quick else REPLACED
    own = _replace_on_ours(world, subscriptions, pool, replaced, rng)
    return Prices(network.work(), len(subscriptions.tree), own)


def _replace_on_ours(
    world: ContentWorld,
    subscriptions: ClientFilters,
    pool: Pool,
    replaced: int,
    rng: np.random.Generator,
) -> OwnWork:
    """Replace subscriptions one by one, at a root of a region, and count what that takes."""
    policy = POLICIES[LINKS]("0", NETWORK, None)
    matcher = LinkMatcher(world.schema, policy.n_links, options=TREE)
    links = [policy.link(client) for client in subscriptions.clients]
    given = [
        (filter, link, client)
        for filter, link, client in zip(
            subscriptions.filters, links, subscriptions.clients, strict=True
        )
        if link is not None
    ]
    handles = list(matcher.add_all([(filter, link) for filter, link, _ in given]))
    matcher.fold()
    prepared, built = _count_steps(matcher, pool), matcher.updated
    steps = []
    for number in range(replaced):
        at = int(rng.integers(len(handles)))
        _, link, client = given[at]
        (filter,) = world.filters(1, region_of(NETWORK.clients[client]), rng)
        matcher.remove(handles[at])
        handles[at] = matcher.add(filter, link)
        if number % COUNTED_EVERY == COUNTED_EVERY - 1:
            steps.append(_count_steps(matcher, pool))
    return OwnWork((matcher.updated - built) / replaced, float(np.mean(steps)) / prepared)


def _count_steps(matcher: LinkMatcher, pool: Pool) -> int:
    """The matching steps of all events, if every link is to be decided."""
    before = matcher.steps
    for events in pool.events.values():
        for keys in events:
            matcher.links(keys, (1 << matcher.n_links) - 1)
    return matcher.steps - before


@dataclass(slots=True)
class _Wishes:
    """Each client's subscriptions, and when each of them was made."""

    made: dict[tuple[str, int], list[tuple[float, Filter]]]

    def receivers(self, keys: Sequence[Key | None], time: float) -> set[str]:
        """The clients that want an event published at a time."""
        return {
            client
            for (client, _), history in self.made.items()
            if next(f for made, f in reversed(history) if made <= time).matches(keys)
        }


def measure_staleness(period: float, seconds: float, seed: int) -> Staleness:
    """Simulate brokers that learn of changes while events are published."""
    world = content_world(PARAMS, np.random.default_rng(seed)).with_matching_share(SHARE)
    rng = np.random.default_rng([seed, 9])
    wishes = _draw_wishes(world, rng)
    brokers = {name: _start_broker(name, wishes) for name in NETWORK.brokers}
    simulation = Simulation(VirtualNetwork.of(NETWORK, rng))
    service = price_work(COSTS.received, match=COSTS.step, send=COSTS.sent)
    for name, broker in brokers.items():
        machine = BatchingBroker(broker, period) if period else broker
        simulation.add(name, machine, service=service)
    _post_changes(simulation, wishes, world, seconds, rng)
    published = _post_events(simulation, world, seconds, rng)
    simulation.run()
    received = defaultdict(set)
    for _, _, client, _, event in simulation.record.delivered:
        assert isinstance(event, ContentEvent)
        received[event.publisher, event.number].add(client)
    wanted = {
        (event.publisher, event.number): wishes.receivers(event.keys, event.published)
        for event in published
    }
    return Staleness(
        period,
        sum(map(len, wanted.values())),
        sum(len(clients - received[each]) for each, clients in wanted.items()),
        sum(len(received[each] - clients) for each, clients in wanted.items()),
    )


def _draw_wishes(world: ContentWorld, rng: np.random.Generator) -> _Wishes:
    return _Wishes(
        {
            (client, number): [(0.0, found)]
            for client, home in sorted(NETWORK.clients.items())
            for number, found in enumerate(world.filters(STALE_PER_CLIENT, region_of(home), rng))
        }
    )


def _start_broker(name: str, wishes: _Wishes) -> Broker:
    """A broker that knows what all clients want at first."""
    policy = POLICIES[LINKS](name, NETWORK, None)
    schema = next(iter(wishes.made.values()))[0][1].schema
    broker = Broker(name, NETWORK, policy, lambda n_links: LinkMatcher(schema, n_links))
    for (client, number), history in wishes.made.items():
        broker.on_message("", SubscribeRequest(client, number, history[0][1]), 0.0)
    return broker


def _post_changes(
    simulation: Simulation,
    wishes: _Wishes,
    world: ContentWorld,
    seconds: float,
    rng: np.random.Generator,
) -> None:
    """Let clients replace subscriptions, from the first second to the last."""
    names = list(wishes.made)
    for time in _times(STALE_CHANGES, seconds, rng):
        client, number = names[rng.integers(len(names))]
        home = NETWORK.clients[client]
        (found,) = world.filters(1, region_of(home), rng)
        wishes.made[client, number].append((time, found))
        simulation.post(time, home, SubscribeRequest(client, number, found), sender=client)


def _post_events(
    simulation: Simulation, world: ContentWorld, seconds: float, rng: np.random.Generator
) -> list[ContentEvent]:
    published = []
    for root in PUBLISHERS:
        times = _times(STALE_EVENTS, seconds, rng)
        table_ = world.events(len(times), region_of(root), rng).to_pylist()
        for number, (time, row) in enumerate(zip(times, table_, strict=True)):
            event = ContentEvent(number, world.schema.keys(row), time, publisher=root)
            published.append(event)
            simulation.post(time, root, PublishEvent(event), sender="publisher")
    return published


def _times(rate: float, seconds: float, rng: np.random.Generator) -> list[float]:
    times: FloatArray = poisson_times(rate, int(2 * rate * seconds) + 50, rng)
    found: list[float] = times[times < seconds].tolist()
    return found


# --- reporting -----------------------------------------------------------------------------------


def _name(period: float) -> str:
    return f"every {period:g} s" if period else "one by one"


def _rate_table(prices: Prices) -> str:
    return table(
        (
            "ours, events/s",
            *(_name(period) for period in PERIODS),
            "our brokers, one by one",
            "paper",
            "independent",
        ),
        (
            (
                f"{changes:g} changes/s",
                *(f"{prices.rate(changes, period):.0f}" for period in PERIODS),
                f"{prices.own_rate(changes):.0f}",
                NOTHING,
                NOTHING,
            )
            for changes in (0, *CHANGES)
        ),
    )


def _stale_table(stale: Sequence[Staleness]) -> str:
    return table(
        ("changes spread", "wanted deliveries", "missed", "unwanted deliveries"),
        (
            (
                _name(each.period),
                f"{each.wanted:,}",
                f"{each.missed:,}, {percent(each.missed / each.wanted, 2)}",
                f"{each.unwanted:,}",
            )
            for each in stale
        ),
    )


def _rare_claim(prices: Prices) -> Claim:
    rest = prices.rate(0.0, 0.0)
    changes = RARE * rest * len(PUBLISHERS)
    singly, together = (1 - prices.rate(changes, period) / rest for period in (0.0, JUDGED))
    return Claim(
        "where changes are rare relative to events and spread in batches, the steady state is "
        "what counts",
        SOURCE,
        f"with {changes:.1f} changes/s, one for {1 / RARE:.0f} events, batches {_name(JUDGED)} "
        f"cost {percent(together, 1)} of the publish rate, one by one {percent(singly, 1)}",
        together <= SMALL,
    )


def _chart(prices: Prices) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for period, colour in zip(PERIODS, COLOURS, strict=True):
            y = [prices.rate(changes, period) for changes in CHANGES]
            axes.plot(CHANGES, y, color=colour, marker="o", label=_name(period))
        own = [prices.own_rate(changes) for changes in CHANGES]
        axes.plot(CHANGES, own, color=OWN_COLOUR, marker="s", label="ours, one by one")
        rare = RARE * prices.rate(0.0, 0.0) * len(PUBLISHERS)
        axes.axvline(rare, color=QUIET, linewidth=1, linestyle="--")
        words = f"a change for \n{1 / RARE:.0f} events "
        axes.text(rare, 0.5 * prices.rate(0.0, 0.0), words, color=INK, ha="right")
        axes.set(xscale="log", ylim=(0, None), xlabel="changes of subscriptions a second")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(ylabel="events/s of each publisher")
        axes.legend(loc="lower left", title="changes are spread")

    return draw_chart("banavar-batches", "Changes of subscriptions", (7.5, 4.8), paint)
