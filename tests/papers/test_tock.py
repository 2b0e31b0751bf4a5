"""The figures of Tock et al. against what is printed and what was found independently."""

from __future__ import annotations

import pytest

from distributary.cost import FilteringPrices
from distributary.papers.tock.fig6 import INDEPENDENT_FLAT, INDEPENDENT_MOST, PRICES
from distributary.papers.tock.fig7 import AXIS, INDEPENDENT
from tests.papers.cases import by_column, quick, verdicts


def fig6_cost(alpha: float, groups: int, sessions: int) -> float:
    (row,) = (
        row
        for row in by_column(quick("tock-fig6"))
        if (row["alpha"], row["groups"], row["sessions"]) == (alpha, groups, sessions)
    )
    return float(row["relative_cost"])


def fig7_cost(sessions: int, algorithm: str) -> float:
    (row,) = (
        row
        for row in by_column(quick("tock-fig7"))
        if (row["sessions"], row["algorithm"]) == (sessions, algorithm)
    )
    return float(row["relative_cost"])


def test_fig4_markets_hold_all_symbols_and_shrink_with_their_rank() -> None:
    rows = by_column(quick("tock-fig4"))
    symbols = [int(row["symbols"]) for row in rows]
    assert sum(symbols) == 20_000
    assert symbols == sorted(symbols, reverse=True)
    assert symbols[0] == 6828  # 20,000 / (1 + 1/2 + ... + 1/10)


def test_fig4_embeds_the_interest_matrix_as_a_picture() -> None:
    assert "data:image/png;base64," in quick("tock-fig4").chart


@pytest.mark.parametrize("groups", INDEPENDENT_FLAT)
def test_fig6_without_hierarchy_is_near_the_independent_cost(groups: int) -> None:
    for prices in PRICES:
        cost = fig6_cost(prices.alpha, groups, groups)
        assert cost == pytest.approx(INDEPENDENT_FLAT[groups], abs=0.04)


@pytest.mark.parametrize("prices", PRICES, ids=lambda prices: f"alpha={prices.alpha}")
@pytest.mark.parametrize("groups", [10, 20, 50, 100])
def test_fig6_with_most_sessions_is_near_the_independent_cost(
    prices: FilteringPrices, groups: int
) -> None:
    cost = fig6_cost(prices.alpha, groups, 1000)
    assert cost == pytest.approx(INDEPENDENT_MOST[prices][groups], abs=0.03)


def test_fig6_sessions_are_worth_less_the_dearer_their_filter() -> None:
    assert verdicts(quick("tock-fig6"))[
        "the dearer the session filter, the less sessions are worth"
    ]


@pytest.mark.parametrize("sessions", [100, 500, 1000])
@pytest.mark.parametrize("algorithm", ["SF", "GF", "IT", "RRA"])
def test_fig7_points_are_near_the_independent_ones_and_on_the_papers_axis(
    sessions: int, algorithm: str
) -> None:
    cost = fig7_cost(sessions, algorithm)
    assert cost == pytest.approx(INDEPENDENT[sessions][algorithm], abs=0.02)
    assert AXIS[0] <= cost <= AXIS[1]


def test_fig7_many_sessions_part_the_algorithms_as_published() -> None:
    for sessions in (500, 1000):
        assert fig7_cost(sessions, "GF") < fig7_cost(sessions, "SF")
        assert fig7_cost(sessions, "IT") < fig7_cost(sessions, "GF")
        assert fig7_cost(sessions, "RRA") < fig7_cost(sessions, "GF")


def test_unicast_and_flooding_come_out_as_printed() -> None:
    rows = by_column(quick("tock-unicast-flooding"))

    def mean(column: str) -> float:
        return sum(float(row[column]) for row in rows) / len(rows)

    assert mean("unicast_copies") == pytest.approx(10.1, abs=0.5)  # section 5.3
    assert mean("flooding_goodput") == pytest.approx(2, abs=0.1)  # percent, section 5.3
    assert mean("symbols_mean") == pytest.approx(68.85, abs=3)  # section 5.1
    assert mean("symbols_max") == pytest.approx(102, abs=1)
    assert mean("symbols_min") == pytest.approx(15, abs=1)
