"""Plan folders: the tables of a plan, and `plan.json` about its origin."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distributary.files.columns import Column, ColumnKind
from distributary.files.demand import ReadDemand
from distributary.files.documents import plan_document
from distributary.files.faults import (
    check_format,
    input_fault,
    list_names,
    read_fault,
    show_value,
    summarize_error,
)
from distributary.files.replacing import replace_folder
from distributary.files.tables import (
    EXTENSIONS,
    FORMATS,
    FileTable,
    encode_names,
    first_row,
    read_table,
)
from distributary.files.versions import follow_pointer
from distributary.model import IndexArray, IntArray, Interest, Plan, Previous, distinct
from distributary.planning import MadePlan

__all__ = [
    "StoredPlan",
    "read_manifest",
    "read_plan",
    "read_previous",
    "save_plan",
    "write_plan",
]

FORMAT_VERSION = 1
MANIFEST = "plan.json"
# IPv4 has 2^28 multicast addresses; past this a group is a typing error that would cost gigabytes.
MOST_GROUPS = 1 << 24

PLACEMENTS = (Column("flow", ColumnKind.TEXT), Column("session", ColumnKind.NUMBER))
SESSIONS = (Column("session", ColumnKind.NUMBER), Column("group", ColumnKind.NUMBER))
SUBSCRIPTIONS = (Column("receiver", ColumnKind.TEXT), *SESSIONS)
UNICAST = (Column("receiver", ColumnKind.TEXT), Column("flow", ColumnKind.TEXT))


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan read from its folder, and the content of its `plan.json`."""

    plan: Plan
    metadata: dict[str, Any]


def write_plan(
    plan: Plan,
    metadata: Mapping[str, object],
    folder: str | os.PathLike[str],
    *,
    table_format: str = "parquet",
) -> None:
    """Write a plan folder whole or not at all; it replaces a plan that is already there.

    The same plan and metadata give the same bytes. `table_format` is parquet, csv or jsonl.
    """
    if table_format not in FORMATS:
        raise ValueError(f"table_format must be one of {list_names(FORMATS)}, not {table_format!r}")
    manifest = json.dumps(
        {**metadata, "format": FORMAT_VERSION},
        indent=2,
        sort_keys=True,
        allow_nan=False,
        default=_convert_number,
    )
    kind, tables = FORMATS[table_format], _build_tables(plan)
    with replace_folder(folder, _is_plan, "plan") as new:
        for name, table in tables.items():
            with (new / f"{name}{kind.extensions[0]}").open("xb") as file:
                kind.write(table, file)
        (new / MANIFEST).write_text(manifest + "\n", encoding="utf-8", newline="\n")


def save_plan(
    made: MadePlan,
    inputs: ReadDemand,
    folder: str | os.PathLike[str],
    *,
    table_format: str = "parquet",
) -> None:
    """Write a plan that was just made, with its `plan.json`."""
    document = plan_document(made, inputs.fingerprints)
    write_plan(made.solution.plan, document, folder, table_format=table_format)


