"""The options that several commands share, by their panel in `--help`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from distributary.cli.quantities import Seconds, Share, parse_moment
from distributary.cost import FilteringPrices
from distributary.files import read_prices
from distributary.planning import ALGORITHMS

__all__ = [
    "INPUT",
    "LIMITS",
    "NETWORK",
    "OUTPUT",
    "PRICES",
    "SEARCH",
    "SPARK",
    "TABLE",
    "AlgorithmName",
    "Alpha",
    "Beta",
    "Budget",
    "CalibrationFile",
    "Conf",
    "Floor",
    "Groups",
    "InterestFile",
    "Json",
    "Master",
    "MaxBad",
    "MessagesPerPacket",
    "Moment",
    "OutputFormat",
    "Quarantine",
    "RatesFile",
    "Seed",
    "Sessions",
    "at_most",
    "duration_option",
    "filtering_prices",
    "moment_option",
    "parse_settings",
    "reject_bad_values",
    "seed_option",
    "select_prices",
    "share_option",
]

# --- panels ---------------------------------------------------------------------------------------

INPUT, OUTPUT = "Input", "Output"
LIMITS, SEARCH, PRICES = "Limits", "Search", "Prices"
NETWORK, SPARK = "Network", "Spark"

TABLE = "Parquet, CSV or JSON lines (by extension), or a folder of such files"
BUDGET_HELP = (
    "How long to search for a plan, such as 30s or 2m. `best` turns it into a fixed amount of "
    "work, so the same seed and budget give the same plan on any machine; the clock stops it only "
    "after 2.5 times the budget, and it then reports that it was cut short. `optimal` and "
    "`optimal-shared` stop when the time is over. The other algorithms ignore it."
)
ALGORITHM_HELP = (
    "Planning algorithm: one of " + ", ".join(a.label for a in ALGORITHMS.values()) + "."
)


def duration_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option for a time such as 30s."""
    made: typer.models.OptionInfo = typer.Option(
        *names, parser=Seconds, metavar="TIME", help=help, rich_help_panel=panel
    )
    return made


def share_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option for a share such as 1%."""
    made: typer.models.OptionInfo = typer.Option(
        *names, parser=Share, metavar="SHARE", help=help, rich_help_panel=panel
    )
    return made


def seed_option(panel: str) -> typer.models.OptionInfo:
    """Declare the option for the random seed."""
    made: typer.models.OptionInfo = typer.Option(
        min=0, help="Random seed; the same seed gives the same result.", rich_help_panel=panel
    )
    return made


def moment_option(help: str) -> typer.models.OptionInfo:
    """Declare an option for a moment in ISO 8601."""
    made: typer.models.OptionInfo = typer.Option(
        parser=parse_moment, metavar="MOMENT", help=help, rich_help_panel=INPUT
    )
    return made


# --- input ----------------------------------------------------------------------------------------

InterestFile = Annotated[
    Path,
    typer.Option(
        "--interest",
        help=f"Table of who wants which flow, with columns receiver, flow. {TABLE}.",
        rich_help_panel=INPUT,
    ),
]
RatesFile = Annotated[
    Path,
    typer.Option(
        "--rates",
        help=f"Table of rates in messages/s, with columns flow, rate. {TABLE}.",
        rich_help_panel=INPUT,
    ),
]
MaxBad = Annotated[
    Share,
    share_option("Leave out bad rows, up to this share of each table, such as 1%.", INPUT),
]
Floor = Annotated[
    float | None,
    typer.Option(
        "--floor",
        help="Messages/s for wanted flows that have no rate; without it they are an error.",
        rich_help_panel=INPUT,
    ),
]
Quarantine = Annotated[
    Path | None,
    typer.Option(
        "--quarantine",
        help="Write all bad rows to this table, with file, row and reason.",
        rich_help_panel=INPUT,
    ),
]
Moment = datetime | None

# --- the planner ----------------------------------------------------------------------------------

Groups = Annotated[
    int,
    typer.Option(
        min=1, help="Maximum number of multicast groups in the plan.", rich_help_panel=LIMITS
    ),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum number of sessions in the plan.",
        show_default="one per group",
        rich_help_panel=LIMITS,
    ),
]
AlgorithmName = Annotated[
    str, typer.Option("--algorithm", help=ALGORITHM_HELP, rich_help_panel=SEARCH)
]
Budget = Annotated[Seconds, duration_option(BUDGET_HELP, SEARCH)]
Seed = Annotated[int, seed_option(SEARCH)]

# --- prices ---------------------------------------------------------------------------------------

Alpha = Annotated[
    float,
    typer.Option(
        help="Cost of one message at the session filter (any unit).", rich_help_panel=PRICES
    ),
]
Beta = Annotated[
    float,
    typer.Option(
        help="Cost of one message at the flow filter (same unit).", rich_help_panel=PRICES
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="File written by `calibrate`: use its prices instead of --alpha and --beta.",
        rich_help_panel=PRICES,
    ),
]
MessagesPerPacket = Annotated[
    float,
    typer.Option(
        min=1,
        help="With --calibration: messages per packet that the prices are for.",
        rich_help_panel=PRICES,
    ),
]

# --- output and Spark -----------------------------------------------------------------------------

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=OUTPUT),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master, such as spark://HOST:7077.",
        show_default="spark-submit's, or all cores of this machine",
        rich_help_panel=SPARK,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Spark setting as key=value; repeatable.", rich_help_panel=SPARK),
]


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


def select_prices(
    alpha: float, beta: float, calibration: Path | None, messages_per_packet: float
) -> FilteringPrices:
    """Return the prices given, or those of the calibration file."""
    if calibration is None:
        return filtering_prices(alpha, beta)
    if (alpha, beta) != (1.0, 1.0):
        raise typer.BadParameter("--calibration replaces --alpha and --beta: give one or the other")
    return read_prices(calibration, messages_per_packet)


def at_most(most: float) -> Callable[[float], float]:
    """Make an option callback that rejects numbers above `most`, and not-a-number."""

    def check(value: float) -> float:
        if not value <= most:
            raise typer.BadParameter(f"{value:g} is not a number up to {most:g}")
        return value

    return check


def parse_settings(conf: list[str] | None) -> dict[str, str]:
    """Parse the `key=value` settings of Spark."""
    settings = {}
    for entry in conf or ():
        key, equals, value = entry.partition("=")
        if not (equals and key):
            raise typer.BadParameter(f"{entry!r} is not key=value", param_hint="'--conf'")
        settings[key.strip()] = value
    return settings
