"""What may be asked of a planner."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.model import Constraints, Limits, Previous
from distributary.planning import (
    ALGORITHMS,
    Change,
    Request,
    Search,
    Size,
    Terms,
    UnicastLimits,
)
from distributary.planning.solve import _SOLVERS

PREVIOUS = Previous({}, np.zeros(1, np.int32))
CONSTRAINTS = Constraints(Limits(group_rate=5.0))
TERMS: dict[str, Any] = {
    "previous": PREVIOUS,
    "constraints": CONSTRAINTS,
    "max_sent": 1.5,
    "unicast": UnicastLimits(),
}

SETTINGS = st.fixed_dictionaries(
    {"groups": st.integers(1, 5)},
    optional={
        "sessions": st.none() | st.integers(5, 9),
        "prices": st.builds(FilteringPrices, st.floats(0.1, 9), st.floats(0, 9)),
        "algorithm": st.sampled_from([*ALGORITHMS, "RRA", "Best", "fbm"]),
        "seed": st.integers(0, 9),
        "budget_s": st.floats(0.1, 9),
        "objective": st.sampled_from(["filtering", "channel"]),
        "labels": st.none() | st.just(("a", "b")),
    },
)


def test_every_algorithm_that_can_be_asked_for_has_a_solver() -> None:
    assert list(_SOLVERS) == list(ALGORITHMS)


def test_settings_are_sorted_by_concern() -> None:
    request = Request(2, 3, algorithm="best", seed=4, previous=PREVIOUS, max_moves=5)
    assert request.size == Size(2, 3)
    assert request.prices == FilteringPrices()
    assert request.search == Search(seed=4)
    assert request.change == Change(PREVIOUS, 5)
    assert request.terms == Terms()
    assert Request(2).size.most_sessions == 2


@given(SETTINGS, SETTINGS)
def test_a_changed_request_is_the_one_made_with_those_settings(
    settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    request = Request(**settings)
    assert request.replace() == request
    assert request.replace(**changes) == Request(**{**settings, **changes})
    assert pickle.loads(pickle.dumps(request)) == request


@pytest.mark.parametrize("names", [*combinations(TERMS, 2), tuple(TERMS)], ids=" and ".join)
def test_all_terms_can_be_combined(names: tuple[str, ...]) -> None:
    asked = {name: TERMS[name] for name in names}
    assert Request(2, **asked).solver.name == "best"  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", TERMS)
def test_only_best_knows_terms(name: str, algorithm: str) -> None:
    asked = {"algorithm": algorithm, name: TERMS[name]}
    if algorithm == "best":
        assert Request(2, **asked).solver.name == algorithm  # type: ignore[arg-type]
        return
    with pytest.raises(ValueError, match="only best"):
        Request(2, **asked)  # type: ignore[arg-type]


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match="no setting 'budget'"):
        Request(2, budget=3)  # type: ignore[call-arg]
