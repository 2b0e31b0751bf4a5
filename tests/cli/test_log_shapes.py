"""The options that say how logs are written."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from distributary.cli.log_shapes import ShapeOptions
from distributary.pipeline.shapes import LogShape, LogShapes


def test_a_column_is_for_every_log_that_has_it_and_a_prefix_for_one() -> None:
    options = ShapeOptions(
        column=["receiver=client", "ts=time", "publications.ts=$.at['x=y']", "id="],
        action=["subscribe=SUB, JOIN", "subscribe=1"],
        time_unit=["publications=ms"],
        time_zone=["Europe/Berlin", "publications=UTC"],
        time_format=["subscriptions=yyyy=MM"],
    )
    words: dict[str, Any] = {"subscribe": ("SUB", "JOIN", "1")}
    berlin: dict[str, Any] = {"time_zone": "Europe/Berlin", **words}
    assert options.read_shapes() == LogShapes(
        LogShape({"receiver": "client", "ts": "time"}, time_format="yyyy=MM", **berlin),
        LogShape({"ts": "$.at['x=y']", "id": ""}, time_unit="ms", **words),
        LogShape({"receiver": "client"}, **berlin),
    )
    assert ShapeOptions().read_shapes() == LogShapes()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"column": ["client"]}, "is not COLUMN=PATH"),
        ({"column": ["user=client"]}, "with a column of ts, receiver, flow, action"),
        ({"column": ["logs.ts=time"]}, "a log of subscriptions, publications, filters"),
        ({"column": ["publications.receiver=user"]}, "publications have no column 'receiver'"),
        ({"column": ["ts=a", "ts=b"]}, "names 'ts' a second time"),
        ({"column": ["flow="]}, "cannot do without 'flow'"),
        ({"column": ["flow=a..b"]}, "is not a path"),
        ({"action": ["join=SUB"]}, "is not subscribe=WORD"),
        ({"action": ["subscribe="]}, "is not subscribe=WORD"),
        ({"action": ["subscribe=unsubscribe"]}, "cannot mean both"),
        ({"time_unit": ["minutes"]}, "'minutes' is not a unit of time"),
        ({"time_unit": ["s", "ms"]}, "comes after another"),
        ({"time_zone": ["Mars/Base"]}, "is not a time zone"),
        ({"time_unit": ["s"], "time_format": ["yyyy"]}, "either a unit or a format"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(options: dict[str, list[str]], why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        ShapeOptions(**options).read_shapes()  # type: ignore[arg-type]