def read_plan(folder: str | os.PathLike[str], interest: Interest | None = None) -> StoredPlan:
    """Read a plan folder; its names are aligned to those of the interest, if given.

    A plan that serves its receivers badly is read without an error: `plan_problems` lists what is
    wrong.
    """
    folder = follow_pointer(Path(folder))
    metadata = read_manifest(folder)
    placements = read_table(_find_table(folder, "placements"), PLACEMENTS, may_be_empty=True)
    sessions = read_table(_find_table(folder, "sessions"), SESSIONS)
    subscriptions = read_table(
        _find_table(folder, "subscriptions"), SUBSCRIPTIONS, may_be_empty=True
    )
    session_group = _session_groups(sessions)
    n_sessions = len(session_group)
    for table in (placements, subscriptions):
        _check_sessions_known(table, n_sessions, sessions)
    _check_groups_agree(subscriptions, session_group)
    alone = _unicast_table(folder)
    if interest is None:
        receivers, flows = (
            _collect_names(subscriptions, alone, "receiver"),
            _collect_names(placements, alone, "flow"),
        )
    else:
        receivers, flows = interest.receivers, interest.flows
    placement = _sort_pairs(placements, "flow", flows, n_sessions)
    subscription = _sort_pairs(subscriptions, "receiver", receivers, n_sessions)
    unicast = _unicast_pairs(alone, receivers, flows)
    plan = Plan(
        receivers=receivers,
        flows=flows,
        placement_flow=placement[0],
        placement_session=placement[1],
        session_group=session_group,
        subscription_receiver=subscription[0],
        subscription_session=subscription[1],
        unicast_receiver=unicast[0],
        unicast_flow=unicast[1],
    )
    return StoredPlan(plan, metadata)


def read_previous(folder: str | os.PathLike[str]) -> Previous:
    """Read the places of each flow in a plan folder, whether or not it is still wanted."""
    return Previous.of(read_plan(folder).plan)


def _build_tables(plan: Plan) -> dict[str, Any]:
    subscription_group = plan.session_group[plan.subscription_session]
    tables = {
        "placements": pa.table(
            {
                "flow": encode_names("flow", plan.flows, plan.placement_flow),
                "session": pa.array(plan.placement_session, pa.int32()),
            }
        ),
        "sessions": pa.table(
            {
                "session": pa.array(np.arange(plan.n_sessions), pa.int32()),
                "group": pa.array(plan.session_group, pa.int32()),
            }
        ),
        "subscriptions": pa.table(
            {
                "receiver": encode_names("receiver", plan.receivers, plan.subscription_receiver),
                "session": pa.array(plan.subscription_session, pa.int32()),
                "group": pa.array(subscription_group, pa.int32()),
            }
        ),
    }
    if len(plan.unicast_flow):
        tables["unicast"] = pa.table(
            {
                "receiver": encode_names("receiver", plan.receivers, plan.unicast_receiver),
                "flow": encode_names("flow", plan.flows, plan.unicast_flow),
            }
        )
    return tables


def _convert_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{show_value(value)} cannot be written as JSON")


