"""Events against filters on Spark: the compiled matcher, sent to every executor once.

The filters are parsed and compiled on the driver, which holds them all; events are matched in Arrow
batches where they are. What comes out does not depend on the partitioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from distributary.errors import InputError
from distributary.matching import Matcher, event_schema, event_table, parse_filter
from distributary.model import Filter, Schema
from distributary.pipeline.schemas import QUARANTINE

__all__ = ["CompiledFilters", "compiled_filters", "match_counts", "matched_pairs"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFilters:
    """Filters ready to match events of one schema, and the rows that are none.

    Filter i of `matcher` is row i of those that can be used, in order of receiver and text;
    `receivers` and `texts` say whose it is and what it says.
    """

    schema: Schema
    matcher: Matcher
    receivers: tuple[str, ...]
    texts: tuple[str, ...]
    quarantine: DataFrame


def compiled_filters(filters: DataFrame, events: DataFrame) -> CompiledFilters:
    """Compile a table of (receiver, filter) for a table of events, a repeated row counting once."""
    schema = event_schema(to_arrow_schema(events.schema, timezone="UTC"))
    # All filters go to the driver: it compiles them, and every executor gets the result.
    rows = filters.select("receiver", "filter").distinct().orderBy("receiver", "filter").toArrow()
    parsed: dict[str, Filter | str] = {}
    receivers, texts, usable, refused = [], [], [], []
    for receiver, text in zip(
        rows["receiver"].to_pylist(), rows["filter"].to_pylist(), strict=True
    ):
        found = _parsed(receiver, text, schema, parsed)
        if isinstance(found, str):
            refused.append((found, str(text)))
        else:
            receivers.append(receiver)
            texts.append(text)
            usable.append(found)
    told = [("filters", None, reason, text) for reason, text in refused]
    quarantine = filters.sparkSession.createDataFrame(told, QUARANTINE)
    matcher = Matcher(schema, usable)
    return CompiledFilters(schema, matcher, tuple(receivers), tuple(texts), quarantine)


def matched_pairs(events: DataFrame, compiled: CompiledFilters, keep: Sequence[str]) -> DataFrame:
    """A row for each event and each filter that it matches.

    `keep` are the events' columns to carry along; `filter` is the filter's number, `receiver` whose
    it is.
    """
    shared = _shared(events, compiled)
    schema = StructType(
        [
            *(events.schema[name] for name in keep),
            StructField("filter", LongType(), nullable=False),
            StructField("receiver", StringType(), nullable=False),
        ]
    )
    target = to_arrow_schema(schema, timezone="UTC")
    names = list(keep)

    def pairs(batch: pa.RecordBatch, found: CompiledFilters) -> pa.RecordBatch:
        table = event_table(pa.Table.from_batches([batch]), found.schema)
        event, number = found.matcher.match_table(table)
        kept = [batch.column(name).take(pa.array(event)) for name in names]
        owners = pa.array(found.receivers, pa.string()).take(pa.array(number))
        return _batch([*kept, pa.array(number, pa.int64()), owners], target)

    return events.mapInArrow(_over_batches(pairs, shared), schema)


def match_counts(events: DataFrame, compiled: CompiledFilters) -> DataFrame:
    """The events, each with the number of filters that it `matches`."""
    shared = _shared(events, compiled)
    schema = StructType([*events.schema.fields, StructField("matches", LongType(), nullable=False)])
    target = to_arrow_schema(schema, timezone="UTC")

    def counted(batch: pa.RecordBatch, found: CompiledFilters) -> pa.RecordBatch:
        table = event_table(pa.Table.from_batches([batch]), found.schema)
        counts = np.asarray(found.matcher.count_table(table), np.int64)
        return _batch([*batch.columns, pa.array(counts)], target)

    return events.mapInArrow(_over_batches(counted, shared), schema)


def _parsed(
    receiver: str | None, text: str | None, schema: Schema, known: dict[str, Filter | str]
) -> Filter | str:
    """The filter, or why it cannot be used; each text is parsed once."""
    if receiver is None or text is None:
        return "no receiver" if receiver is None else "no filter"
    if text not in known:
        try:
            known[text] = parse_filter(text, schema)
        except InputError as error:
            known[text] = error.reason
    return known[text]


def _shared(events: DataFrame, compiled: CompiledFilters) -> Broadcast[CompiledFilters]:
    bare = CompiledFilters(compiled.schema, compiled.matcher, compiled.receivers, (), None)  # type: ignore[arg-type]
    return events.sparkSession.sparkContext.broadcast(bare)


def _over_batches(
    step: Callable[[pa.RecordBatch, CompiledFilters], pa.RecordBatch],
    shared: Broadcast[CompiledFilters],
) -> Callable[[Batches], Batches]:
    def over(batches: Batches) -> Batches:
        found = shared.value
        for batch in batches:
            yield step(batch, found)

    return over


def _batch(columns: Sequence[pa.Array], target: pa.Schema) -> pa.RecordBatch:
    cast = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=target)
