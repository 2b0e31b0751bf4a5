"""`distributary broker simulate`: what each covering policy would do to a network of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from rich.table import Table

from distributary.cli.console import print_json, results, show_progress
from distributary.cli.options import INPUT, OUTPUT, PRICES, TABLE, Json, Seed, at_most
from distributary.content import COVERING_POLICIES
from distributary.content.rehearsal import (
    DEFAULT_PRICES,
    BrokerPrices,
    Ending,
    RehearsalEvent,
    RehearsalOutcome,
    RehearsalSubscription,
    RehearsalWorkload,
    check_acyclic,
    rehearse,
)
from distributary.errors import InputError
from distributary.files import read_events, read_filters, write_table
from distributary.files.brokers import read_homes, read_links
from distributary.matching import event_schema, event_table
from distributary.matching.covering import CoverIndex
from distributary.model import Schema, Topology
from distributary.model.topology import LONGEST_DELAY_S
from distributary.planning import Step

__all__ = ["app"]

DAY = "The day"

app = typer.Typer(help="Try out networks of content brokers.", no_args_is_help=True)
POLICIES = ", ".join(COVERING_POLICIES)


@app.callback()
def _group() -> None:
    """Try out networks of content brokers."""


@app.command()
def simulate(
    links: Annotated[
        Path,
        typer.Option(
            "--links",
            help=f"The overlay, without cycles: a, b, delay. {TABLE}.",
            rich_help_panel=INPUT,
        ),
    ],
    filters: Annotated[
        Path,
        typer.Option(
            "--filters", help=f"Who wants what: receiver, filter. {TABLE}.", rich_help_panel=INPUT
        ),
    ],
    events: Annotated[
        Path, typer.Option("--events", help=f"Any columns. {TABLE}.", rich_help_panel=INPUT)
    ],
    homes: Annotated[
        Path | None,
        typer.Option(
            "--homes",
            help="Who is where: receiver, broker. Without it, drawn by seed.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    publish_at: Annotated[
        list[str] | None,
        typer.Option(
            "--publish-at",
            help="A broker where events begin, again for more; or all.",
            rich_help_panel=DAY,
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(
            min=1e-3, callback=at_most(1e9), help="Events per second.", rich_help_panel=DAY
        ),
    ] = 100.0,
    leave: Annotated[
        int,
        typer.Option(
            min=0, help="How many of the widest subscriptions end half-way.", rich_help_panel=DAY
        ),
    ] = 0,
    within: Annotated[
        float,
        typer.Option(
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
            help="Within how many seconds.",
            rich_help_panel=DAY,
        ),
    ] = 10.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Which to try, again for more: {POLICIES}; or all.", rich_help_panel=DAY
        ),
    ] = None,
    per_message: Annotated[
        float,
        typer.Option(
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
            help="Seconds that a message costs a broker.",
            rich_help_panel=PRICES,
        ),
    ] = DEFAULT_PRICES.per_message,
    per_box: Annotated[
        float,
        typer.Option(
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
            help="Seconds more for each entry of its table.",
            rich_help_panel=PRICES,
        ),
    ] = DEFAULT_PRICES.per_box,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the comparison here, one row a policy.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_document: Json = False,
) -> None:
    """Run the same day under several covering policies, in virtual time, and compare them."""
    names = policy or list(COVERING_POLICIES)
    if unknown := [name for name in names if name not in COVERING_POLICIES]:
        raise typer.BadParameter(f"{unknown[0]!r} is not a policy: there are {POLICIES}")
    topology = _read_overlay(links)
    table = read_events(events)
    schema = event_schema(table.schema)
    rng = np.random.default_rng(seed)
    subscriptions = _read_subscriptions(filters, homes, schema, topology, rng)
    published = _assign_events(
        event_table(table, schema, path=str(events)), publish_at, topology, rng
    )
    ending = Ending(_find_widest(subscriptions, schema, leave), within=within)
    workload = RehearsalWorkload(topology, schema, subscriptions, published, rate, ending)
    prices = BrokerPrices(per_message, per_box)
    outcomes: list[RehearsalOutcome] = []
    with show_progress() as progress:
        for at, name in enumerate(names):
            progress(Step(f"trying {name}", at, len(names)))
            outcomes.append(rehearse(workload, COVERING_POLICIES[name], prices=prices, seed=seed))
    if out is not None:
        write_table(pa.Table.from_pylist([asdict(outcome) for outcome in outcomes]), out)
    if as_document:
        print_json(
            {
                "brokers": len(topology.brokers),
                "subscriptions": len(subscriptions),
                "events": len(published),
                "ended": len(ending.subscriptions),
                "policies": [asdict(outcome) for outcome in outcomes],
            }
        )
        return
    results.print(_make_table(outcomes))


# --- reading --------------------------------------------------------------------------------------


def _read_overlay(links: Path) -> Topology:
    topology = read_links(links)
    try:
        check_acyclic(topology)
    except ValueError as error:
        raise InputError(f"{links}: {error}; leave out a link of it", path=str(links)) from None
    return topology


def _read_subscriptions(
    filters: Path,
    homes: Path | None,
    schema: Schema,
    topology: Topology,
    rng: np.random.Generator,
) -> list[RehearsalSubscription]:
    found = read_filters(filters, schema)
    if found.refused:
        raise found.fault()
    receivers = sorted(set(found.receivers))
    if homes is None:
        drawn = rng.choice(np.array(topology.brokers), len(receivers)).tolist()
        where = dict(zip(receivers, drawn, strict=True))
    else:
        where = dict(read_homes(homes, topology))
        if missing := [name for name in receivers if name not in where]:
            raise InputError(
                f"{homes}: receiver {missing[0]!r} of {filters} has no broker; add a row for it",
                path=str(homes),
                value=missing[0],
            )
    return [
        RehearsalSubscription(receiver, where[receiver], filter)
        for receiver, filter in zip(found.receivers, found.filters, strict=True)
    ]


def _assign_events(
    events: pa.Table,
    publish_at: list[str] | None,
    topology: Topology,
    rng: np.random.Generator,
) -> list[RehearsalEvent]:
    sources = publish_at or list(topology.brokers)
    for name in sources:
        if name not in topology.brokers:
            raise InputError(f"--publish-at {name}: there is no such broker in --links", value=name)
    at = rng.integers(len(sources), size=events.num_rows).tolist()
    schema = event_schema(events.schema)
    return [
        RehearsalEvent(sources[place], schema.keys(row))
        for place, row in zip(at, events.to_pylist(), strict=True)
    ]


def _find_widest(
    subscriptions: Sequence[RehearsalSubscription], schema: Schema, leave: int
) -> list[int]:
    """Find the subscriptions that cover most others: their end costs the brokers most."""
    if leave > len(subscriptions):
        raise InputError(
            f"--leave {leave}: there are only {len(subscriptions)} subscriptions", value=leave
        )
    if not leave:
        return []
    index: CoverIndex[int] = CoverIndex(schema)
    for number, each in enumerate(subscriptions):
        index.add(each.filter, number)
    covered = [len(index.covered(each.filter)) for each in subscriptions]
    return sorted(range(len(subscriptions)), key=lambda number: -covered[number])[:leave]


# --- showing --------------------------------------------------------------------------------------


def _make_table(outcomes: Sequence[RehearsalOutcome]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("policy")
    for title in ("delay, ms", "90 %", "queue", "table", "tables", "said", "again", "unwanted"):
        table.add_column(title, justify="right")
    table.caption = (
        "delay: publication to delivery, mean and 90th percentile; queue: the longest at a broker; "
        "table, tables: boxes at the fullest broker and at all; said: statements, again: those "
        "that an ending caused; unwanted: publications that nobody behind the link wanted"
    )
    for each in outcomes:
        table.add_row(
            each.policy,
            f"{1000 * each.mean_delay:,.1f}",
            f"{1000 * each.p90_delay:,.1f}",
            f"{each.longest_queue:,}",
            f"{each.fullest_table:,}",
            f"{each.all_tables:,}",
            f"{each.statements:,}",
            f"{each.triggered:,}",
            f"{100 * each.unwanted:.2f} %",
        )
    return table
