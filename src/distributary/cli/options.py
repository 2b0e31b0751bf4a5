"""The options that several commands share, by the panel of `--help` that they stand in."""

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
    "select_prices",
    "share_option",
]

# --- panels ---------------------------------------------------------------------------------------

INPUT, OUTPUT = "Input", "Output"
LIMITS, SEARCH, PRICES = "Limits", "Search", "Prices"
NETWORK, SPARK = "Network", "Spark"

TABLE = "Parquet, CSV or JSON lines, by extension, or a folder of such files"
BUDGET_HELP = (
    "How long to search for a plan: 30s, 2m. best makes a fixed amount of work of it, so that the "
    "same seed gives the same plan; the clock ends only a run that takes 2.5 times as long, which "
    "says so. optimal and optimal-shared go by the clock, the others just end."
)
ALGORITHM_HELP = "One of " + ", ".join(a.label for a in ALGORITHMS.values()) + "."


def duration_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option that takes a time such as 30s."""
    made: typer.models.OptionInfo = typer.Option(
        *names, parser=Seconds, metavar="TIME", help=help, rich_help_panel=panel
    )
    return made


def share_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option that takes a share such as 1%."""
    made: typer.models.OptionInfo = typer.Option(
        *names, parser=Share, metavar="SHARE", help=help, rich_help_panel=panel
    )
    return made


def moment_option(help: str) -> typer.models.OptionInfo:
    """Declare an option that takes a moment in ISO 8601."""
    made: typer.models.OptionInfo = typer.Option(
        parser=parse_moment, metavar="MOMENT", help=help, rich_help_panel=INPUT
    )
    return made


# --- input ----------------------------------------------------------------------------------------

InterestFile = Annotated[
    Path,
    typer.Option(
        "--interest", help=f"Who wants what: receiver, flow. {TABLE}.", rich_help_panel=INPUT
    ),
]
RatesFile = Annotated[
    Path,
    typer.Option("--rates", help=f"How fast: flow, rate. {TABLE}.", rich_help_panel=INPUT),
]
MaxBad = Annotated[
    Share,
    share_option("Put bad rows aside, up to this share of each table, such as 1%.", INPUT),
]
Floor = Annotated[
    float | None,
    typer.Option(
        "--floor",
        help="Messages/s of flows that are wanted but have no rate.",
        rich_help_panel=INPUT,
    ),
]
Quarantine = Annotated[
    Path | None,
    typer.Option(
        "--quarantine",
        help="Write the bad rows here, with file, row and reason.",
        rich_help_panel=INPUT,
    ),
]
Moment = datetime | None

# --- the planner ----------------------------------------------------------------------------------

Groups = Annotated[
    int,
    typer.Option(
        min=1, help="The most multicast groups that the plan may use.", rich_help_panel=LIMITS
    ),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The most sessions that the plan may use; one per group without it.",
        rich_help_panel=LIMITS,
    ),
]
AlgorithmName = Annotated[
    str, typer.Option("--algorithm", help=ALGORITHM_HELP, rich_help_panel=SEARCH)
]
Budget = Annotated[Seconds, duration_option(BUDGET_HELP, SEARCH)]
Seed = Annotated[
    int, typer.Option(min=0, help="The same seed gives the same answer.", rich_help_panel=SEARCH)
]

# --- prices ---------------------------------------------------------------------------------------

Alpha = Annotated[
    float,
    typer.Option(
        help="Price of a message at the session filter (per message/s).", rich_help_panel=PRICES
    ),
]
Beta = Annotated[
    float, typer.Option(help="Price of a message at the flow filter.", rich_help_panel=PRICES)
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="Prices that `calibrate` measured, instead of --alpha and --beta.",
        rich_help_panel=PRICES,
    ),
]
MessagesPerPacket = Annotated[
    float,
    typer.Option(min=1, help="With --calibration: messages in a packet.", rich_help_panel=PRICES),
]

# --- output and Spark -----------------------------------------------------------------------------

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=OUTPUT),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs; this machine with all its cores without it.", rich_help_panel=SPARK
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", help="A setting of Spark as key=value; repeatable.", rich_help_panel=SPARK
    ),
]


class OutputFormat(StrEnum):
    """How tables are written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


# --- values ---------------------------------------------------------------------------------------


@contextmanager
def reject_bad_values(hint: str | None = None) -> Iterator[None]:
    """Report what a params object refuses (a `ValueError`) as wrong usage of the options."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def filtering_prices(alpha: float, beta: float) -> FilteringPrices:
    """The two prices, refused as wrong usage where they make no sense."""
    with reject_bad_values("'--alpha' / '--beta'"):
        return FilteringPrices(alpha, beta)


def select_prices(
    alpha: float, beta: float, calibration: Path | None, messages_per_packet: float
) -> FilteringPrices:
    """The prices named, or those of a calibration."""
    if calibration is None:
        return filtering_prices(alpha, beta)
    if (alpha, beta) != (1.0, 1.0):
        raise typer.BadParameter("--calibration replaces --alpha and --beta")
    from distributary.files import read_prices  # commands without tables need no Arrow

    return read_prices(calibration, messages_per_packet)


def at_most(most: float) -> Callable[[float], float]:
    """Make a check of an option's number: no more than that, and a number at all."""

    def check(value: float) -> float:
        if not value <= most:
            raise typer.BadParameter(f"{value:g} is not a number up to {most:g}")
        return value

    return check


def parse_settings(conf: list[str] | None) -> dict[str, str]:
    """Settings of Spark from `key=value`s."""
    settings = {}
    for entry in conf or ():
        key, equals, value = entry.partition("=")
        if not (equals and key):
            raise typer.BadParameter(f"--conf takes key=value, not {entry!r}")
        settings[key.strip()] = value
    return settings
