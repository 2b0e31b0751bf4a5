"""The options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from distributary.cost import FilteringPrices
from distributary.planning import ALGORITHMS

__all__ = [
    "Alpha",
    "Beta",
    "CalibrationFile",
    "Floor",
    "Format",
    "InterestFile",
    "Json",
    "MaxBad",
    "MessagesPerPacket",
    "Quarantine",
    "RatesFile",
    "Seed",
    "chosen_prices",
    "filtering_prices",
    "parse_seconds",
]

TABLE = "Parquet, CSV or JSON lines, by extension, or a folder of such files"

InterestFile = Annotated[
    Path, typer.Option("--interest", help=f"Who wants what: receiver, flow. {TABLE}.")
]
RatesFile = Annotated[Path, typer.Option("--rates", help=f"How fast: flow, rate. {TABLE}.")]
MaxBad = Annotated[
    str,
    typer.Option(
        "--max-bad", help="Put bad rows aside, up to this share of each table, such as 1%."
    ),
]
Floor = Annotated[
    float | None,
    typer.Option("--floor", help="Messages/s of flows that are wanted but have no rate."),
]
Quarantine = Annotated[
    Path | None,
    typer.Option("--quarantine", help="Write the bad rows here, with file, row and reason."),
]
Alpha = Annotated[
    float, typer.Option(help="Price of a message at the session filter (per message/s).")
]
Beta = Annotated[float, typer.Option(help="Price of a message at the flow filter.")]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration", help="Prices that `calibrate` measured, instead of --alpha and --beta."
    ),
]
MessagesPerPacket = Annotated[
    float, typer.Option(min=1, help="With --calibration: messages in a packet.")
]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
BUDGET_HELP = (
    "How long to search for a plan: 30s, 2m. best makes a fixed amount of work of it, so that the "
    "same seed gives the same plan; the clock ends only a run that takes 2.5 times as long, which "
    "says so. optimal and optimal-shared go by the clock, the others just end."
)
ALGORITHM_HELP = "One of " + ", ".join(a.label for a in ALGORITHMS.values()) + "."


LONGEST_S = 1e9  # a generation: more is a typing error


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


def chosen_prices(
    alpha: float, beta: float, calibration: Path | None, messages_per_packet: float
) -> FilteringPrices:
    """The prices named, or those of a calibration."""
    if calibration is None:
        return filtering_prices(alpha, beta)
    if (alpha, beta) != (1.0, 1.0):
        raise typer.BadParameter("--calibration replaces --alpha and --beta")
    from distributary.delivery.udp.calibration_file import read_prices

    return read_prices(calibration, messages_per_packet)


def at_most(most: float) -> Callable[[float], float]:
    """A check of an option's number: no more than that, and a number at all."""

    def check(value: float) -> float:
        if not value <= most:
            raise typer.BadParameter(f"{value:g} is not a number up to {most:g}")
        return value

    return check


def parse_share(text: str) -> float:
    """A share from `1%` or `0.01`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%)?", text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text!r} is not a share, such as 1% or 0.01")
    return share


def parse_bytes(text: str) -> int:
    """Bytes from `4GiB`, `500MB` or `1000`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a size, such as 4GiB")
    power = " KMGT".index((match[2] or " ").upper())
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def parse_moment(text: str) -> datetime:
    """A moment in ISO 8601; UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a moment in ISO 8601, such as 2025-03-03T09:30:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_seconds(text: str) -> float:
    """Seconds from `30`, `30s`, `500ms`, `2m`, `1h` or `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text.strip())
    unit = {"ms": 0.001, "m": 60, "h": 3600, "d": 86400}
    seconds = float(match[1]) * unit.get(match[2], 1) if match else 0
    if not 0 < seconds <= LONGEST_S:
        raise typer.BadParameter(f"{text!r} is not a time above 0, such as 30s or 2m")
    return seconds


def parse_settings(conf: list[str] | None) -> dict[str, str]:
    """Settings of Spark from `key=value`s."""
    settings = {}
    for entry in conf or ():
        key, equals, value = entry.partition("=")
        if not (equals and key):
            raise typer.BadParameter(f"--conf takes key=value, not {entry!r}")
        settings[key.strip()] = value
    return settings
