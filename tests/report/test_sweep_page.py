"""The page and the sentences about a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from plotly import graph_objects
from plotly.offline import get_plotlyjs

from distributary.cost import FilteringPrices
from distributary.planning.knee import find_knee
from distributary.planning.sweep import SessionLimit, SweepCurve, SweepPoint, SweepResult
from distributary.report.sweep_page import knee_sentence, notes_on, render_sweep, sweep_chart
from tests.report.cases import HOSTILE
from tests.report.test_page import Outline, charts_of, without_bundle

ELBOW = ([10, 20, 50, 100], [0.8, 0.3, 0.25, 0.2])


def curve_of(
    groups: Sequence[int],
    excess: Sequence[float],
    *,
    sessions: int = 100,
    prices: FilteringPrices | None = None,
) -> SweepCurve:
    """A curve as measured: flooding wastes 1,000 messages/s."""
    prices = prices or FilteringPrices()
    points = tuple(
        SweepPoint(
            groups=n,
            sessions=sessions,
            alpha=prices.alpha,
            beta=prices.beta,
            relative_excess=share,
            excess=1000 * share,
            work=1000 * share + 50,
            seconds=1.0,
            flooding_excess=1000.0,
            used_groups=n,
            used_sessions=sessions,
            cut_short=False,
        )
        for n, share in zip(groups, excess, strict=True)
    )
    return SweepCurve(SessionLimit(sessions), prices, points, find_knee(groups, excess))


def result_of(*curves: SweepCurve, **more: int) -> SweepResult:
    counts = {"asked": 4, "capped": 0, "repeated": 0, "skipped": 0, **more}
    return SweepResult(algorithm="some", seed=42, receivers=30, flows=2000, curves=curves, **counts)


def page_of(result: SweepResult, title: str = "interest.csv") -> str:
    return render_sweep(result, title, {"budget": "5s"}, "distributary sweep --groups 10,20")


def text_of(result: SweepResult) -> str:
    return Outline(without_bundle(page_of(result))).text


def test_the_sentence_names_the_knee_and_what_ten_more_groups_save() -> None:
    # At 20 groups: 0.5 saved with 10 groups; after it 0.05 with 30 at the most.
    assert knee_sentence(curve_of(*ELBOW)).replace("\u202f", "") == (
        "from 20 groups on, ten more groups save at most 1.67% of what flooding wastes "
        "(16.7 messages/s); up to there ten saved 50%"
    )


def test_the_sentence_counts_single_groups_where_there_are_few() -> None:
    sentence = knee_sentence(curve_of([1, 2, 3], [1.0, 0.25, 0.25]))
    assert sentence.startswith("from 2 groups on, one more group saves nothing; up to there one ")


@pytest.mark.parametrize(
    ("groups", "excess", "said"),
    [
        ([10, 20], [0.9, 0.2], "at least 3 numbers of groups"),
        ([10, 20, 30], [0.9, 0.8, 0.7], "10 to 30 together save 20"),
        ([10, 20, 30], [0.9, 0.9, 0.9], "together save 0"),
    ],
)
def test_the_sentence_says_why_there_is_no_knee(
    groups: list[int], excess: list[float], said: str
) -> None:
    sentence = knee_sentence(curve_of(groups, excess))
    assert sentence.startswith("no knee: ")
    assert said in sentence


def test_notes_tell_what_was_cut_repeated_skipped_worse_and_ended_by_the_clock() -> None:
    curve = curve_of(*ELBOW)
    worst = replace(curve.points[0], worse=True, cut_short=True, used_sessions=1)
    marked = replace(curve, points=(worst, *curve.points[1:]))
    notes = notes_on(result_of(marked, capped=1, repeated=2, skipped=3, asked=12))
    assert [note.split(":")[0] for note in notes] == [
        "1 of 12 combinations with more groups or sessions than the 2,000 flows",
        "2 of 12 combinations that repeat another",
        "3 of 12 combinations with fewer sessions than groups",
        "1 point is worse than one with fewer groups",
        "at 1 point the plan has fewer sessions than allowed",
        "the search was cut short at 1 point",
    ]
    assert notes_on(result_of(curve)) == []


@pytest.mark.parametrize(
    "result",
    [
        result_of(curve_of(*ELBOW)),
        result_of(curve_of([7], [0.5])),
        result_of(curve_of([1, 2, 3], [0.0, 0.0, 0.0])),
        result_of(
            *(
                curve_of(*ELBOW, sessions=sessions, prices=prices)
                for prices in (FilteringPrices(0.1, 1.9), FilteringPrices(1.6, 0.4))
                for sessions in range(100, 112)
            )
        ),
    ],
    ids=["one curve", "one point", "nothing wasted", "many curves"],
)
def test_page_is_whole_self_contained_and_has_a_chart_for_each_pair_of_prices(
    result: SweepResult,
) -> None:
    page = page_of(result)
    own = without_bundle(page)
    outline = Outline(own)
    assert not outline.open
    assert {"curve", "points", "provenance"} <= set(outline.ids())
    assert len(outline.ids()) == len(set(outline.ids()))
    assert page.count(get_plotlyjs()) == 1
    assert "http://" not in own
    assert "https://" not in own
    assert "default-src 'none'" in own
    assert not any(tag in {"link", "iframe", "img"} for tag, _ in outline.elements)
    charts = charts_of(page)
    assert len(charts) == len({curve.prices for curve in result.curves})
    for chart in charts.values():
        graph_objects.Figure(chart)


def test_the_same_result_gives_the_same_bytes_whatever_time_it_took() -> None:
    curve = curve_of(*ELBOW)
    slower = replace(curve, points=tuple(replace(p, seconds=9.0) for p in curve.points))
    assert page_of(result_of(curve)) == page_of(result_of(slower))


def test_page_names_knee_points_seed_and_command() -> None:
    text = text_of(result_of(curve_of(*ELBOW), skipped=1))
    assert "The knee is at 20 groups" in text
    assert "from 20 groups on, ten more groups save at most 1.67" in text
    assert "0.3000" in text
    assert "1 of 4 combinations with fewer sessions than groups: skipped." in text
    footer = text[text.rindex("Provenance") :]
    for fact in ("some", "42", "2,000", "5s", "distributary sweep --groups 10,20"):
        assert fact in footer


def test_headline_tells_where_knees_lie_or_that_there_is_none() -> None:
    early, late = curve_of(*ELBOW), curve_of([10, 20, 50, 100], [0.8, 0.7, 0.25, 0.2], sessions=200)
    assert "The knee is between 20 and 50 groups" in text_of(result_of(early, late))
    straight = curve_of([10, 20, 30], [0.9, 0.8, 0.7])
    assert "No knee between 10 and 30 groups" in text_of(result_of(straight))
    assert "Only 1 group" in text_of(result_of(curve_of([1], [1.0])))


def test_chart_has_a_line_for_each_limit_and_marks_knees_and_worse_points() -> None:
    curve = curve_of(*ELBOW)
    worse = replace(curve.points[3], worse=True, compared_with=50)
    curves = [replace(curve, points=(*curve.points[:3], worse)), curve_of(*ELBOW, sessions=500)]
    data = sweep_chart(curves, 0.8)["data"]
    assert [trace["name"] for trace in data[:2]] == ["100 sessions", "500 sessions"]
    marks = {trace["name"]: trace["x"] for trace in data[2:]}
    assert marks == {"knee": [20, 20], "worse than fewer groups": [100]}
    assert "worse than 50" in text_of(result_of(*curves))


@pytest.mark.parametrize(("last", "kind"), [(500, "linear"), (501, "log")])
def test_the_axis_of_groups_is_logarithmic_where_they_are_far_apart(last: int, kind: str) -> None:
    chart = sweep_chart([curve_of([10, 20, last], [0.9, 0.3, 0.2])], 0.9)
    assert chart["layout"]["xaxis"]["type"] == kind


def test_hostile_names_are_shown_and_never_run() -> None:
    result = result_of(curve_of(*ELBOW))
    for name in HOSTILE:
        hostile = render_sweep(result, name, {name: name}, name)
        outline, plain = Outline(without_bundle(hostile)), Outline(without_bundle(page_of(result)))
        assert [tag for tag, _ in outline.elements] == [tag for tag, _ in plain.elements]
        assert outline.scripts == plain.scripts
