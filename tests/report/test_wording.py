from __future__ import annotations

import pytest

from distributary.files import evaluation_document
from distributary.report import Report
from distributary.report.rendering import show_name
from distributary.report.wording import headline, number, percent, seconds, stored_headline
from tests.report import cases


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7480, "7,480"),
        (1234567.8, "1,234,568"),
        (99.96, "100"),
        (99.94, "99.9"),
        (9.996, "10.0"),
        (1.234, "1.23"),
        (0.9996, "1.00"),
        (0.1234, "0.123"),
        (0.00001234, "1.2e-05"),
        (-12.34, "-12.3"),
        (3e15, "3e+15"),
        (None, "–"),
    ],
)
def test_numbers_have_sensible_precision(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (1, "100"), (0.99999, ">99.9"), (0.00001, "<0.1"), (0.8364, "83.6"), (1.5, "150.0")],
)
def test_only_everything_is_a_hundred_percent(share: float, text: str) -> None:
    assert percent(share) == f"{text}\u202f%"


@pytest.mark.parametrize(
    ("duration", "text"), [(0.0042, "4.20 ms"), (1.5, "1.50 s"), (3600, "60 min"), (None, "–")]
)
def test_durations_have_units(duration: float | None, text: str) -> None:
    assert seconds(duration).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (cases.single(), "Everybody wants everything, so nothing is wasted"),
        (cases.perfect(), "Receivers waste no work"),
        (cases.flooded(), "Receivers waste as much work as with flooding"),
        (cases.invalid(), "This plan is not valid"),
    ],
)
def test_headline_is_honest_at_the_edges(report: Report, sentence: str) -> None:
    evaluation = report.evaluation
    assert headline(evaluation.filtering, valid=evaluation.valid) == sentence
    assert stored_headline(evaluation_document(evaluation)) == sentence


def test_long_names_are_cut() -> None:
    assert len(show_name("x" * 10_000)) < 100
