from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from distributary.files import fingerprint, read_rates, write_rates
from distributary.model import Interest, Rates
from tests.strategies import interests


def test_a_fingerprint_is_stable_over_releases() -> None:
    interest = Interest.from_pairs([("a", "x"), ("b", "x"), ("b", "é")])
    assert (
        fingerprint(interest)
        == "sha256:585d32706587382e2a0b705cb588a3819113d8d41f5845a15345248840101e31"
    )
    assert (
        fingerprint(Rates.from_mapping({"x": 1.5, "é": 2.0}))
        == "sha256:b0313e5efa9be19b5940b741c7a43c86b20bb85ce71e313bb4949ba4406d04b0"
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_the_file_format_does_not_show(kind: str, tmp_path: Path) -> None:
    rates = Rates.from_mapping({"b": 0.1, "a": 1e-300})
    write_rates(rates, tmp_path / f"rates.{kind}")
    assert fingerprint(read_rates(tmp_path / f"rates.{kind}").value) == fingerprint(rates)


@settings(deadline=None)
@given(one=interests(), other=interests())
def test_fingerprints_differ_exactly_where_interests_do(one: Interest, other: Interest) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


def test_names_that_run_together_and_sizes_make_a_difference() -> None:
    one = np.ones(2)
    tables = [
        Rates(("a", "bc"), one),
        Rates(("ab", "c"), one),
        Rates(("a", "bc"), one, one),
        Rates(("a", "bc"), one, 2 * one),
        Rates(("a", "bc"), 2 * one),
    ]
    assert len({fingerprint(rates) for rates in tables}) == len(tables)
