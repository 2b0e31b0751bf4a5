"""How a log is written: paths of columns, words and times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.pipeline.shapes import LogShape, LogShapes, parse_path, quote_path


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("client_id", ("client_id",)),
        ("payload.instrument.symbol", ("payload", "instrument", "symbol")),
        ("$.a['b.c']", ("a", "b.c")),
        ("$['b.c'].d", ("b.c", "d")),
        ('a["it\'s"]', ("a", "it's")),
        (r"a['it\'s \\']", ("a", "it's \\")),
        ("legs[0].symbol", ("legs", 0, "symbol")),
        ("a[0][12]", ("a", 0, 12)),
        ("client id", ("client id",)),
        ("$price", ("$price",)),
    ],
)
def test_a_path_is_names_and_indexes(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse_path(text) == steps


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a.", "[0]", "a[", "a[x]", "a['b", "a]b", "$."])
def test_what_is_no_path_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        parse_path(text)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(
    ["a.b", "a[0]", "'", '"', "\\", "$", "a'b\\\"", "[", "]", ".", "$.a"]
)


@given(st.tuples(NAMES), st.lists(NAMES | st.integers(0, 999), max_size=4))
def test_every_path_can_be_written(head: tuple[str], rest: list[str | int]) -> None:
    steps = (*head, *rest)
    assert parse_path(quote_path(steps)) == steps


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="'on' cannot mean both"):
        LogShape(subscribe=("on",), unsubscribe=("off", "on"))
    with pytest.raises(ValueError, match="'Mars/Base' is not a time zone"):
        LogShape(time_zone="Mars/Base")
    for zone in ("../etc/passwd", "", "Europe", "+25:00"):
        with pytest.raises(ValueError, match="is not a time zone"):
            LogShape(time_zone=zone)
    with pytest.raises(ValueError, match="'h' is not a unit of time"):
        LogShape(time_unit="h")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="either a unit or a format"):
        LogShape(time_unit="s", time_format="yyyy")
    with pytest.raises(ValueError, match="publications have no column 'receiver', only ts, flow"):
        LogShapes(publications=LogShape({"receiver": "user"}))
    with pytest.raises(ValueError, match="publications cannot do without 'ts'"):
        LogShapes(publications=LogShape({"ts": ""}))
    LogShapes(LogShape({"ts": "", "action": ""}), LogShape({"size": "", "id": ""}))


def test_the_shapes_of_a_stream_leave_nothing_to_guess() -> None:
    shapes = LogShapes(LogShape({"receiver": "client"}, time_zone="+01:00")).without_guessing()
    assert not shapes.subscriptions.guess
    assert not shapes.filters.guess
    assert shapes.subscriptions.columns == {"receiver": "client"}
