"""The options that several commands share, by the panel of `--help` that they stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Unpack

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
    "option",
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


def option(help: str, panel: str, *names: str, **limits: Any) -> typer.models.OptionInfo:
    """Declare an option of a panel."""
    made: typer.models.OptionInfo = typer.Option(*names, help=help, rich_help_panel=panel, **limits)
    return made


def duration_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option that takes a time such as 30s."""
    return option(help, panel, *names, parser=Seconds, metavar="TIME")


def share_option(help: str, panel: str, *names: str) -> typer.models.OptionInfo:
    """Declare an option that takes a share such as 1%."""
    return option(help, panel, *names, parser=Share, metavar="SHARE")


def moment_option(help: str) -> typer.models.OptionInfo:
    """Declare an option that takes a moment in ISO 8601."""
    return option(help, INPUT, parser=parse_moment, metavar="MOMENT")


# --- input ----------------------------------------------------------------------------------------

FilterFile = Annotated[
    Path, option(f"Who wants what: receiver, filter. {TABLE}.", INPUT, "--filters")
]
EventFile = Annotated[Path, option(f"Any columns. {TABLE}.", INPUT, "--events")]
Moment = datetime | None
Publications = Annotated[
    str, option("The publication log: a file, a folder, or a table Spark knows.", INPUT)
]

# --- the planner ----------------------------------------------------------------------------------

Groups = Annotated[int, option("The most multicast groups that the plan may use.", LIMITS, min=1)]
Seed = Annotated[int, option("The same seed gives the same answer.", SEARCH, min=0)]
AlgorithmName = Annotated[str, option(ALGORITHM_HELP, SEARCH, "--algorithm")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The size of a plan, the prices it is made for, and the search."""

    groups: Groups
    sessions: Annotated[
        int | None,
        option("The most sessions that the plan may use; one per group without it.", LIMITS, min=1),
    ] = None
    alpha: Annotated[
        float, option("Price of a message at the session filter (per message/s).", PRICES)
    ] = 1.0
    beta: Annotated[float, option("Price of a message at the flow filter.", PRICES)] = 1.0
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

Json = Annotated[bool, option("Print one JSON document on stdout.", OUTPUT, "--json")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and its settings."""

    master: Annotated[
        str | None, option("Where Spark runs; this machine with all its cores without it.", SPARK)
    ] = None
    conf: Annotated[
        list[str] | None, option("A setting of Spark as key=value; repeatable.", SPARK, "--conf")
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
