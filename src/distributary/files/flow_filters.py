"""The folder that says which flow of a plan stands for which filters, and whose filters these are.

`flows.parquet` (flow, filter, own) has the filters that the events of a flow may match; `own` is 1
for those of the set that the flow was made of. `filters.parquet` (receiver, filter) has the owners.
`content.json` has the attributes of events. `pipeline run --filters` writes the folder beside its
plan, and whoever publishes or receives events by that plan reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from distributary.errors import InputError
from distributary.files.columns import Column, ColumnKind
from distributary.files.faults import check_format, input_fault, read_fault
from distributary.files.tables import FileTable, read_table
from distributary.files.versions import follow_pointer
from distributary.matching import parse_filter
from distributary.model import Attribute, AttributeKind, Filter, Interest, Schema

__all__ = ["FlowFilters", "read_flow_filters", "write_flow_filters"]

FORMAT_VERSION = 1
MANIFEST = "content.json"
FLOWS = (
    Column("flow", ColumnKind.TEXT),
    Column("filter", ColumnKind.TEXT),
    Column("own", ColumnKind.NUMBER),
)
OWNERS = (Column("receiver", ColumnKind.TEXT), Column("filter", ColumnKind.TEXT))
_REMEDY = "write it again with `pipeline run --filters`"


@dataclass(frozen=True, slots=True, eq=False)
class FlowFilters:
    """Filters, numbered in the order of their texts, and the flows and receivers that have them.

    An event may go to a flow if `flows` has every filter that it matches there. `own` has the
    filters of the set that a flow was made of; events that match exactly these belong to it.
    """

    schema: Schema
    texts: tuple[str, ...]
    filters: tuple[Filter, ...]
    flows: Mapping[str, frozenset[int]]
    own: Mapping[str, frozenset[int]]
    owners: Mapping[str, frozenset[int]]

    @classmethod
    def of(
        cls,
        schema: Schema,
        flows: Mapping[str, Iterable[str]],
        owners: Mapping[str, Iterable[str]],
        own: Mapping[str, Iterable[str]] | None = None,
    ) -> Self:
        """Build from texts; without `own` each flow stands for exactly its filters."""
        texts = tuple(
            sorted({text for found in (*flows.values(), *owners.values()) for text in found})
        )
        number = {text: at for at, text in enumerate(texts)}

        def encode(given: Mapping[str, Iterable[str]]) -> dict[str, frozenset[int]]:
            return {name: frozenset(number[text] for text in given[name]) for name in sorted(given)}

        filters = tuple(parse_filter(text, schema) for text in texts)
        return cls(schema, texts, filters, encode(flows), encode(own or flows), encode(owners))

    @property
    def digest(self) -> str:
        """A short hash of attributes and flows: two ends with the same one mean the same."""
        said = [_list_attributes(self.schema), self.texts, *_sort_sets(self.flows)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]

    def interest(self) -> Interest:
        """Who wants which flow: the owners of any of its filters."""
        return Interest.from_pairs(
            (receiver, flow)
            for receiver, wanted in self.owners.items()
            for flow, filters in self.flows.items()
            if not wanted.isdisjoint(filters)
        )


def write_flow_filters(
    schema: Schema, flows: pa.Table, owners: pa.Table, folder: str | os.PathLike[str]
) -> None:
    """Write the folder; `flows` has flow, filter and own, and `owners` receiver and filter."""
    where = Path(folder)
    where.mkdir(parents=True)
    flows = flows.set_column(
        flows.column_names.index("own"), "own", flows["own"].cast(pa.int8()).cast(pa.int64())
    )
    pq.write_table(
        flows.select(["flow", "filter", "own"]).sort_by(
            [("flow", "ascending"), ("filter", "ascending")]
        ),
        where / "flows.parquet",
    )
    pq.write_table(
        owners.select(["receiver", "filter"]).sort_by(
            [("receiver", "ascending"), ("filter", "ascending")]
        ),
        where / "filters.parquet",
    )
    document = {"format": FORMAT_VERSION, "attributes": _list_attributes(schema)}
    (where / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_flow_filters(folder: str | os.PathLike[str]) -> FlowFilters:
    """Read the folder; raises `InputError` for what cannot be used."""
    where = follow_pointer(Path(folder))
    schema = _read_schema(where)
    flows = read_table(where / "flows.parquet", FLOWS)
    owners = read_table(where / "filters.parquet", OWNERS)
    texts = tuple(sorted({*flows.names("filter")[0], *owners.names("filter")[0]}))
    number = {text: at for at, text in enumerate(texts)}
    parsed = {
        **_parse_filters(owners, schema),
        **_parse_filters(flows, schema),
    }
    every = _group_filters(flows, "flow", number)
    own = _group_filters(flows, "flow", number, flows.numbers("own").tolist())
    wanted = _group_filters(owners, "receiver", number)
    return FlowFilters(schema, texts, tuple(parsed[text] for text in texts), every, own, wanted)


def _parse_filters(table: FileTable, schema: Schema) -> dict[str, Filter]:
    texts, codes = table.names("filter")
    parsed: dict[str, Filter] = {}
    for code, text in enumerate(texts):
        try:
            parsed[text] = parse_filter(text, schema)
        except InputError as error:
            row = codes.tolist().index(code)
            reason = f"the filter cannot be used: {error.reason}"
            raise table.fault(row, reason, value=text, remedy=_REMEDY) from None
    return parsed


def _group_filters(
    table: FileTable, column: str, number: Mapping[str, int], taken: list[int] | None = None
) -> dict[str, frozenset[int]]:
    """The numbers of the filters beside each name, of all rows or of those `taken`."""
    names, codes = table.names(column)
    texts, filters = table.names("filter")
    found: dict[str, set[int]] = {name: set() for name in names}
    for row, (code, at) in enumerate(zip(codes.tolist(), filters.tolist(), strict=True)):
        if taken is None or taken[row]:
            found[names[code]].add(number[texts[at]])
    return {name: frozenset(found[name]) for name in sorted(found)}


def _sort_sets(flows: Mapping[str, frozenset[int]]) -> list[tuple[str, list[int]]]:
    return sorted((flow, sorted(filters)) for flow, filters in flows.items())


def _list_attributes(schema: Schema) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "kind": each.kind.name.lower(), "scale": each.scale}
        for each in schema.attributes
    ]


def _read_schema(folder: Path) -> Schema:
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if folder.is_dir() and not os.path.lexists(path):
            raise input_fault(
                folder, f"has no {MANIFEST}", remedy="name the folder `content` of a pipeline's run"
            ) from None
        raise read_fault(path if folder.is_dir() else folder, error) from error
    except (ValueError, RecursionError):
        raise input_fault(path, "does not parse as JSON", remedy=_REMEDY) from None
    version = document.get("format") if isinstance(document, dict) else None
    check_format(path, version, FORMAT_VERSION)
    try:
        return Schema(
            tuple(
                Attribute(
                    str(each["name"]), AttributeKind[each["kind"].upper()], scale=int(each["scale"])
                )
                for each in document["attributes"]
            )
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise input_fault(path, "does not list the attributes of events", remedy=_REMEDY) from None
