"""The figures of Adler et al. against what is printed and what was found independently."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from distributary.papers.adler.fig2 import AGREEMENTS, INDEPENDENT_RATIOS
from distributary.papers.adler.fig3 import GROUPS
from distributary.papers.adler.fig4 import INDEPENDENT, _explain_axis
from distributary.papers.figure import Cell
from tests.papers.cases import by_column, quick, verdicts

RECORDED = Path(__file__).parents[2] / "docs/papers"


def overheads(setting: str, algorithm: str) -> list[float]:
    return [
        float(row["overhead"])
        for row in by_column(quick("adler-fig3"))
        if (row["setting"], row["algorithm"]) == (setting, algorithm)
    ]


def test_fig2_no_heuristic_beats_its_optimum_and_sharing_only_helps() -> None:
    for row in by_column(quick("adler-fig2")):
        cost = {name: float(value) for name, value in row.items()}
        assert min(cost[name] for name in ("fbm", "ran", "rse", "rre")) >= cost["occ"]
        assert cost["ubm"] >= cost["oca"]
        assert cost["occ"] >= cost["oca"] >= cost["c_inf"]


def test_fig2_records_the_shares_that_the_paper_prints() -> None:
    assert [round(100 * agreement.paper / 50) for agreement in AGREEMENTS] == [
        *(58, 92),  # FBM and OCC, section 5.2.1
        *(10, 62),  # UBM and OCA
        *(36, 84),  # OCC and OCA
    ]


@pytest.mark.parametrize("algorithm", INDEPENDENT_RATIOS)
def test_fig2_mean_costs_are_near_the_independent_ones(algorithm: str) -> None:
    rows = by_column(quick("adler-fig2"))
    ratios = [float(row[algorithm.lower()]) / float(row["occ"]) for row in rows]
    assert sum(ratios) / len(ratios) == pytest.approx(INDEPENDENT_RATIOS[algorithm], abs=0.15)


def test_fig2_says_plainly_that_user_merge_misses_its_share() -> None:
    figure = quick("adler-fig2")
    assert "62 % is not reached" in figure.text
    assert not verdicts(figure)["UBM within 5 % of OCA in 62 % of the instances"]


@pytest.mark.parametrize("setting", ["a", "b", "c", "d"])
def test_fig3_flow_merge_falls_with_every_group_down_to_nothing(setting: str) -> None:
    overhead = overheads(setting, "FBM")
    assert all(after < before for before, after in pairwise(overhead))
    assert overhead[-1] == 0


@pytest.mark.parametrize("setting", ["a", "b", "c", "d"])
def test_fig3_one_group_costs_the_same_however_it_was_filled(setting: str) -> None:
    algorithms = ("FBM", "UBM", "RAN", "RSE", "RRE")
    assert len({overheads(setting, algorithm)[0] for algorithm in algorithms}) == 1


@pytest.mark.parametrize("setting", ["b", "d"])
def test_fig3_user_merge_rises_again_where_interest_is_dense(setting: str) -> None:
    overhead = overheads(setting, "UBM")
    assert overhead[-1] > 1.1 * min(overhead)


def test_fig3_reports_where_user_merge_beats_flow_merge() -> None:
    at = GROUPS.index(5)
    assert overheads("c", "UBM")[at] < overheads("c", "FBM")[at]
    figure = quick("adler-fig3")
    (best,) = [claim for claim in figure.claims if claim.says.startswith("FBM beats UBM")]
    assert best.ours.startswith("from 10 groups on")
    assert "with fewer beaten in" in best.ours


@pytest.mark.parametrize("algorithm", INDEPENDENT)
def test_fig4_cost_over_the_lower_bound_is_near_the_independent_range(algorithm: str) -> None:
    low, high = INDEPENDENT[algorithm]
    for row in by_column(quick("adler-fig4")):
        if row["algorithm"] == algorithm:
            assert low - 0.3 <= float(row["cost_over_c_inf"]) <= high + 0.3


def test_fig4_groups_are_a_tenth_of_the_flows() -> None:
    rows = by_column(quick("adler-fig4"))

    def flows(row: dict[str, Cell]) -> Cell:
        return row["flows"]

    sizes = {size: {row["groups"] for row in of_size} for size, of_size in groupby(rows, flows)}
    assert sizes == {50: {5}, 100: {10}, 150: {15}, 200: {20}}


def test_fig4_says_which_verdict_rests_on_where_its_axis_begins() -> None:
    calm = {name: np.array([3.2, 3.3, 3.2]) for name in ("FBM", "UBM", "RAN", "RSE", "RRE")}
    beaten = calm | {"UBM": np.array([2.9, 3.0, 2.8])}
    rests = _explain_axis({50: beaten, 100: calm})
    assert "from 50 flows the claim that FBM is the best does not hold: the verdict rests" in rests
    assert rests in (RECORDED / "adler-fig4.md").read_text(encoding="utf-8")
    for everywhere, verdict in ((calm, "holds"), (beaten, "does not hold")):
        said = _explain_axis({50: everywhere, 100: everywhere})
        assert said.endswith(f"the claim that FBM is the best {verdict}.")


def test_fig2_ours_is_never_below_the_proven_optimum() -> None:
    for row in by_column(quick("adler-fig2")):
        assert float(row["best"]) >= float(row["occ"])


def test_the_page_says_what_ours_adds() -> None:
    for name in ("adler-fig2", "adler-fig3", "adler-fig4", "adler-asymmetric", "adler-weights"):
        figure = quick(name)
        assert "`best`" in figure.own
        assert f"## What ours adds\n\n{figure.own}" in figure.text


def test_asymmetric_user_merge_wins_only_where_users_are_few() -> None:
    ratio = {
        (row["flows"], row["users"], row["algorithm"]): float(row["cost_over_c_inf"])
        for row in by_column(quick("adler-asymmetric"))
    }
    assert ratio[300, 60, "UBM"] < ratio[300, 60, "FBM"]
    assert ratio[60, 300, "FBM"] < ratio[60, 300, "UBM"]


def test_weights_user_merge_costs_nothing_extra_in_the_end_if_sending_is_free() -> None:
    overhead = {
        (row["w1"], row["setting"], row["groups"], row["algorithm"]): row["overhead_over_c_inf"]
        for row in by_column(quick("adler-weights"))
    }
    for setting in ("b", "d"):
        assert overhead[1.0, setting, 100, "UBM"] == 0  # a group for every user
        assert float(overhead[0.5, setting, 100, "UBM"]) > 0
        assert overhead[0.5, setting, 100, "FBM"] == 0  # a group for every flow
