"""The options that several commands share, by the panel of `--help` that they stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Unpack

import typer

from distributary.cli.quantities import Seconds, Share, parse_moment
from distributary.cost import FilteringPrices
from distributary.planning import ALGORITHMS, Request, RequestSettings

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
    "EventFile",
    "FilterFile",
    "Groups",
    "Json",
    "Moment",
    "OutputFormat",
    "PlannerOptions",
    "Publications",
    "Seed",
    "SparkOptions",
    "at_most",
    "duration_option",
    "filtering_prices",
    "moment_option",
    "reject_bad_values",
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

FilterFile = Annotated[
    Path,
    typer.Option(
        "--filters", help=f"Who wants what: receiver, filter. {TABLE}.", rich_help_panel=INPUT
    ),
]
EventFile = Annotated[
    Path, typer.Option("--events", help=f"Any columns. {TABLE}.", rich_help_panel=INPUT)
]
Moment = datetime | None
Publications = Annotated[
    str,
    typer.Option(
        help="The publication log: a file, a folder, or a table Spark knows.",
        rich_help_panel=INPUT,
    ),
]

# --- the planner ----------------------------------------------------------------------------------

Groups = Annotated[
    int,
    typer.Option(
        min=1, help="The most multicast groups that the plan may use.", rich_help_panel=LIMITS
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="The same seed gives the same answer.", rich_help_panel=SEARCH)
]
AlgorithmName = Annotated[
    str, typer.Option("--algorithm", help=ALGORITHM_HELP, rich_help_panel=SEARCH)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The size of a plan, the prices it is made for, and the search."""

    groups: Groups
    sessions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The most sessions that the plan may use; one per group without it.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    alpha: Annotated[
        float,
        typer.Option(
            help="Price of a message at the session filter (per message/s).", rich_help_panel=PRICES
        ),
    ] = 1.0
    beta: Annotated[
        float, typer.Option(help="Price of a message at the flow filter.", rich_help_panel=PRICES)
    ] = 1.0
    budget: Annotated[Seconds, duration_option(BUDGET_HELP, SEARCH)] = Seconds("30s")
    seed: Seed = 0

    def select_prices(self) -> FilteringPrices:
        """The two prices, refused as wrong usage where they make no sense."""
        return filtering_prices(self.alpha, self.beta)

    def make_request(self, **settings: Unpack[RequestSettings]) -> Request:
        """Make the request for a plan, with more settings; what it refuses is wrong usage."""
        whole: RequestSettings = {
            "prices": self.select_prices(),
            "seed": self.seed,
            "budget_s": float(self.budget),
            **settings,
        }
        with reject_bad_values():
            return Request(groups=self.groups, sessions=self.sessions, **whole)


# --- output and Spark -----------------------------------------------------------------------------

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=OUTPUT),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and its settings."""

    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs; this machine with all its cores without it.",
            rich_help_panel=SPARK,
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", help="A setting of Spark as key=value; repeatable.", rich_help_panel=SPARK
        ),
    ] = None

    def parse_settings(self) -> dict[str, str]:
        """Settings of Spark from `key=value`s."""
        settings = {}
        for entry in self.conf or ():
            key, equals, value = entry.partition("=")
            if not (equals and key):
                raise typer.BadParameter(f"--conf takes key=value, not {entry!r}")
            settings[key.strip()] = value
        return settings


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


def at_most(most: float) -> Callable[[float], float]:
    """Make a check of an option's number: no more than that, and a number at all."""

    def check(value: float) -> float:
        if not value <= most:
            raise typer.BadParameter(f"{value:g} is not a number up to {most:g}")
        return value

    return check
