from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Interest, Rates
from distributary.workloads import TwoClass, two_class

CHANCES = st.floats(0.05, 1)


def draw(params: TwoClass, seed: int) -> tuple[Interest, Rates]:
    return two_class(params, np.random.default_rng(seed))


@given(
    flows=st.integers(1, 15),
    receivers=st.integers(1, 15),
    shares=st.tuples(CHANCES, CHANCES, CHANCES, CHANCES),
    seed=st.integers(0, 2**32),
)
def test_there_are_exactly_as_many_active_flows_and_receivers_as_asked(
    flows: int, receivers: int, shares: tuple[float, float, float, float], seed: int
) -> None:
    fast, popular, wanted, otherwise = shares
    params = TwoClass(flows, receivers, fast, 7.0, 2.0, popular, wanted, otherwise)
    interest, rates = draw(params, seed)
    assert len(interest.flows) == flows
    assert len(interest.receivers) == receivers
    assert min(interest.audience) >= 1
    assert min(np.diff(interest.receiver_offsets)) >= 1
    assert rates.flows == interest.flows
    assert set(rates.rate.tolist()) <= {7.0, 2.0}


@given(seed=st.integers(0, 2**32))
def test_the_same_seed_draws_the_same(seed: int) -> None:
    params = TwoClass(flows=20, receivers=20)
    assert draw(params, seed) == draw(params, seed)
    assert draw(params, seed)[0] != draw(params, seed + 1)[0]


def test_shares_and_chances_are_those_asked_for() -> None:
    # With 300 receivers hardly any flow is idle, so that nothing is drawn twice.
    interest, rates = draw(TwoClass(flows=4000, receivers=300), 3)
    assert np.mean(rates.rate == 10) == pytest.approx(0.1, abs=0.02)
    density = interest.audience / 300
    popular = density > 0.35
    assert popular.mean() == pytest.approx(0.2, abs=0.03)
    assert density[popular].mean() == pytest.approx(0.6, abs=0.01)
    assert density[~popular].mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"flows": 0}, "at least 1 flow and 1 receiver"),
        ({"receivers": 0}, "at least 1 flow and 1 receiver"),
        ({"fast_share": -0.1}, "fast_share is a probability"),
        ({"popular_share": 1.1}, "popular_share is a probability"),
        ({"want_popular": float("nan")}, "want_popular is a probability"),
        ({"want_unpopular": 2.0}, "want_unpopular is a probability"),
        ({"want_popular": 0.0, "want_unpopular": 0.0}, "nobody wants anything"),
        ({"want_popular": 0.0, "popular_share": 1.0}, "nobody wants anything"),
        ({"want_unpopular": 0.0, "popular_share": 0.0}, "nobody wants anything"),
        ({"fast_rate": 0.0}, "rates must be finite numbers above 0"),
        ({"slow_rate": float("inf")}, "rates must be finite numbers above 0"),
        ({"slow_rate": float("nan")}, "rates must be finite numbers above 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TwoClass(**change)  # type: ignore[arg-type]


def test_interest_too_rare_to_wait_for_is_given_up() -> None:
    with pytest.raises(ValueError, match="too rare"):
        draw(TwoClass(flows=9, receivers=9, want_popular=1e-9, want_unpopular=1e-9), 1)
