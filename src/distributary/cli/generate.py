"""`distributary generate`: write the papers' workloads to files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from distributary.cli.console import results
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import OUTPUT, OutputFormat, option, reject_bad_values, seed_option
from distributary.files import write_interest, write_rates
from distributary.files.tables import write_table
from distributary.model import Interest, Rates
from distributary.workloads import (
    DayParams,
    TradingFloor,
    TwoClass,
    publication_log,
    spoil_rows,
    subscription_log,
    trading_floor,
    two_class,
)

__all__ = [
    "Messages",
    "Receivers",
    "app",
    "workload_option",
    "write_day",
    "write_workload",
]

app = typer.Typer(no_args_is_help=True, help="Generate a workload: interest and rates, or logs.")

WORKLOAD = "Workload"


def workload_option(
    help: str, least: float | None = None, most: float | None = None
) -> typer.models.OptionInfo:
    """Declare an option that shapes the workload."""
    return option(help, WORKLOAD, min=least, max=most)


Out = Annotated[Path, option("Folder to write interest and rates to.", OUTPUT)]
TableFormat = Annotated[OutputFormat, option("File format of the tables.", OUTPUT, "--format")]
Symbols = Annotated[int, workload_option("Number of symbols; each is a flow.", 1)]
Receivers = Annotated[int, workload_option("Number of receivers.", 1)]
Messages = Annotated[int, workload_option("Number of messages in the day.", 1)]
WorkloadSeed = Annotated[int, seed_option(WORKLOAD)]
_FLOOR, _CLASSES, _DAY = TradingFloor(), TwoClass(), DayParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorOptions:
    """The shape of a trading floor."""

    symbols: Symbols = _FLOOR.symbols
    markets: Annotated[int, workload_option("Number of markets.", 1)] = _FLOOR.markets
    receivers: Receivers = _FLOOR.receivers
    markets_per_receiver: Annotated[
        int, workload_option("Number of markets that a receiver follows.", 1)
    ] = _FLOOR.markets_per_receiver
    share_of_market: Annotated[
        float, workload_option("Share of a market's symbols that a receiver follows.", 0, 1)
    ] = _FLOOR.share_of_market


@app.command("trading-floor")
@takes_groups
def generate_trading_floor(
    out: Out,
    options: FloorOptions,
    seed: WorkloadSeed = 0,
    table_format: TableFormat = OutputFormat.PARQUET,
) -> None:
    """Generate a trading floor: traders who each follow parts of some markets (Tock et al.)."""
    with reject_bad_values():
        params = TradingFloor(**asdict(options))
    write_workload(*trading_floor(params, np.random.default_rng(seed)), out, table_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOptions:
    """The shape of two classes of flows."""

    flows: Annotated[int, workload_option("Number of flows.", 1)] = _CLASSES.flows
    receivers: Receivers = _CLASSES.receivers
    fast_share: Annotated[float, workload_option("Share of fast flows.", 0, 1)] = (
        _CLASSES.fast_share
    )
    fast_rate: Annotated[float, workload_option("Rate of a fast flow, in messages/s.")] = (
        _CLASSES.fast_rate
    )
    slow_rate: Annotated[float, workload_option("Rate of a slow flow, in messages/s.")] = (
        _CLASSES.slow_rate
    )
    popular_share: Annotated[float, workload_option("Share of popular flows.", 0, 1)] = (
        _CLASSES.popular_share
    )
    want_popular: Annotated[
        float, workload_option("Probability that a receiver wants a popular flow.", 0, 1)
    ] = _CLASSES.want_popular
    want_unpopular: Annotated[
        float, workload_option("Probability that a receiver wants an unpopular flow.", 0, 1)
    ] = _CLASSES.want_unpopular


@app.command("two-class")
@takes_groups
def generate_two_class(
    out: Out,
    options: ClassOptions,
    seed: WorkloadSeed = 0,
    table_format: TableFormat = OutputFormat.PARQUET,
) -> None:
    """Generate flows that are fast or slow, popular or not, and who wants them (Adler et al.)."""
    with reject_bad_values():
        drawn = two_class(TwoClass(**asdict(options)), np.random.default_rng(seed))
    write_workload(*drawn, out, table_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOptions:
    """The shape of a day of logs."""

    symbols: Symbols = _FLOOR.symbols
    receivers: Receivers = _FLOOR.receivers
    messages: Messages = _DAY.messages
    churn: Annotated[
        float,
        workload_option("Subscriptions that end during the day, as a share of those that stay.", 0),
    ] = _DAY.churn
    bad: Annotated[float, workload_option("Share of unusable rows to add, for tests.", 0, 1)] = 0.0


@app.command("day")
@takes_groups
def generate_day(
    out: Annotated[Path, option("Folder to write the two logs to.", OUTPUT)],
    options: DayOptions,
    seed: WorkloadSeed = 0,
    table_format: TableFormat = OutputFormat.PARQUET,
) -> None:
    """Generate a day of trading-floor logs: subscriptions and publications with their times."""
    with reject_bad_values():
        floor = TradingFloor(symbols=options.symbols, receivers=options.receivers)
        day = DayParams(messages=options.messages, churn=options.churn)
    write_day(floor, day, options.bad, seed, out, table_format)


def write_day(
    floor: TradingFloor,
    day: DayParams,
    bad: float,
    seed: int,
    out: Path,
    table_format: OutputFormat,
) -> tuple[Path, Path]:
    """Write both logs, print their sizes, and return their paths."""
    rng = np.random.default_rng(seed)
    interest, rates = trading_floor(floor, rng)
    paths = (out / f"subscriptions.{table_format}", out / f"publications.{table_format}")
    logs = (subscription_log(interest, day, rng), publication_log(rates, day, rng))
    for path, log in zip(paths, logs, strict=True):
        write_table(spoil_rows(log, bad, rng) if bad else log, path)
    results.print(
        f"{len(logs[0]):,} subscription rows and {len(logs[1]):,} messages of "
        f"{floor.receivers:,} receivers and {floor.symbols:,} symbols: {paths[0]}, {paths[1]}",
        markup=False,
    )
    return paths


def write_workload(
    interest: Interest, rates: Rates, out: Path, table_format: OutputFormat
) -> tuple[Path, Path]:
    """Write both tables, print their sizes, and return their paths."""
    paths = (out / f"interest.{table_format}", out / f"rates.{table_format}")
    write_interest(interest, paths[0])
    write_rates(rates, paths[1])
    results.print(
        f"{len(interest.receivers):,} receivers want {len(interest.flows):,} of "
        f"{len(rates.flows):,} flows, {interest.pairs:,} pairs: {paths[0]}, {paths[1]}",
        markup=False,
    )
    return paths
