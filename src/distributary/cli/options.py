"""The options that several commands share."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from distributary.cost import FilteringPrices
from distributary.planning import ALGORITHMS

__all__ = [
    "Alpha",
    "Beta",
    "Format",
    "InterestFile",
    "Json",
    "RatesFile",
    "Seed",
    "filtering_prices",
    "parse_seconds",
]

TABLE = "Parquet, CSV or JSON lines, by extension, or a folder of such files"

InterestFile = Annotated[
    Path, typer.Option("--interest", help=f"Who wants what: receiver, flow. {TABLE}.")
]
RatesFile = Annotated[Path, typer.Option("--rates", help=f"How fast: flow, rate. {TABLE}.")]
Alpha = Annotated[
    float, typer.Option(help="Price of a message at the session filter (per message/s).")
]
Beta = Annotated[float, typer.Option(help="Price of a message at the flow filter.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ALGORITHM_HELP = "One of " + ", ".join(a.label for a in ALGORITHMS.values()) + "."


class Format(StrEnum):
    """How tables are written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


def filtering_prices(alpha: float, beta: float) -> FilteringPrices:
    """The two prices, refused as wrong usage where they make no sense."""
    try:
        return FilteringPrices(alpha, beta)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--alpha' / '--beta'") from None


def parse_seconds(text: str) -> float:
    """Seconds from `30`, `30s`, `500ms`, `2m` or `1h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", text.strip())
    seconds = float(match[1]) * {"ms": 0.001, "m": 60, "h": 3600}.get(match[2], 1) if match else 0
    if not seconds > 0:
        raise typer.BadParameter(f"{text!r} is not a time above 0, such as 30s or 2m")
    return seconds
