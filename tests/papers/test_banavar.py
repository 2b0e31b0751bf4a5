"""The figures of Banavar et al. against what is said and what was found independently."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from distributary.content import POLICIES, Broker, SubscribeRequest
from distributary.machines import Send, SetTimer
from distributary.matching import LinkMatcher
from distributary.model import Schema, Topology
from distributary.papers import run_figure
from distributary.papers.banavar.batches import OwnWork, Prices, measure_staleness
from distributary.papers.banavar.batching import Batch, BatchingBroker
from distributary.papers.banavar.brokers import (
    PUBLISHERS,
    TREE,
    ClientFilters,
    Pool,
    build_brokers,
    visits,
)
from distributary.papers.banavar.drops import count_receivers, run_outcome
from distributary.papers.banavar.lateral import CHOSEN, NONE, PLACES, network_with
from distributary.papers.banavar.load import make_setting
from distributary.papers.banavar.overload import (
    COSTS,
    BrokerCosts,
    BrokerLoad,
    BrokerSetting,
    OverloadSearch,
    busiest,
    find_limit,
)
from distributary.papers.banavar.steps import CENTRAL, FACTORING, INDEPENDENT, PLAIN, hops
from distributary.papers.queue_trace import QueueTrace
from distributary.workloads import ContentParams, broker_trees, content_world
from tests.papers.cases import by_column, quick, verdicts

TINY = broker_trees(clients=2)


def tiny(per_client: int = 2, events: int = 15) -> tuple[ClientFilters, Pool]:
    rng = np.random.default_rng(7)
    world = content_world(ContentParams(attributes=5), rng)
    return ClientFilters.draw(world, TINY, per_client, rng), Pool.draw(world, events, rng)


# --- the brokers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["link-matching", "flooding"])
def test_events_reach_exactly_the_clients_whose_filters_match(policy: str) -> None:
    subscriptions, pool = tiny()
    brokers = build_brokers(policy, TINY, subscriptions, pool)
    wanted = list(zip(subscriptions.clients, subscriptions.filters, strict=True))
    for root, events in pool.events.items():
        for keys in events:
            found = sorted(
                name for visit in visits(brokers, root, keys) for name in visit.receivers
            )
            assert found == sorted({client for client, want in wanted if want.matches(keys)})


def test_steps_are_those_of_a_link_matcher_at_each_broker() -> None:
    subscriptions, pool = tiny()
    brokers = build_brokers("link-matching", TINY, subscriptions, pool)
    matchers = {name: link_matcher(name, TINY, subscriptions) for name in TINY.brokers}
    for root, events in pool.events.items():
        for keys in events:
            for visit in visits(brokers, root, keys):
                matcher = matchers[visit.broker]
                before = matcher.steps
                matcher.links(keys, TINY.links(visit.broker).masks[root])
                assert visit.work("match") == matcher.steps - before


def link_matcher(name: str, topology: Topology, subscriptions: ClientFilters) -> LinkMatcher:
    policy = POLICIES["link-matching"](name, topology, None)
    matcher = LinkMatcher(subscriptions.filters[0].schema, policy.n_links, options=TREE)
    for client, wanted in zip(subscriptions.clients, subscriptions.filters, strict=True):
        link = policy.link(client)
        assert link is not None
        matcher.add(wanted, link)
    matcher.fold()
    return matcher


def test_hops_count_brokers_and_steps_add_up_on_the_way() -> None:
    subscriptions, pool = tiny()
    brokers = build_brokers("link-matching", TINY, subscriptions, pool)
    root = PUBLISHERS[0]
    for keys in pool.events[root]:
        found = {visit.broker: visit for visit in visits(brokers, root, keys)}
        for name, visit in found.items():
            path = TINY.tree(root).path(name)
            assert visit.hops == len(path)
            assert visit.steps == sum(found[at].work("match") for at in path)


# --- overload ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [60.0, 77.0, 150.0])
@pytest.mark.parametrize("guess", [77.0, 140.0])
def test_a_limit_is_found_to_half_the_width(threshold: float, guess: float) -> None:
    overloads: Callable[[float], bool] = lambda rate: rate > threshold  # noqa: E731
    assert find_limit(overloads, guess, 4.0) == pytest.approx(threshold, abs=2.0)


def test_flooding_is_as_busy_as_its_messages_are_many() -> None:
    """A regional root takes in each event, and sends it to 10 clients and 3 or 4 brokers."""
    world = content_world(ContentParams(attributes=5), np.random.default_rng(0))
    work = make_setting("flooding", world, per_client=1, events=3, seed=0).work()
    assert work["0"].received == pytest.approx(3)
    assert work["0"].sent == pytest.approx(14 + 13 + 13)
    broker, rate = busiest(work)
    assert broker in {"0", "1", "2"}
    assert rate == pytest.approx(1 / (3 * COSTS.received + 40 * COSTS.sent))
    assert rate == pytest.approx(77, abs=1)


def test_the_busiest_broker_depends_on_what_things_cost() -> None:
    work = {
        "a": BrokerLoad(received=1, steps=100, sent=1),
        "b": BrokerLoad(received=1, steps=1, sent=3),
    }
    assert busiest(work, BrokerCosts(received=0, step=1, sent=1)) == ("a", 1 / 101)
    assert busiest(work, BrokerCosts(received=0, step=0, sent=1)) == ("b", 1 / 3)


def test_a_broker_overloads_above_the_rate_at_which_it_never_rests() -> None:
    subscriptions, pool = tiny()
    network = BrokerSetting(TINY, build_brokers("flooding", TINY, subscriptions, pool), pool)
    _, full = busiest(network.work())
    run = OverloadSearch(seconds=1.0, width=10.0, threshold=40)
    assert not network.overloads(0.9 * full, run, [0])
    assert network.overloads(1.3 * full, run, [0])


def test_a_queue_tells_how_long_it_was_and_when_it_drained() -> None:
    queue = QueueTrace(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 2, 0, 5]))
    assert queue.at(np.array([0.5, 1.0, 2.5, 9.0])).tolist() == [0, 1, 2, 5]
    assert (queue.longest, queue.longest_before_drain) == (5, 2)
    assert queue.drains_after(3.5)
    assert not queue.drains_after(4.0)


@pytest.mark.parametrize("policy", ["link-matching", "flooding"])
def test_full_queues_drop_events_and_queues_without_limit_lose_none(policy: str) -> None:
    subscriptions, pool = tiny()
    network = BrokerSetting(TINY, build_brokers(policy, TINY, subscriptions, pool), pool)
    _, full = busiest(network.work())
    wanted = count_receivers(network)
    outcomes = {
        (ratio, queue): run_outcome(
            network, ratio * full, 1.0, queue, wanted, np.random.default_rng(0)
        )
        for ratio in (0.5, 2.0)
        for queue in (20, float("inf"))
    }
    assert outcomes[0.5, 20].lost == outcomes[0.5, np.inf].lost == outcomes[2.0, np.inf].lost == 0
    assert outcomes[2.0, 20].lost > 0
    assert outcomes[2.0, 20].delay < outcomes[2.0, np.inf].delay


# --- lateral links -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_events_arrive_once_where_they_are_wanted_with_lateral_links(place: str) -> None:
    links = network_with(PLACES[place]).delays
    network = Topology(links, TINY.clients)
    rng = np.random.default_rng(7)
    world = content_world(ContentParams(attributes=5), rng)
    subscriptions, pool = ClientFilters.draw(world, network, 2, rng), Pool.draw(world, 8, rng)
    brokers = build_brokers("link-matching", network, subscriptions, pool)
    wanted = list(zip(subscriptions.clients, subscriptions.filters, strict=True))
    for root, events in pool.events.items():
        for keys in events:
            found = list(visits(brokers, root, keys))
            assert len({visit.broker for visit in found}) == len(found)
            receivers = sorted(name for visit in found for name in visit.receivers)
            assert receivers == sorted({client for client, want in wanted if want.matches(keys)})


def test_a_lateral_link_shortens_the_way_between_regions() -> None:
    without, chosen = (network_with(PLACES[place]).tree("0.0.0") for place in (NONE, CHOSEN))
    assert without.path("1.0.0") == ("0.0.0", "0.0", "0", "1", "1.0", "1.0.0")
    assert chosen.path("1.0.0") == ("0.0.0", "0.0", "1.0", "1.0.0")


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_changes_what_the_same_requests_change_one_by_one() -> None:
    rng = np.random.default_rng(3)
    world = content_world(ContentParams(attributes=4), rng)
    home = TINY.clients["0.0/0"]
    changes = [
        SubscribeRequest("0.0/0", n % 3, each) for n, each in enumerate(world.filters(9, 0, rng))
    ]
    single, inner = (broker_of(home, world.schema) for _ in range(2))
    batched = BatchingBroker(inner, 10.0)
    for change in changes:
        single.on_message("0.0/0", change, 1.0)
    first, *others = (batched.on_message("0.0/0", change, 1.0) for change in changes)
    assert first == [SetTimer("batch", 10.0)]
    assert not any(others)
    sent = [action for action in batched.on_timer("batch", 10.0) if isinstance(action, Send)]
    assert [action.to for action in sent] == list(TINY.tree(home).children(home))
    assert all(action.message == Batch(tuple(changes)) for action in sent)
    mask = TINY.links(home).masks[home]
    for row in world.events(40, 0, rng).to_pylist():
        keys = world.schema.keys(row)
        assert inner.matcher.links(keys, mask) == single.matcher.links(keys, mask)


def broker_of(name: str, schema: Schema) -> Broker:
    policy = POLICIES["link-matching"](name, TINY, None)
    return Broker(name, TINY, policy, lambda n_links: LinkMatcher(schema, n_links))


def test_batches_take_less_of_a_broker_and_one_change_costs_the_same() -> None:
    own = OwnWork(nodes=4, steps_ratio=1.5)
    prices = Prices({"0": BrokerLoad(received=1, steps=0, sent=0)}, nodes=1000, own=own)
    assert prices.own_rate(0) == prices.rate(0, 0.0)
    assert prices.rate(50, 0.0) < prices.own_rate(50) < prices.own_rate(5) < prices.own_rate(0)
    singly, batched = prices.rate(50, 0.0), prices.rate(50, 10.0)
    assert 0 < singly < batched < prices.rate(0, 0.0)
    assert prices.rate(1e-6, 1.0) == pytest.approx(prices.rate(1e-6, 0.0), rel=1e-6)
    assert prices.rate(1e6, 0.0) == 0


@pytest.mark.slow
def test_events_are_missed_while_changes_wait_for_their_batch() -> None:
    singly, batched = (measure_staleness(period, 4.0, seed=0) for period in (0.0, 2.0))
    assert singly.wanted == batched.wanted > 0
    assert singly.missed <= singly.wanted // 100
    assert batched.missed > singly.missed


# --- the figures ---------------------------------------------------------------------------------


def mean_steps(subscriptions: int, matching: str, reading: str = PLAIN) -> float:
    (row,) = (
        row
        for row in by_column(quick("banavar-steps"))
        if (row["reading"], row["subscriptions"], row["matching"])
        == (reading, subscriptions, matching)
    )
    return float(row["steps"])


@pytest.mark.parametrize("matching", INDEPENDENT)
def test_steps_are_near_the_independent_ones(matching: str) -> None:
    assert mean_steps(10_140, matching) == pytest.approx(INDEPENDENT[matching], rel=0.15)


def test_steps_cross_between_four_and_five_hops_at_ten_thousand() -> None:
    assert mean_steps(10_140, hops(4)) <= mean_steps(10_140, CENTRAL) < mean_steps(10_140, hops(5))
    plain = verdicts(quick("banavar-steps"))
    *others, on_the_axis = (holds for says, holds in plain.items() if says.startswith(PLAIN))
    assert all(others)
    assert not on_the_axis


def test_steps_with_factoring_are_on_the_axis_and_cross_earlier() -> None:
    factored = [mean_steps(10_140, name, FACTORING) for name in (*map(hops, range(1, 7)), CENTRAL)]
    assert max(factored) < 250
    assert factored[2] <= factored[-1] < factored[4]  # 3 hops, one search, 5 hops
    for name, steps in zip((*map(hops, range(1, 7)), CENTRAL), factored, strict=True):
        assert steps < mean_steps(10_140, name)


@pytest.mark.parametrize("reading", [PLAIN, FACTORING])
@pytest.mark.parametrize("matching", [*map(hops, range(1, 7)), CENTRAL])
def test_steps_grow_less_than_subscriptions(matching: str, reading: str) -> None:
    sizes = [1_950, 5_070, 10_140]
    taken = [mean_steps(size, matching, reading) for size in sizes]
    assert taken == sorted(taken)
    assert 0 < np.polyfit(np.log(sizes), np.log(taken), 1)[0] < 1


def max_rates(policy: str) -> dict[tuple[float, int], float]:
    return {
        (float(row["matching_percent"]), int(row["subscriptions"])): float(row["max_rate"])
        for row in by_column(quick("banavar-load"))
        if row["policy"] == policy
    }


def test_link_matching_bears_more_than_flooding_at_every_share() -> None:
    assert min(max_rates("link-matching").values()) > max(max_rates("flooding").values())
    assert all(verdicts(quick("banavar-load")).values())


def test_flooding_does_not_depend_on_subscriptions() -> None:
    rates = max_rates("flooding")
    assert len(rates) == 2
    assert len(set(rates.values())) == 1
    assert rates.popitem()[1] == pytest.approx(77, abs=10)


def test_events_that_go_to_more_receivers_bear_lower_rates() -> None:
    rates = max_rates("link-matching")
    assert rates[1.8, 5_070] < rates[0.2, 5_070]


def test_more_subscriptions_make_a_broker_busier() -> None:
    world = content_world(ContentParams(attributes=6), np.random.default_rng(0))
    few, many = (
        busiest(make_setting("link-matching", world, n, 20, seed=0).work()) for n in (1, 4)
    )
    assert many[1] < few[1]


@pytest.mark.slow
def test_queues_drain_below_the_threshold_and_grow_above_it() -> None:
    found = verdicts(quick("banavar-queues"))
    assert found["408 events/s: the queue drains occasionally"]
    assert found["450 events/s: the queue increases monotonically"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["banavar-load", "banavar-queues", "banavar-drops"])
def test_a_full_figure_misses_nothing(name: str) -> None:
    assert all(verdicts(run_figure(name)).values())


@pytest.mark.slow
def test_full_steps_without_factoring_miss_nothing_but_the_axis() -> None:
    found = verdicts(run_figure("banavar-steps"))
    missed = [says for says, holds in found.items() if says.startswith(PLAIN) and not holds]
    assert all("axis" in says for says in missed)
