"""The figures of Banavar et al. against what is said and what was found independently."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from distributary.content import POLICIES
from distributary.matching import LinkMatcher
from distributary.model import Topology
from distributary.papers import run_figure
from distributary.papers.banavar.brokers import (
    PUBLISHERS,
    TREE,
    ClientFilters,
    Pool,
    build_brokers,
    visits,
)
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
from distributary.papers.banavar.steps import CENTRAL, INDEPENDENT, hops
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


# --- the figures ---------------------------------------------------------------------------------


def mean_steps(subscriptions: int, matching: str) -> float:
    (row,) = (
        row
        for row in by_column(quick("banavar-steps"))
        if (row["subscriptions"], row["matching"]) == (subscriptions, matching)
    )
    return float(row["steps"])


@pytest.mark.parametrize("matching", INDEPENDENT)
def test_steps_are_near_the_independent_ones(matching: str) -> None:
    assert mean_steps(10_140, matching) == pytest.approx(INDEPENDENT[matching], rel=0.15)


def test_steps_cross_between_four_and_five_hops_at_ten_thousand() -> None:
    assert mean_steps(10_140, hops(4)) <= mean_steps(10_140, CENTRAL) < mean_steps(10_140, hops(5))
    *others, on_the_axis = verdicts(quick("banavar-steps")).values()
    assert all(others)
    assert not on_the_axis


@pytest.mark.parametrize("matching", [*map(hops, range(1, 7)), CENTRAL])
def test_steps_grow_less_than_subscriptions(matching: str) -> None:
    sizes = [1_950, 5_070, 10_140]
    taken = [mean_steps(size, matching) for size in sizes]
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
@pytest.mark.parametrize("name", ["banavar-steps", "banavar-load", "banavar-queues"])
def test_a_full_figure_misses_nothing_but_the_axis_of_steps(name: str) -> None:
    missed = [says for says, holds in verdicts(run_figure(name)).items() if not holds]
    assert all("axis" in says for says in missed)
