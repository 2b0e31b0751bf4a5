"""`distributary pipeline inspect`: what logs hold, and the command line that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from distributary.cli.console import print_json, results
from distributary.cli.log_shapes import ShapeOptions
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, Json, SparkOptions, option
from distributary.cli.proposed_command import print_words, read_words, write_words
from distributary.cli.stages import Shown, View, call_on_spark
from distributary.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from distributary.pipeline.inspection import BadRow, CheckedLog, LogLook
    from distributary.pipeline.profiles import ColumnProfile
    from distributary.pipeline.proposals import Proposal, ProposedLog
    from distributary.pipeline.roles import LogKind, Role
    from distributary.pipeline.shapes import LogShapes

__all__ = ["pipeline_inspect"]

# The settings of a run that no log tells.
SETTINGS = ("--groups", "10", "--out", "run")
_LONGEST_EXAMPLE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedLogs(ShapeOptions):
    """The logs to look at, what is known of them, and how many rows to look at."""

    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="One log, or two: a file, a folder, a quoted glob, a table or a URI.",
            metavar="PATH",
        ),
    ] = None
    subscriptions: Annotated[str | None, option("The log that is the subscription log.", INPUT)] = (
        None
    )
    publications: Annotated[str | None, option("The log that is the publication log.", INPUT)] = (
        None
    )
    filters: Annotated[str | None, option("The log that is the table of filters.", INPUT)] = None
    rows: Annotated[
        int, option("How many rows to look at: the first ones, of up to 8 files.", INPUT, min=1)
    ] = 10_000
    all_rows: Annotated[
        bool,
        option("Look at all rows, in three passes over each log.", INPUT, "--all-rows"),
    ] = False

    def name_logs(self) -> tuple[list[str], dict[LogKind, str]]:
        """The logs whose kind is to be found out, and those that an option names."""
        named: dict[LogKind, str | None] = {
            "subscriptions": self.subscriptions,
            "filters": self.filters,
            "publications": self.publications,
        }
        settled = {kind: path for kind, path in named.items() if path is not None}
        paths = list(self.paths or ())
        if not paths and not settled:
            raise typer.BadParameter("name a log: a file, a folder, a glob, a table or a URI")
        if len(paths) + len(settled) > 2:
            raise typer.BadParameter(
                "at most two logs can be looked at together; name a folder, or a glob in quotes, "
                "for the files of one log"
            )
        if "subscriptions" in settled and "filters" in settled:
            raise typer.BadParameter("a run has --subscriptions or --filters, not both")
        return paths, settled


@dataclass(frozen=True, slots=True)
class _Finding:
    """What was found; `fault` says why no command can be proposed, or why it would fail."""

    looks: tuple[LogLook, ...]
    proposal: Proposal | None = None
    words: tuple[str, ...] = ()
    checked: Mapping[str, CheckedLog] | None = None
    fault: InputError | None = None


@takes_groups
def pipeline_inspect(
    logs: InspectedLogs,
    spark: SparkOptions,
    as_document: Json = False,
) -> None:
    """Look at logs: what they hold, which are their bad rows, and the command line to use.

    The proposed command is read by `pipeline run` itself, and its bad rows are found by the same
    reader. Options that say how logs are written correct what was guessed.
    """
    paths, settled = logs.name_logs()
    given = logs.read_shapes()

    def work(session: SparkSession, _: Shown) -> _Finding:
        return _inspect(session, paths, settled, given, logs)

    finding = call_on_spark(spark, View(keep=False), work)
    if as_document:
        print_json(_write_document(finding))
    else:
        _print_finding(finding)
    if finding.fault is not None:
        raise finding.fault


def _inspect(
    spark: SparkSession,
    paths: Sequence[str],
    settled: Mapping[LogKind, str],
    given: LogShapes,
    options: InspectedLogs,
) -> _Finding:
    from distributary.pipeline.inspection import look_at_log
    from distributary.pipeline.proposals import propose

    zoned = options.time_zone is not None
    looks = {
        path: look_at_log(
            spark, path, rows=options.rows, all_rows=options.all_rows, keep_local=zoned
        )
        for path in dict.fromkeys([*paths, *settled.values()])
    }
    finding = _Finding(tuple(looks.values()))
    try:
        proposal = propose(
            [looks[path] for path in paths],
            {kind: looks[path] for kind, path in settled.items()},
            given,
        )
        words = write_words(proposal, SETTINGS)
        finding = _Finding(finding.looks, proposal, tuple(words))
        checked = _check_proposal(spark, proposal, read_words(words))
    except InputError as error:
        return replace(finding, fault=error)
    return replace(finding, checked=checked)


def _check_proposal(
    spark: SparkSession, proposal: Proposal, shapes: LogShapes
) -> dict[str, CheckedLog]:
    """Read the logs as the proposed command would."""
    from distributary.pipeline.ingest import read_publications
    from distributary.pipeline.inspection import check_log

    events = None
    published = proposal.find("publications")
    if published is not None and proposal.find("filters") is not None:
        events = read_publications(
            spark, published.look.source, attributes="all", shape=shapes.publications
        )
    return {
        log.kind: check_log(spark, log.look, log.kind, getattr(shapes, log.kind), events)
        for log in proposal.logs
    }


# --- text ----------------------------------------------------------------------------------------


def _print_finding(finding: _Finding) -> None:
    for look in finding.looks:
        logs = [] if finding.proposal is None else finding.proposal.logs
        _print_look(look, [log for log in logs if log.look is look])
        for log in logs:
            if log.look is look and finding.checked is not None:
                _print_checked(log, finding.checked[log.kind])
        results.print()
    if finding.proposal is None or finding.fault is not None:
        return
    for doubt in finding.proposal.doubts:
        results.print(f"# check: {doubt}", markup=False)
    for missing in _list_missing(finding.words):
        results.print(f"# {missing} stands for the log that was not looked at", markup=False)
    results.print(print_words(finding.words), markup=False)


def _list_missing(words: Sequence[str]) -> list[str]:
    return [word for word in ("SUBSCRIPTIONS", "PUBLICATIONS") if word in words]


def _print_look(look: LogLook, logs: Sequence[ProposedLog]) -> None:
    kinds = " and ".join(log.kind for log in logs) or "unknown"
    results.print(f"{look.path}: {kinds}" + (f" ({logs[0].why})" if logs else ""), markup=False)
    results.print(f"{_describe_source(look)}; {_describe_rows(look)}", markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (
        ("column", "left"),
        ("kind", "left"),
        ("present", "right"),
        ("different", "right"),
        ("example", "left"),
        ("used as", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for column in look.columns:
        roles = _list_roles(column, logs)
        cells = (
            column.path,
            _name_kind(column),
            f"{column.present / max(column.rows, 1):.0%}",
            _write_distinct(column),
            _shorten(column.example),
            "; ".join(dict.fromkeys(f"{role.column}: {role.why}" for role in roles)),
        )
        table.add_row(*map(Text, cells))
    _print_wide(table)
    if look.left_out:
        results.print("further paths are left out")
    for log in logs:
        for role in log.roles.columns.values():
            if not role.path:
                results.print(f"no {role.column} in the {log.kind}: {role.why}", markup=False)


def _print_wide(table: Table) -> None:
    """Print a table as wide as it is: a terminal wraps it, and nothing is cut off."""
    for line in results.render_lines(table, results.options.update(width=10_000), pad=False):
        results.print("".join(part.text for part in line).rstrip(), markup=False)


def _print_checked(log: ProposedLog, checked: CheckedLog) -> None:
    counts = checked.counts
    results.print(
        f"as {log.kind}: {counts.read:,} rows = {counts.used:,} used + {counts.duplicates:,} "
        f"duplicates + {counts.quarantined:,} bad"
    )
    for bad in checked.bad:
        results.print(f"  {bad.count:,} x {bad.reason}; {bad.remedy}", markup=False)
        for row in bad.first:
            results.print(f"    {_place(row)}: {row.value!r}", markup=False)


def _place(row: BadRow) -> str:
    if row.file is None or row.row is None:
        return "in the table"
    return f"{row.file}, row {row.row:,}"


def _describe_source(look: LogLook) -> str:
    name = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet", "table": "a table"}
    packed = any(file.lower().endswith(".gz") for file in look.files)
    files = len(look.files)
    text = name[look.format] + (", gzip" if packed else "")
    return text if look.format == "table" else f"{text}, {files:,} file{'s' * (files != 1)}"


def _describe_rows(look: LogLook) -> str:
    return f"all {look.rows:,} rows" if look.whole else f"the first {look.rows:,} rows"


def _list_roles(column: ColumnProfile, logs: Sequence[ProposedLog]) -> list[Role]:
    return [role for log in logs for role in log.roles.columns.values() if role.path == column.path]


def _name_kind(column: ColumnProfile) -> str:
    if column.type and not column.type.startswith(("struct", "array", "map")):
        return column.type
    kinds = sorted(column.kinds, key=lambda kind: -column.kinds[kind])
    return " or ".join(kinds) or "empty"


def _write_distinct(column: ColumnProfile) -> str:
    return f"{column.distinct:,}" if column.exact else f"about {column.distinct:,}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_EXAMPLE else f"{line[: _LONGEST_EXAMPLE - 3]}..."


# --- JSON ----------------------------------------------------------------------------------------


def _write_document(finding: _Finding) -> dict[str, Any]:
    proposal = finding.proposal
    return {
        "logs": [_write_look(look, finding) for look in finding.looks],
        "command": None
        if proposal is None or finding.fault is not None
        else {
            "words": list(finding.words),
            "line": print_words(finding.words),
            "check": list(proposal.doubts),
            "missing": _list_missing(finding.words),
        },
        "fault": None if finding.fault is None else str(finding.fault),
    }


def _write_look(look: LogLook, finding: _Finding) -> dict[str, Any]:
    logs = [log for log in (finding.proposal.logs if finding.proposal else ()) if log.look is look]
    return {
        "path": look.path,
        "format": look.format,
        "files": len(look.files),
        "rows": look.rows,
        "whole": look.whole,
        "columns": [
            {
                "path": column.path,
                "kind": _name_kind(column),
                "present": column.present,
                "distinct": column.distinct,
                "exact": column.exact,
                "example": column.example,
            }
            for column in look.columns
        ],
        "left_out": look.left_out,
        "as": {log.kind: _write_log(log, finding) for log in logs},
    }


def _write_log(log: ProposedLog, finding: _Finding) -> dict[str, Any]:
    checked = None if finding.checked is None else finding.checked[log.kind]
    return {
        "why": log.why,
        "columns": {
            name: {"path": role.path, "why": role.why, "check": role.doubt}
            for name, role in log.roles.columns.items()
        },
        "rows": None
        if checked is None
        else {
            "read": checked.counts.read,
            "used": checked.counts.used,
            "duplicates": checked.counts.duplicates,
            "bad": checked.counts.quarantined,
        },
        "bad": []
        if checked is None
        else [
            {
                "reason": bad.reason,
                "count": bad.count,
                "remedy": bad.remedy,
                "first": [
                    {"file": row.file, "row": row.row, "value": row.value} for row in bad.first
                ],
            }
            for bad in checked.bad
        ],
    }
