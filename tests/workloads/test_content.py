"""The content workloads: as many matches as asked for, taste by region, the same for a seed."""

from __future__ import annotations

import numpy as np
import pytest

from distributary.matching import event_table, parse_filter, print_filter
from distributary.model import Filter, Schema
from distributary.workloads import (
    QUOTE_SCHEMA,
    ContentParams,
    ContentWorld,
    Quotes,
    broker_trees,
    content_world,
    poisson_times,
    quote_events,
    quote_filters,
    region_of,
)


def share(filters: list[Filter], schema: Schema, events: list[dict[str, object]]) -> float:
    keys = [schema.keys(event) for event in events]
    matches = sum(found.matches(event) for event in keys for found in filters)
    return matches / (len(filters) * len(events))


def measure_share(world: ContentWorld, seed: int = 0) -> float:
    """The share of matches over all pairs of regions."""
    rng = np.random.default_rng(seed)
    regions = range(world.params.regions)
    filters = [found for region in regions for found in world.filters(300, region, rng)]
    events = [row for region in regions for row in world.events(40, region, rng).to_pylist()]
    return share(filters, world.schema, events)


@pytest.mark.parametrize("wanted", [0.005, 0.02, 0.1])
def test_as_many_filters_match_as_asked_for(wanted: float) -> None:
    world = content_world(ContentParams(attributes=15), np.random.default_rng(2))
    tuned = world.with_matching_share(wanted)
    assert tuned.matching_share() == pytest.approx(wanted)
    assert measure_share(tuned) == pytest.approx(wanted, rel=0.25)


def test_a_share_out_of_reach_is_refused() -> None:
    world = content_world(ContentParams(attributes=2), np.random.default_rng(0))
    with pytest.raises(ValueError, match="cannot match a share of"):
        world.with_matching_share(0.99)


def test_tests_become_rarer_from_one_attribute_to_the_next() -> None:
    world = content_world(ContentParams(), np.random.default_rng(0))
    filters = world.filters(5_000, 0, np.random.default_rng(1))
    tested = np.zeros(10)
    for found in filters:
        for at, _ in found.boxes[0].tests:
            tested[at] += 1
    assert tested / 5_000 == pytest.approx(0.98 * 0.82 ** np.arange(10), abs=0.03)


def test_values_are_preferred_as_the_region_prefers_them() -> None:
    world = content_world(ContentParams(exponent=1.5), np.random.default_rng(0))
    events = world.events(20_000, 1, np.random.default_rng(1))
    for at in range(10):
        counts = np.bincount(events.column(at).to_numpy(), minlength=3)
        assert counts / 20_000 == pytest.approx(world.odds[1, at], abs=0.02)
    assert not np.array_equal(world.odds[0], world.odds[1])


def test_events_and_filters_are_of_the_schema() -> None:
    world = content_world(ContentParams(), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    assert event_table(world.events(10, 0, rng), world.schema).num_rows == 10
    assert event_table(quote_events(Quotes(), 10, rng), QUOTE_SCHEMA).num_rows == 10
    for filters, schema in (
        (world.filters(50, 0, rng), world.schema),
        (quote_filters(Quotes(), 50, rng), QUOTE_SCHEMA),
    ):
        for found in filters:
            assert parse_filter(print_filter(found), schema) == found


def test_the_same_seed_draws_the_same() -> None:
    def draw(seed: int) -> list[object]:
        rng = np.random.default_rng(seed)
        world = content_world(ContentParams(), rng)
        return [
            world.filters(20, 2, rng),
            world.events(20, 2, rng),
            quote_filters(Quotes(), 20, rng),
            quote_events(Quotes(), 20, rng),
        ]

    assert draw(5) == draw(5)
    assert all(one != other for one, other in zip(draw(5), draw(6), strict=True))


def test_some_quotes_are_wanted_and_most_are_not() -> None:
    rng = np.random.default_rng(0)
    filters = quote_filters(Quotes(symbols=50), 500, rng)
    events = quote_events(Quotes(symbols=50), 200, rng).to_pylist()
    assert 0.001 < share(filters, QUOTE_SCHEMA, events) < 0.2


def test_publishers_are_as_fast_as_asked_for() -> None:
    times = poisson_times(50.0, 20_000, np.random.default_rng(0))
    assert np.all(np.diff(times) > 0)
    assert 20_000 / times[-1] == pytest.approx(50.0, rel=0.05)
    with pytest.raises(ValueError, match="rate"):
        poisson_times(0.0, 1, np.random.default_rng(0))


def test_the_broker_network_is_that_of_the_paper() -> None:
    topology = broker_trees()
    assert len(topology.brokers) == 39
    assert len(topology.clients) == 390
    assert sorted(topology.delays.values()) == sorted(
        [0.065, 0.050, 0.075, *[0.025] * 9, *[0.010] * 27]
    )
    assert [sum(region_of(b) == r for b in topology.brokers) for r in range(3)] == [13, 13, 13]
    assert topology.tree("0.0.0").path("2.1.2") == ("0.0.0", "0.0", "0", "2", "2.1", "2.1.2")


@pytest.mark.parametrize(
    "bad", [{"attributes": 0}, {"first_test": 1.5}, {"next_test": -0.1}, {"regions": 0}]
)
def test_parameters_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least|probabilit"):
        ContentParams(**bad)


@pytest.mark.parametrize("bad", [{"symbols": 0}, {"test_price": 2.0}, {"band": 0.0}])
def test_quotes_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least|probability|band"):
        Quotes(**bad)
