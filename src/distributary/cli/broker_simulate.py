"""`distributary broker simulate`: compare covering policies on a network of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from rich.table import Table

from distributary.cli.console import print_json, results, show_progress
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    OUTPUT,
    PRICES,
    TABLE,
    EventFile,
    FilterFile,
    Json,
    at_most,
    option,
    seed_option,
)
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

__all__ = ["simulate"]

WORKLOAD = "Workload"
POLICIES = ", ".join(COVERING_POLICIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFiles:
    """The tables that describe the brokers and their workload."""

    links: Annotated[
        Path,
        option(
            f"Table of links without cycles, with columns a, b, delay (s). {TABLE}.",
            INPUT,
            "--links",
        ),
    ]
    filters: FilterFile
    events: EventFile
    homes: Annotated[
        Path | None,
        option(
            "Table of each receiver's broker, with columns receiver, broker.",
            INPUT,
            "--homes",
            show_default="random",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """What happens in the workload, and the policies to compare."""

    publish_at: Annotated[
        list[str] | None,
        option(
            "Broker where events are published; repeatable.",
            WORKLOAD,
            "--publish-at",
            show_default="all",
        ),
    ] = None
    rate: Annotated[
        float, option("Events published per second.", WORKLOAD, min=1e-3, callback=at_most(1e9))
    ] = 100.0
    leave: Annotated[
        int,
        option("Number of subscriptions that end half-way; the widest ones do.", WORKLOAD, min=0),
    ] = 0
    within: Annotated[
        float,
        option(
            "With --leave: seconds within which they end.",
            WORKLOAD,
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
        ),
    ] = 10.0
    policy: Annotated[
        list[str] | None,
        option(
            f"Covering policy to compare, one of {POLICIES}; repeatable.",
            WORKLOAD,
            show_default="all",
        ),
    ] = None
    seed: Annotated[int, seed_option(WORKLOAD)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """What a message costs a broker."""

    per_message: Annotated[
        float,
        option(
            "Seconds that a broker spends on a message.",
            PRICES,
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
        ),
    ] = DEFAULT_PRICES.per_message
    per_box: Annotated[
        float,
        option(
            "Seconds more for each entry in its routing table.",
            PRICES,
            min=0.0,
            callback=at_most(LONGEST_DELAY_S),
        ),
    ] = DEFAULT_PRICES.per_box


@takes_groups
def simulate(
    files: NetworkFiles,
    options: WorkloadOptions,
    prices: PriceOptions,
    out: Annotated[
        Path | None, option("Table to write, with one row per policy.", OUTPUT, "--out")
    ] = None,
    as_document: Json = False,
) -> None:
    """Run the same workload under several covering policies, in virtual time, and compare them."""
    names = options.policy or list(COVERING_POLICIES)
    if unknown := [name for name in names if name not in COVERING_POLICIES]:
        raise typer.BadParameter(f"{unknown[0]!r} is not a policy; choose from {POLICIES}")
    workload = _read_workload(files, options)
    costs = BrokerPrices(prices.per_message, prices.per_box)
    outcomes: list[RehearsalOutcome] = []
    with show_progress() as progress:
        for at, name in enumerate(names):
            progress(Step(f"trying {name}", at, len(names)))
            policy = COVERING_POLICIES[name]
            outcomes.append(rehearse(workload, policy, prices=costs, seed=options.seed))
    if out is not None:
        write_table(pa.Table.from_pylist([asdict(outcome) for outcome in outcomes]), out)
    if as_document:
        print_json(
            {
                "brokers": len(workload.topology.brokers),
                "subscriptions": len(workload.subscriptions),
                "events": len(workload.events),
                "ended": len(workload.ending.subscriptions),
                "policies": [asdict(outcome) for outcome in outcomes],
            }
        )
        return
    results.print(_make_table(outcomes))


# --- reading --------------------------------------------------------------------------------------


def _read_workload(files: NetworkFiles, options: WorkloadOptions) -> RehearsalWorkload:
    topology = _read_overlay(files.links)
    table = read_events(files.events)
    schema = event_schema(table.schema)
    rng = np.random.default_rng(options.seed)
    subscriptions = _read_subscriptions(files.filters, files.homes, schema, topology, rng)
    published = _assign_events(
        event_table(table, schema, path=str(files.events)), options.publish_at, topology, rng
    )
    ending = Ending(_find_widest(subscriptions, schema, options.leave), within=options.within)
    return RehearsalWorkload(topology, schema, subscriptions, published, options.rate, ending)


def _read_overlay(links: Path) -> Topology:
    topology = read_links(links)
    try:
        check_acyclic(topology)
    except ValueError as error:
        raise InputError(f"{links}: {error}; remove one of its links", path=str(links)) from None
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
            raise InputError(
                f"--publish-at {name}: no such broker; name one of --links", value=name
            )
    at = rng.integers(len(sources), size=events.num_rows).tolist()
    schema = event_schema(events.schema)
    return [
        RehearsalEvent(sources[place], schema.keys(row))
        for place, row in zip(at, events.to_pylist(), strict=True)
    ]


def _find_widest(
    subscriptions: Sequence[RehearsalSubscription], schema: Schema, leave: int
) -> list[int]:
    """Find the subscriptions that cover the most others: brokers have most work at their end."""
    if leave > len(subscriptions):
        raise InputError(
            f"--leave {leave}: there are only {len(subscriptions)} subscriptions", value=leave
        )
    if not leave:
        return []
    index: CoverIndex[int] = CoverIndex(schema)
    for number, each in enumerate(subscriptions):
        index.add(each.filter, number)
    covered = [len(index.find_covered(each.filter)) for each in subscriptions]
    return sorted(range(len(subscriptions)), key=lambda number: -covered[number])[:leave]


# --- showing --------------------------------------------------------------------------------------


def _make_table(outcomes: Sequence[RehearsalOutcome]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("policy")
    for title in ("delay, ms", "90 %", "queue", "table", "tables", "sent", "by ends", "unwanted"):
        table.add_column(title, justify="right")
    table.caption = (
        "delay: from publication to delivery, mean and 90th percentile; queue: the longest at a "
        "broker; table, tables: entries at the fullest broker and at all; sent: routing messages "
        "between brokers; by ends: those caused by ending subscriptions; unwanted: share of "
        "publications sent over a link behind which nobody wants them"
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
