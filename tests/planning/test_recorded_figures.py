"""The Tock benchmark system, beside the figures of the paper and of an independent implementation.

Both are in PAPERS.md: the first column is the paper's (section 5.1 and Fig. 7), the second what an
independent reading of it gave over 40 seeds (the workload) and 3 seeds (Cx/Cf).
"""

from __future__ import annotations

import numpy as np
import pytest

from distributary.cost import evaluate
from distributary.model import Demand
from distributary.planning import Request, plan
from distributary.workloads import TradingFloor, trading_floor
from tests.cost.cases import flooding


@pytest.fixture(scope="module")
def demand() -> Demand:
    return Demand.of(*trading_floor(TradingFloor(), np.random.default_rng(1)))


def test_symbols_per_receiver_are_as_published(demand: Demand) -> None:
    # Section 5.1: 68.85 on average, 15 to 102. Found: 67.2 +- 1.1, 15.3 to 102.
    symbols = np.diff(demand.interest.receiver_offsets)
    assert symbols.mean() == pytest.approx(67.2, abs=3)
    assert symbols.min() == pytest.approx(15.3, abs=3)
    assert symbols.max() == 102


def test_unicast_and_flooding_are_as_published(demand: Demand) -> None:
    # Section 5.1: 10.1 copies of each message, goodput 2 %. Found: 10.0 +- 0.26, 2.0 %.
    found = evaluate(flooding(demand), demand)
    assert found.unicast_copies == pytest.approx(10.0, abs=0.8)
    assert found.flooding_goodput == pytest.approx(0.020, abs=0.003)
    assert found.filtering.relative_excess == pytest.approx(1)


@pytest.mark.parametrize(
    ("algorithm", "found"), [("SF", 0.212), ("GF", 0.188), ("IT", 0.181), ("RRA", 0.180)]
)
def test_the_relative_excess_at_50_groups_and_500_sessions(
    demand: Demand, algorithm: str, found: float
) -> None:
    # Fig. 7 shows curves only; Cx/Cf with alpha = beta = 1 as an independent implementation has it.
    request = Request(groups=50, sessions=500, algorithm=algorithm)
    result = evaluate(plan(demand, request).plan, demand)
    assert result.valid
    assert result.groups <= 50
    assert result.sessions <= 500
    assert result.filtering.relative_excess == pytest.approx(found, abs=0.015)