def _is_plan(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the `plan.json` of a plan folder."""
    path = folder / MANIFEST
    if os.path.isdir(folder) and not os.path.lexists(path):
        raise input_fault(folder, f"is not a plan: it has no {MANIFEST}", remedy="check the path")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise read_fault(path if os.path.isdir(folder) else folder, error) from error
    except (ValueError, RecursionError) as error:
        raise input_fault(
            path, f"does not parse as JSON: {summarize_error(error)}", remedy="write the plan again"
        ) from error
    if not isinstance(metadata, dict):
        raise input_fault(path, "is not a JSON object", remedy="write the plan again")
    version = metadata.pop("format", None)
    check_format(path, version, FORMAT_VERSION)
    return metadata


def _find_table(folder: Path, name: str) -> Path:
    found = [
        folder / f"{name}{ext}" for ext in EXTENSIONS if os.path.lexists(folder / f"{name}{ext}")
    ]
    if not found:
        raise input_fault(
            folder,
            f"has no table {name!r}",
            value=name,
            remedy=f"a plan has one of {', '.join(name + ext for ext in EXTENSIONS)}",
        )
    if len(found) > 1:
        raise input_fault(
            folder,
            f"has the table {name!r} more than once: {list_names(path.name for path in found)}",
            value=name,
            remedy="keep one of them",
        )
    return found[0]


def _unicast_table(folder: Path) -> FileTable | None:
    if not any(os.path.lexists(folder / f"unicast{ext}") for ext in EXTENSIONS):
        return None
    return read_table(_find_table(folder, "unicast"), UNICAST, may_be_empty=True)


def _collect_names(table: FileTable, alone: FileTable | None, column: str) -> tuple[str, ...]:
    """All names in a column of the table and of the unicast table, if there is one."""
    more = () if alone is None else alone.names(column)[0]
    return tuple(sorted({*table.names(column)[0], *more}))


def _unicast_pairs(
    table: FileTable | None, receivers: tuple[str, ...], flows: tuple[str, ...]
) -> tuple[IndexArray, IndexArray]:
    """The (receiver, flow) pairs of the unicast table, ascending and without repeats."""
    if table is None:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    receiver = _align_names(table, "receiver", receivers)
    keys = distinct(receiver * len(flows) + _align_names(table, "flow", flows))
    return (keys // len(flows)).astype(np.int32), (keys % len(flows)).astype(np.int32)


def _session_groups(sessions: FileTable) -> IndexArray:
    """The group of each session, after checking that sessions are numbered from 0 without gaps."""
    session, group = sessions.numbers("session"), sessions.numbers("group")
    numbered, first = np.unique(session, return_index=True)
    n_sessions = len(numbered)
    index = first_row((session < 0) | (session >= n_sessions))
    if index is not None:
        raise sessions.fault(
            index,
            f"session {session[index]} where {n_sessions:,} sessions are listed",
            value=int(session[index]),
            remedy="number the sessions from 0 without gaps",
        )
    index = first_row((group < 0) | (group >= MOST_GROUPS))
    if index is not None:
        raise sessions.fault(
            index,
            f"group {group[index]} is out of range",
            value=int(group[index]),
            remedy="number the groups from 0",
        )
    index = first_row(group != group[first[session]])
    if index is not None:
        path, row = sessions.place(int(first[session[index]]))
        raise sessions.fault(
            index,
            f"session {session[index]} is in group {group[index]} here "
            f"but in group {group[first[session[index]]]} in row {row} of {path.name}",
            value=int(session[index]),
            remedy="a session is in one group",
        )
    return group[first].astype(np.int32)


def _check_sessions_known(table: FileTable, n_sessions: int, sessions: FileTable) -> None:
    session = table.numbers("session")
    index = first_row((session < 0) | (session >= n_sessions))
    if index is not None:
        raise table.fault(
            index,
            f"session {session[index]} is not listed in {sessions.part_paths[0].name}",
            value=int(session[index]),
            remedy="list every session there, with its group",
        )


def _check_groups_agree(subscriptions: FileTable, session_group: IndexArray) -> None:
    session, group = subscriptions.numbers("session"), subscriptions.numbers("group")
    index = first_row(group != session_group[session])
    if index is not None:
        raise subscriptions.fault(
            index,
            f"session {session[index]} is in group {session_group[session[index]]}, "
            f"not {group[index]}",
            value=int(group[index]),
            remedy="the group of a subscription is its session's",
        )


def _sort_pairs(
    table: FileTable, column: str, known: tuple[str, ...], n_sessions: int
) -> tuple[IndexArray, IndexArray]:
    """The (index into `known`, session) pair of each row, ascending and without repeats."""
    index = _align_names(table, column, known)
    keys = distinct(index * n_sessions + table.numbers("session"))
    return (keys // n_sessions).astype(np.int32), (keys % n_sessions).astype(np.int32)


def _align_names(table: FileTable, column: str, known: tuple[str, ...]) -> IntArray:
    """For each row, the index in `known` of the name in its column."""
    names, codes = table.names(column)
    place = {name: index for index, name in enumerate(known)}
    aligned = np.array([place.get(name, -1) for name in names], np.int64)[codes]
    index = first_row(aligned < 0)
    if index is not None:
        name = names[codes[index]]
        lack = "wants nothing" if column == "receiver" else "is wanted by nobody"
        raise table.fault(
            index,
            f"{column} {show_value(name)} {lack} in the interest",
            value=name,
            remedy="read the plan with the interest it was made for",
        )
    return aligned
