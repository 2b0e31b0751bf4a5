"""Matching events with filters on Spark: each executor gets the compiled matcher once.

The driver parses and compiles the filters, and holds them all; executors match events in Arrow
batches. The result does not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from distributary.errors import InputError
from distributary.matching import Matcher, event_schema, parse_filter
from distributary.model import Filter, Schema
from distributary.pipeline.schemas import QUARANTINE

__all__ = ["CompiledFilters", "compile_filters", "count_matches", "list_matches", "match_pairs"]

Batches = Iterator[pa.RecordBatch]
_Shared = TypeVar("_Shared")


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFilters:
    """Filters ready to match events of one schema, and the rows that cannot be used.

    Filter i of `matcher` is the i-th usable row, in order of receiver and text; `receivers` and
    `texts` give its owner and its text.
    """

    schema: Schema
    matcher: Matcher
    receivers: tuple[str, ...]
    texts: tuple[str, ...]
    quarantine: DataFrame


def compile_filters(filters: DataFrame, events: DataFrame) -> CompiledFilters:
    """Compile a table of (receiver, filter) for a table of events; repeated rows count once."""
    schema = event_schema(to_arrow_schema(events.schema, timezone="UTC"))
    # All filters go to the driver: it compiles them, and every executor gets the result.
    rows = filters.select("receiver", "filter").distinct().orderBy("receiver", "filter").toArrow()
    known: dict[str, Filter | str] = {}
    receivers, texts, usable, refused = [], [], [], []
    for receiver, text in zip(
        rows["receiver"].to_pylist(), rows["filter"].to_pylist(), strict=True
    ):
        found = _parse_row(receiver, text, schema, known)
        if isinstance(found, str):
            refused.append((found, str(text)))
        else:
            receivers.append(receiver)
            texts.append(text)
            usable.append(found)
    rows_aside = [("filters", None, reason, text) for reason, text in refused]
    quarantine = filters.sparkSession.createDataFrame(rows_aside, QUARANTINE)
    matcher = Matcher(schema, usable)
    return CompiledFilters(schema, matcher, tuple(receivers), tuple(texts), quarantine)


def match_pairs(events: DataFrame, compiled: CompiledFilters, keep: Sequence[str]) -> DataFrame:
    """A row for each event and each filter that it matches.

    `keep` are the events' columns to keep; `filter` is the filter's number and `receiver` its
    owner.
    """
    schema = StructType(
        [
            *(events.schema[name] for name in keep),
            StructField("filter", LongType(), nullable=False),
            StructField("receiver", StringType(), nullable=False),
        ]
    )
    target = to_arrow_schema(schema, timezone="UTC")
    names = list(keep)

    def match(batch: pa.RecordBatch, found: CompiledFilters) -> pa.RecordBatch:
        event, number = found.matcher.match_table(pa.Table.from_batches([batch]))
        kept = [batch.column(name).take(pa.array(event)) for name in names]
        owners = pa.array(found.receivers, pa.string()).take(pa.array(number))
        return _batch([*kept, pa.array(number, pa.int64()), owners], target)

    bare = CompiledFilters(compiled.schema, compiled.matcher, compiled.receivers, (), None)  # type: ignore[arg-type]
    return _map_batches(events, match, bare, schema)


def count_matches(events: DataFrame, compiled: CompiledFilters) -> DataFrame:
    """The events, each with the number of filters that it `matches`."""
    schema = StructType([*events.schema.fields, StructField("matches", LongType(), nullable=False)])
    target = to_arrow_schema(schema, timezone="UTC")

    def count(batch: pa.RecordBatch, matcher: Matcher) -> pa.RecordBatch:
        counts = matcher.count_table(pa.Table.from_batches([batch]))
        return _batch([*batch.columns, pa.array(counts, pa.int64())], target)

    return _map_batches(events, count, compiled.matcher, schema)


def list_matches(events: DataFrame, matcher: Matcher, name: str) -> DataFrame:
    """The events, each with the numbers of the filters that it matches, in order, as `name`."""
    numbers = ArrayType(IntegerType(), containsNull=False)
    schema = StructType([*events.schema.fields, StructField(name, numbers, nullable=False)])
    target = to_arrow_schema(schema, timezone="UTC")

    def match(batch: pa.RecordBatch, matcher: Matcher) -> pa.RecordBatch:
        event, number = matcher.match_table(pa.Table.from_batches([batch]))
        offsets = np.searchsorted(event, np.arange(batch.num_rows + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(number.astype(np.int32)))
        return _batch([*batch.columns, lists], target)

    return _map_batches(events, match, matcher, schema)


def _parse_row(
    receiver: str | None, text: str | None, schema: Schema, known: dict[str, Filter | str]
) -> Filter | str:
    """The filter, or the reason why it cannot be used; each text is parsed once."""
    if receiver is None or text is None:
        return "no receiver" if receiver is None else "no filter"
    if text not in known:
        try:
            known[text] = parse_filter(text, schema)
        except InputError as error:
            known[text] = error.reason
    return known[text]


def _map_batches(
    events: DataFrame,
    step: Callable[[pa.RecordBatch, _Shared], pa.RecordBatch],
    shared: _Shared,
    schema: StructType,
) -> DataFrame:
    """Apply a step to every batch of the events; `shared` is broadcast to the executors."""
    sent = events.sparkSession.sparkContext.broadcast(shared)

    def over_batches(batches: Batches) -> Batches:
        received = sent.value
        for batch in batches:
            yield step(batch, received)

    return events.mapInArrow(over_batches, schema)


def _batch(columns: Sequence[pa.Array], target: pa.Schema) -> pa.RecordBatch:
    cast = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=target)
