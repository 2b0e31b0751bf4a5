"""The shortest way to a plan: interest and rates as they lie in memory."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distributary as dy

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)
PAIRS = [("ann", "x"), ("ann", "y"), ("bob", "y"), ("cyd", "z"), ("bob", "y")]
RATES = {"x": 1.0, "y": 2.0, "z": 4.0, "unwanted": 8.0}


class Stream:
    """A table of some other library, that knows Arrow's C interface alone."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def table_of(pairs: list[tuple[str, str]]) -> pa.Table:
    text = pa.schema({"receiver": pa.string(), "flow": pa.string()})
    return pa.table({"receiver": [r for r, _ in pairs], "flow": [f for _, f in pairs]}, text)


def rate_table(rates: dict[str, float]) -> pa.Table:
    return pa.table({"flow": list(rates), "rate": list(rates.values())})


WAYS = {
    "pairs": (PAIRS, RATES),
    "a generator": (iter(PAIRS), RATES.items()),
    "values": (dy.Interest.from_pairs(PAIRS), dy.Rates.from_mapping(RATES)),
    "pandas": (table_of(PAIRS).to_pandas(), rate_table(RATES).to_pandas()),
    "categories": (table_of(PAIRS).to_pandas().astype("category"), rate_table(RATES)),
    "arrow": (table_of(PAIRS), rate_table(RATES)),
    "a stream": (Stream(table_of(PAIRS)), Stream(rate_table(RATES))),
}


@pytest.mark.parametrize("way", WAYS)
def test_interest_and_rates_may_come_as_anything_that_holds_them(way: str) -> None:
    request = dy.Request(2, 3, algorithm="flow-merge", seed=4)
    demand = dy.Demand.of(dy.Interest.from_pairs(PAIRS), dy.Rates.from_mapping(RATES))
    found = dy.plan(*WAYS[way], groups=2, sessions=3, algorithm="flow-merge", seed=4)
    assert found.plan == dy.plan(demand, request).plan


def test_polars_tables_are_taken() -> None:
    polars = pytest.importorskip("polars")
    wanted, rates = polars.from_arrow(table_of(PAIRS)), polars.from_arrow(rate_table(RATES))
    assert dy.plan(wanted, rates, groups=3, algorithm="hash").plan.groups_for("cyd")


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=9))
def test_a_table_means_what_its_pairs_mean(pairs: list[tuple[str, str]]) -> None:
    chunks = pa.concat_tables([table_of(pairs[:2]), table_of(pairs[2:])])
    assert dy.Interest.of(chunks) == dy.Interest.from_pairs(pairs)
    rates = {flow: 1.5 + index for index, (_, flow) in enumerate(pairs)}
    listed = rate_table(rates)
    assert dy.Rates.of(pa.concat_tables([listed, listed])) == dy.Rates.from_mapping(rates)


def test_sizes_and_peaks_come_along() -> None:
    table = pa.table({"flow": ["b", "a"], "rate": [1, 2], "peak": [3, 4], "size": [5.0, 6.0]})
    rates = dy.Rates.of(table)
    assert rates.peak is not None
    assert rates.size is not None
    assert (*rates.rate, *rates.peak, *rates.size) == (2, 1, 4, 3, 6, 5)


@pytest.mark.parametrize(
    ("wanted", "rates", "said"),
    [
        (pa.table({"receiver": ["a"]}), RATES, "needs one column 'flow'; .*'receiver'"),
        (pa.table({"receiver": [1], "flow": ["x"]}), RATES, "receiver must be .* not of int64"),
        (pa.table({"receiver": [None], "flow": ["x"]}), RATES, "receiver is missing in 1 row"),
        (pa.table({"receiver": ["a"], "flow": [""]}), RATES, "flow is empty"),
        (pd.DataFrame({"receiver": [], "flow": []}, dtype="string"), RATES, "at least one"),
        (PAIRS, pa.table({"flow": ["x"], "rate": ["1"]}), "rate must be .* not of string"),
        (PAIRS, pa.table({"flow": ["x"], "rate": [None]}), "rate is missing in 1 row"),
        (PAIRS, pa.table({"flow": ["x", "x"], "rate": [1, 2]}), "'x' has more than one rate"),
        (PAIRS, {"x": 1.0}, "no rate"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(wanted: Any, rates: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError, dy.MissingRateError), match=said):
        dy.plan(wanted, rates, groups=2)


def test_a_plan_wants_either_its_parts_or_a_demand_and_a_request() -> None:
    demand = dy.Demand.of(PAIRS, RATES)
    untyped: Any = dy.plan
    with pytest.raises(TypeError, match="groups=2"):
        untyped(PAIRS, RATES)
    with pytest.raises(TypeError, match="'seed' already"):
        untyped(demand, dy.Request(2), seed=3)
    with pytest.raises(TypeError, match="a demand and a request"):
        untyped(demand, RATES, groups=2)
