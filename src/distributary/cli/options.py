"""The options that several commands share, by their panel in `--help`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from distributary.cli.quantities import Rate, Seconds, Share, parse_moment
from distributary.cost import FilteringPrices

__all__ = [
    "INPUT",
    "LIMITS",
    "NETWORK",
    "OUTPUT",
    "PRICES",
    "SEARCH",
    "SPARK",
    "TABLE",
    "EventFile",
    "FilterFile",
    "Json",
    "Moment",
    "OutFolder",
    "OutputFormat",
    "ProgressFile",
    "Publications",
    "Seed",
    "SparkOptions",
    "at_most",
    "duration_option",
    "filtering_prices",
    "moment_option",
    "option",
    "rate_option",
    "reject_bad_values",
    "seed_option",
    "share_option",
]

# --- panels ---------------------------------------------------------------------------------------

INPUT, OUTPUT = "Input", "Output"
LIMITS, SEARCH, PRICES = "Limits", "Search", "Prices"
NETWORK, SPARK = "Network", "Spark"

TABLE = "Parquet, CSV or JSON lines (by extension), or a folder of such files"


def option(help: str, panel: str, *names: str, **limits: Any) -> typer.models.OptionInfo:
    """Declare an option of a panel."""
    made: typer.models.OptionInfo = typer.Option(*names, help=help, rich_help_panel=panel, **limits)
    return made


def duration_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option for a time such as 30s."""
    return option(help, panel, *names, parser=Seconds, metavar="TIME")


def rate_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option for a rate such as 5000 or 800Mbit."""
    return option(help, panel, *names, parser=Rate, metavar="RATE")


def share_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option for a share such as 1%."""
    return option(help, panel, *names, parser=Share, metavar="SHARE")


def seed_option(panel: str) -> typer.models.OptionInfo:
    """Declare the option for the random seed."""
    return option("Random seed; the same seed gives the same result.", panel, min=0)


def moment_option(help: str) -> typer.models.OptionInfo:
    """Declare an option for a moment in ISO 8601."""
    return option(help, INPUT, parser=parse_moment, metavar="MOMENT")


# --- input ----------------------------------------------------------------------------------------

FilterFile = Annotated[
    Path,
    option(f"Table of SQL filters, with columns receiver, filter. {TABLE}.", INPUT, "--filters"),
]
EventFile = Annotated[
    Path, option(f"Table of events; its columns are the attributes. {TABLE}.", INPUT, "--events")
]
Moment = datetime | None
Publications = Annotated[
    str, option("Publication log: a file, a folder, or a table in Spark's catalogue.", INPUT)
]

Seed = Annotated[int, seed_option(SEARCH)]

# --- output and Spark -----------------------------------------------------------------------------

Json = Annotated[bool, option("Print one JSON document on stdout.", OUTPUT, "--json")]
ProgressFile = Annotated[
    Path | None,
    option("File to write the progress to, as JSON lines; it is replaced.", OUTPUT, "--events"),
]
OutFolder = Annotated[
    str, option("Folder to write or replace.", OUTPUT, "--out", metavar="PATH|URI")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and its settings."""

    master: Annotated[
        str | None,
        option(
            "Spark master, such as spark://HOST:7077.",
            SPARK,
            show_default="spark-submit's, or all cores of this machine",
        ),
    ] = None
    conf: Annotated[
        list[str] | None, option("Spark setting as key=value; repeatable.", SPARK, "--conf")
    ] = None

    def parse_settings(self) -> dict[str, str]:
        """Parse the `key=value` settings of Spark."""
        settings = {}
        for entry in self.conf or ():
            key, equals, value = entry.partition("=")
            if not (equals and key):
                raise typer.BadParameter(f"{entry!r} is not key=value", param_hint="'--conf'")
            settings[key.strip()] = value
        return settings


class OutputFormat(StrEnum):
    """The file formats of tables."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


# --- values ---------------------------------------------------------------------------------------


@contextmanager
def reject_bad_values(hint: str | None = None) -> Iterator[None]:
    """Turn the `ValueError` of a params object into a usage error."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def filtering_prices(alpha: float, beta: float) -> FilteringPrices:
    """Make prices of the two options; invalid ones are wrong usage."""
    with reject_bad_values("'--alpha' / '--beta'"):
        return FilteringPrices(alpha, beta)


def at_most(most: float) -> Callable[[float], float]:
    """Make an option callback that rejects numbers above `most`, and not-a-number."""

    def check(value: float) -> float:
        if not value <= most:
            raise typer.BadParameter(f"{value:g} is not a number up to {most:g}")
        return value

    return check
