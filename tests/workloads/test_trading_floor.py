from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.model import Interest, Rates
from distributary.workloads import TradingFloor, trading_floor


@pytest.fixture(scope="module")
def floor() -> tuple[Interest, Rates]:
    return draw(TradingFloor(), 1)


def draw(params: TradingFloor, seed: int) -> tuple[Interest, Rates]:
    return trading_floor(params, np.random.default_rng(seed))


def market(flow: str) -> int:
    """m07-0012 is a symbol of market 7."""
    return int(flow.partition("-")[0].removeprefix("m"))


def market_sizes(rates: Rates) -> list[int]:
    counted = Counter(map(market, rates.flows))
    return [counted[i] for i in sorted(counted)]


def test_markets_are_as_large_as_published(floor: tuple[Interest, Rates]) -> None:
    # In proportion to 1/i: 20,000 / 2.929 = 6,828 symbols in the first of ten.
    sizes = market_sizes(floor[1])
    assert sizes[0] == 6828
    assert sum(sizes) == 20_000
    assert [size * i / sizes[0] for i, size in enumerate(sizes, 1)] == pytest.approx([1] * 10, 1e-2)


def test_each_receiver_follows_one_percent_of_two_markets(floor: tuple[Interest, Rates]) -> None:
    interest, rates = floor
    sizes = market_sizes(rates)
    assert len(interest.receivers) == 500
    totals = []
    for receiver in range(500):
        followed = Counter(market(interest.flows[flow]) for flow in interest.flows_of(receiver))
        assert len(followed) == 2
        assert all(n == round(sizes[i - 1] / 100) for i, n in followed.items())
        totals.append(followed.total())
    # The two smallest markets together give 15, the two largest 102.
    assert 15 <= min(totals) <= 18
    assert max(totals) == 102


def test_receivers_choose_markets_by_their_weight(floor: tuple[Interest, Rates]) -> None:
    interest, _ = floor
    p = [1 / i / sum(1 / k for k in range(1, 11)) for i in range(1, 11)]
    for i in (1, 5):
        # Chosen first, or second after any other.
        chance = p[i - 1] + sum(p[k] * p[i - 1] / (1 - p[k]) for k in range(10) if k != i - 1)
        follow = sum(
            any(market(interest.flows[flow]) == i for flow in interest.flows_of(receiver))
            for receiver in range(500)
        )
        assert follow / 500 == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 500) ** 0.5)


def test_the_top_tenth_of_a_market_holds_its_share_of_the_trade(
    floor: tuple[Interest, Rates],
) -> None:
    interest, rates = floor
    in_market = np.array([market(flow) for flow in rates.flows])
    for i, size in enumerate(market_sizes(rates), 1):
        rate = rates.rate[in_market == i]
        assert (np.diff(rate) < 0).all()
        assert rate[: round(size / 10)].sum() / rate.sum() == pytest.approx(0.55, abs=0.005)
    # So does it of the interest, but for symbols that nobody draws twice.
    ranks = [
        int(interest.flows[flow].partition("-")[2])
        for flow in interest.receiver_flows
        if market(interest.flows[flow]) == 1
    ]
    assert np.mean(np.array(ranks) < 683) == pytest.approx(0.55, abs=0.03)


def test_rates_fall_with_the_market_from_the_peak(floor: tuple[Interest, Rates]) -> None:
    _, rates = floor
    first = [rate for flow, rate in zip(rates.flows, rates.rate, strict=True) if int(flow[4:]) == 0]
    assert first == pytest.approx([1000 / i for i in range(1, 11)], rel=0.01)
    assert rates.rate.max() <= 1000


def test_flows_are_unique_and_have_rates(floor: tuple[Interest, Rates]) -> None:
    interest, rates = floor
    assert len(set(rates.flows)) == len(rates.flows)
    assert set(interest.flows) <= set(rates.flows)
    # PAPERS.md: about 12,500 of the 20,000 symbols have no receiver.
    assert len(rates.flows) - len(interest.flows) == pytest.approx(12_500, abs=300)


@given(seed=st.integers(0, 2**32))
def test_the_same_seed_draws_the_same_floor(seed: int) -> None:
    params = TradingFloor(symbols=300, markets=4, receivers=6, share_of_market=0.05)
    assert draw(params, seed) == draw(params, seed)
    assert draw(params, seed)[0] != draw(params, seed + 1)[0]


@st.composite
def floors(draw: st.DrawFn) -> TradingFloor:
    """Small ones, down to a symbol for each market."""
    markets = draw(st.integers(1, 30))
    return TradingFloor(
        symbols=draw(st.integers(markets, 4 * markets)),
        markets=markets,
        receivers=draw(st.integers(1, 5)),
        markets_per_receiver=draw(st.integers(1, markets)),
        share_of_market=draw(st.sampled_from([0.01, 0.5, 1.0])),
    )


@given(params=floors())
@example(params=TradingFloor(symbols=13, markets=13, receivers=2))
@example(params=TradingFloor(symbols=21, markets=17, receivers=2))
def test_floors_of_any_size_can_be_drawn(params: TradingFloor) -> None:
    interest, rates = draw(params, 1)
    sizes = market_sizes(rates)
    assert len(sizes) == params.markets
    assert sum(sizes) == params.symbols
    assert sizes == sorted(sizes, reverse=True)
    assert len(interest.receivers) == params.receivers
    for receiver in range(params.receivers):
        followed = Counter(market(interest.flows[flow]) for flow in interest.flows_of(receiver))
        assert followed == {
            i: max(1, round(params.share_of_market * sizes[i - 1])) for i in followed
        }
        assert len(followed) == params.markets_per_receiver


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"symbols": 0}, "must be at least 1"),
        ({"markets": 0}, "must be at least 1"),
        ({"receivers": 0}, "must be at least 1"),
        ({"markets_per_receiver": 0}, "must be at least 1"),
        ({"markets_per_receiver": 11}, "cannot follow 11 of 10"),
        ({"symbols": 9}, "9 symbols cannot fill 10 markets"),
        ({"share_of_market": 0.0}, r"in \(0, 1\]"),
        ({"share_of_market": 1.1}, r"in \(0, 1\]"),
        ({"top_tenth_share": 0.1}, "more than 10 %"),
        ({"top_tenth_share": 1.0}, "less than all"),
        ({"peak_rate": 0.0}, "peak rate"),
        ({"peak_rate": float("inf")}, "peak rate"),
        ({"peak_rate": float("nan")}, "peak rate"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TradingFloor(**change)  # type: ignore[arg-type]
