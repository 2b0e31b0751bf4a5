from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from plotly import graph_objects
from plotly.offline import get_plotlyjs

import distributary
from distributary.model import LimitUse
from distributary.report import Report, render_report
from distributary.report.wording import SAVING_EXPLAINED, number, percent
from tests.report import cases

EVERY_CASE = [
    cases.small,
    cases.single,
    cases.duplicated,
    cases.invalid,
    cases.silent,
    cases.hostile,
]
SECTIONS = ["interest", "cost", "plan", "groups", "receivers", "curve", "provenance"]


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", "".join(self.words))

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


def page_of(report: Report) -> str:
    return render_report(report)


def without_bundle(page: str) -> str:
    return page.replace(get_plotlyjs(), "")


def charts_of(page: str) -> dict[str, dict[str, object]]:
    found = re.findall(
        r'<script type="application/json" id="chart-(\w+)-data">(.*?)</script>', page, re.DOTALL
    )
    return {name: json.loads(data) for name, data in found}


@pytest.mark.parametrize("case", EVERY_CASE)
def test_every_section_renders_and_every_element_is_closed(case: Callable[[], Report]) -> None:
    outline = Outline(without_bundle(page_of(case())))
    assert not outline.open
    assert set(SECTIONS) <= set(outline.ids())
    assert len(outline.ids()) == len(set(outline.ids()))
    assert not re.search(r"\b(nan|inf|None)\b", outline.text)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_every_chart_is_a_valid_figure_with_a_place_on_the_page(
    case: Callable[[], Report],
) -> None:
    page = page_of(case())
    charts = charts_of(page)
    assert {"tree", "groups", "spread", "intake"} <= set(charts)
    for name, chart in charts.items():
        graph_objects.Figure(chart)
        assert "NaN" not in json.dumps(chart)
        assert f'id="chart-{name}"' in page


@pytest.mark.parametrize("case", [cases.small, cases.hostile])
def test_page_loads_nothing_from_outside(case: Callable[[], Report]) -> None:
    page = page_of(case())
    assert page.count(get_plotlyjs()) == 1
    own = without_bundle(page)
    assert "http://" not in own
    assert "https://" not in own
    assert "@import" not in own
    for tag, attributes in Outline(own).elements:
        assert tag not in {"link", "iframe", "base", "object", "embed"}
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")
    assert "default-src 'none'" in own


def test_hostile_names_are_shown_and_never_run() -> None:
    plain, hostile = (
        Outline(without_bundle(page_of(case()))) for case in (cases.small, cases.hostile)
    )
    tags = [tag for tag, _ in hostile.elements]
    assert tags.count("script") == [tag for tag, _ in plain.elements].count("script")
    assert not any(key.startswith("on") for _, attributes in hostile.elements for key in attributes)
    assert hostile.scripts[-1] == plain.scripts[-1]
    assert not any("<" in data for data in hostile.scripts[:-1])
    for name in cases.HOSTILE[:3]:
        assert name in hostile.text


def test_chart_labels_escape_names_for_plotly() -> None:
    tree = charts_of(page_of(cases.hostile()))["tree"]["data"][0]  # type: ignore[index]
    assert not any("<" in label for label in tree["labels"])
    assert any("&lt;img src=x" in label for label in tree["labels"])


def test_same_report_gives_the_same_bytes() -> None:
    assert page_of(cases.small()) == page_of(cases.small())


def test_page_holds_the_numbers_of_the_evaluation() -> None:
    report = cases.small()
    evaluation = report.evaluation
    text = Outline(without_bundle(page_of(report))).text
    for value in (
        evaluation.filtering.session_cost,
        evaluation.filtering.flow_cost,
        evaluation.filtering.work,
        evaluation.filtering.excess,
        evaluation.filtering.flooding_excess,
        evaluation.channel.cost,
        evaluation.channel.lower_bound,
        evaluation.operating.cost,
        evaluation.unicast_copies,
        float(evaluation.loads.received.max()),
    ):
        assert number(value) in text
    assert f"{evaluation.filtering.relative_excess:.3f}" in text
    assert percent(evaluation.goodput) in text
    assert percent(evaluation.flooding_goodput) in text


def test_headline_says_what_the_plan_saves() -> None:
    report = cases.small()
    saved = percent(1 - report.evaluation.filtering.relative_excess)
    page = page_of(report)
    assert f"<h1>Receivers waste {saved} less work than with flooding</h1>" in page
    assert f"{SAVING_EXPLAINED} The {report.algorithm} plan carries 5 flows to 4 receivers:" in page


def test_headline_of_a_demand_that_cannot_waste_says_so() -> None:
    assert "<h1>Everybody wants everything, so nothing is wasted</h1>" in page_of(cases.single())


def test_provenance_names_version_seed_prices_and_parameters() -> None:
    text = Outline(without_bundle(page_of(cases.small()))).text
    footer = text[text.rindex("Provenance") :]
    for fact in (
        distributary.__version__,
        "42",
        "α = 0.5, β = 1.5",
        "budget",
        "30 s",
        "distributary plan --groups 2",
    ):
        assert fact in footer


def test_problems_of_an_invalid_plan_are_listed() -> None:
    report = cases.invalid()
    text = Outline(without_bundle(page_of(report))).text
    assert "This plan is not valid" in text
    assert len(report.evaluation.problems) >= 3
    for problem in report.evaluation.problems:
        assert problem in text
    assert "wanted, but not served" in text


def test_invalid_plan_is_not_praised_for_what_it_leaves_out() -> None:
    # anna gets all she takes in, ben nothing at all: no share may pass 100 %.
    text = Outline(without_bundle(page_of(cases.invalid()))).text
    assert "less work than with flooding" not in text
    assert "unknown while wanted flows are missing" in text
    assert "Of what receivers receive, 100\u202f% is wanted" in text


def test_valid_plan_shows_no_alert() -> None:
    page = page_of(cases.small())
    assert "not valid" not in page.replace(get_plotlyjs(), "")
    assert "every wanted flow is delivered" in page


def test_duplicated_flows_are_mentioned_and_counted_as_sent_twice() -> None:
    report = cases.duplicated()
    text = Outline(without_bundle(page_of(report))).text
    assert "1 flow in several sessions" in text
    assert number(8.0 / 6.0) in text


def test_report_without_a_curve_says_so() -> None:
    page = page_of(cases.single())
    assert "No other numbers of groups were tried" in page
    assert "curve" not in charts_of(page)


def test_limits_are_shown_against_their_use_where_there_are_any() -> None:
    report = cases.small()
    assert "What the network allows" not in page_of(report)
    broken = LimitUse("rate of a receiver", f"receiver {cases.HOSTILE[0]!r}", 30.0, 12.0)
    kept = LimitUse("members of a group", "group 7", 3.0, 12.0)
    page = page_of(replace(report, limits=(kept, broken)))
    assert cases.HOSTILE[0] not in page.replace(get_plotlyjs(), "")
    (rows,) = re.findall(r'<section id="limits">(.*?)</section>', page, re.DOTALL)
    text = Outline(rows).text
    assert "What the network allows" in text
    for word in ("group 7", percent(0.25), percent(2.5), number(30.0), number(12.0)):
        assert word in text
