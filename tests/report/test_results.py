from __future__ import annotations

import pytest

import distributary.report
from distributary.report.results import comparison_rows
from tests.report import cases


def test_public_names_are_all_there() -> None:
    for name in distributary.report.__all__:
        assert hasattr(distributary.report, name)


def test_comparison_holds_flooding_unicast_and_exactly_one_chosen_plan() -> None:
    rows = comparison_rows(cases.small())
    assert [row.name for row in rows] == ["flooding", "unicast", "another", "ours"]
    assert [row.chosen for row in rows] == [False, False, False, True]


def test_flooding_and_unicast_bound_the_plan() -> None:
    report = cases.small()
    flooding, unicast, _, ours = comparison_rows(report)
    assert unicast.work <= ours.work <= flooding.work
    assert (flooding.relative_excess, unicast.relative_excess) == (1.0, 0.0)
    # A=1 B=2 C=3 D=4 E=5: anna wants 6, ben 5, cleo 9, dora 5; both prices are known.
    assert unicast.sent_rate == 25.0
    assert unicast.channel_cost == 3 * 25.0
    assert flooding.sent_rate == ours.sent_rate == 15.0
    assert flooding.channel_cost == 4 * 15.0 + 2 * 15.0
    assert unicast.sent_rate / ours.sent_rate == pytest.approx(report.evaluation.unicast_copies)
