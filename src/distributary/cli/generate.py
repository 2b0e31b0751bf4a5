"""`distributary generate`: the papers' workloads, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from distributary.cli.console import results
from distributary.cli.options import OUTPUT, Format, Seed, reject_bad_values
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

app = typer.Typer(no_args_is_help=True, help="Write a workload: interest and rates, or logs.")

WORKLOAD = "Workload"


def workload_option(
    help: str, least: float | None = None, most: float | None = None
) -> typer.models.OptionInfo:
    """Declare an option that shapes the workload."""
    made: typer.models.OptionInfo = typer.Option(
        min=least, max=most, help=help, rich_help_panel=WORKLOAD
    )
    return made


Out = Annotated[
    Path,
    typer.Option(help="The folder to write interest and rates into.", rich_help_panel=OUTPUT),
]
TableFormat = Annotated[
    Format,
    typer.Option("--format", help="How the tables are written.", rich_help_panel=OUTPUT),
]
Symbols = Annotated[int, workload_option("The number of symbols; each is a flow.", 1)]
Receivers = Annotated[int, workload_option("The number of receivers.", 1)]
Messages = Annotated[int, workload_option("The number of messages in the day.", 1)]
_FLOOR, _CLASSES, _DAY = TradingFloor(), TwoClass(), DayParams()


@app.command("trading-floor")
def generate_trading_floor(
    out: Out,
    symbols: Symbols = _FLOOR.symbols,
    markets: Annotated[int, workload_option("The number of markets.", 1)] = _FLOOR.markets,
    receivers: Receivers = _FLOOR.receivers,
    markets_per_receiver: Annotated[
        int, workload_option("The number of markets that a receiver follows.", 1)
    ] = _FLOOR.markets_per_receiver,
    share_of_market: Annotated[
        float, workload_option("The share of a market's symbols that a receiver follows.", 0, 1)
    ] = _FLOOR.share_of_market,
    seed: Seed = 0,
    table_format: TableFormat = Format.PARQUET,
) -> None:
    """Write a trading floor: traders who each follow a part of two markets (Tock et al.)."""
    with reject_bad_values():
        params = TradingFloor(symbols, markets, receivers, markets_per_receiver, share_of_market)
    write_workload(*trading_floor(params, np.random.default_rng(seed)), out, table_format)


@app.command("two-class")
def generate_two_class(
    out: Out,
    flows: Annotated[int, workload_option("The number of flows.", 1)] = _CLASSES.flows,
    receivers: Receivers = _CLASSES.receivers,
    fast_share: Annotated[
        float, workload_option("The share of fast flows.", 0, 1)
    ] = _CLASSES.fast_share,
    fast_rate: Annotated[float, workload_option("Messages/s of a fast flow.")] = _CLASSES.fast_rate,
    slow_rate: Annotated[float, workload_option("Messages/s of a slow flow.")] = _CLASSES.slow_rate,
    popular_share: Annotated[
        float, workload_option("The share of popular flows.", 0, 1)
    ] = _CLASSES.popular_share,
    want_popular: Annotated[
        float, workload_option("The probability that a receiver wants a popular flow.", 0, 1)
    ] = _CLASSES.want_popular,
    want_unpopular: Annotated[
        float, workload_option("The probability that a receiver wants another flow.", 0, 1)
    ] = _CLASSES.want_unpopular,
    seed: Seed = 0,
    table_format: TableFormat = Format.PARQUET,
) -> None:
    """Write flows that are fast or slow, popular or not, and who wants them (Adler et al.)."""
    with reject_bad_values():
        params = TwoClass(
            flows, receivers, fast_share, fast_rate, slow_rate,
            popular_share, want_popular, want_unpopular,
        )  # fmt: skip
        drawn = two_class(params, np.random.default_rng(seed))
    write_workload(*drawn, out, table_format)


@app.command("day")
def generate_day(
    out: Annotated[
        Path, typer.Option(help="The folder to write the two logs into.", rich_help_panel=OUTPUT)
    ],
    symbols: Symbols = _FLOOR.symbols,
    receivers: Receivers = _FLOOR.receivers,
    messages: Messages = _DAY.messages,
    churn: Annotated[
        float,
        workload_option("Subscriptions that end in the day, as a share of those that stay.", 0),
    ] = _DAY.churn,
    bad: Annotated[float, workload_option("The share of unusable rows.", 0, 1)] = 0.0,
    seed: Seed = 0,
    table_format: TableFormat = Format.PARQUET,
) -> None:
    """Write a trading floor's day of logs: who subscribed when, what was published when."""
    with reject_bad_values():
        floor = TradingFloor(symbols=symbols, receivers=receivers)
        day = DayParams(messages=messages, churn=churn)
    write_day(floor, day, bad, seed, out, table_format)


def write_day(
    floor: TradingFloor, day: DayParams, bad: float, seed: int, out: Path, table_format: Format
) -> tuple[Path, Path]:
    """Write both logs, say what they hold, and return where they are."""
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
    interest: Interest, rates: Rates, out: Path, table_format: Format
) -> tuple[Path, Path]:
    """Write both tables, say what they hold, and return where they are."""
    paths = (out / f"interest.{table_format}", out / f"rates.{table_format}")
    write_interest(interest, paths[0])
    write_rates(rates, paths[1])
    results.print(
        f"{len(interest.receivers):,} receivers want {len(interest.flows):,} of "
        f"{len(rates.flows):,} flows, {interest.pairs:,} pairs: {paths[0]}, {paths[1]}",
        markup=False,
    )
    return paths
