"""The options that say how logs are written, for every command that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary.cli.options import INPUT, option, reject_bad_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distributary.pipeline.shapes import LogShapes

__all__ = ["ShapeOptions"]

_LOGS = ("subscriptions", "publications", "filters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """How logs are written: names of columns, words for actions, and times."""

    column: Annotated[
        list[str] | None,
        option(
            "Where a column of ours is, such as receiver=client_id, flow=payload.symbol or "
            "publications.ts=time; nothing after = if the log has none. Repeatable.",
            INPUT,
            "--column",
            metavar="[LOG.]COLUMN=PATH",
        ),
    ] = None
    action: Annotated[
        list[str] | None,
        option(
            "The log's words for an action, such as subscribe=SUB,join. Repeatable.",
            INPUT,
            "--action",
            metavar="ACTION=WORD,...",
        ),
    ] = None
    time_unit: Annotated[
        list[str] | None,
        option(
            "Unit of times that are numbers: auto, s, ms, us or ns.",
            INPUT,
            "--time-unit",
            metavar="[LOG=]UNIT",
            show_default="auto, by the first rows",
        ),
    ] = None
    time_zone: Annotated[
        list[str] | None,
        option(
            "Zone of times that name none, such as Europe/Berlin.",
            INPUT,
            "--time-zone",
            metavar="[LOG=]ZONE",
            show_default="UTC",
        ),
    ] = None
    time_format: Annotated[
        list[str] | None,
        option(
            "Pattern of times that are text, such as 'dd/MMM/yyyy:HH:mm:ss Z'.",
            INPUT,
            "--time-format",
            metavar="[LOG=]PATTERN",
            show_default="ISO 8601",
        ),
    ] = None

    def read_shapes(self) -> LogShapes:
        """Parse the options into the shape of each log."""
        from distributary.pipeline.shapes import LogShape, LogShapes

        columns = self._parse_columns()
        actions = self._parse_actions()
        times = {
            name: _parse_each(name, given)
            for name, given in (
                ("time_unit", self.time_unit),
                ("time_zone", self.time_zone),
                ("time_format", self.time_format),
            )
        }
        shapes: dict[str, LogShape] = {}
        for log in _LOGS:
            more: dict[str, Any] = {
                name: values[log] for name, values in times.items() if log in values
            }
            with reject_bad_values():
                shapes[log] = LogShape(columns[log], **actions, **more)
        with reject_bad_values("'--column'"):
            return LogShapes(**shapes)

    def _parse_columns(self) -> dict[str, dict[str, str]]:
        from distributary.pipeline.shapes import LOG_COLUMNS

        found: dict[str, dict[str, str]] = {log: {} for log in LOG_COLUMNS}
        own: dict[str, dict[str, str]] = {log: {} for log in LOG_COLUMNS}
        for entry in self.column or ():
            name, equals, path = entry.partition("=")
            log, dot, column = name.strip().rpartition(".")
            logs = [one for one, known in LOG_COLUMNS.items() if column in known]
            if not equals or not logs or (dot and log not in LOG_COLUMNS):
                known = dict.fromkeys(one for all_of in LOG_COLUMNS.values() for one in all_of)
                raise typer.BadParameter(
                    f"{entry!r} is not COLUMN=PATH or LOG.COLUMN=PATH with a column of "
                    f"{', '.join(known)} and a log of {', '.join(LOG_COLUMNS)}",
                    param_hint="'--column'",
                )
            for one in [log] if dot else logs:
                into = own[one] if dot else found[one]
                if column in into:
                    raise typer.BadParameter(
                        f"{entry!r} names {column!r} a second time", param_hint="'--column'"
                    )
                into[column] = path.strip()
        return {log: found[log] | own[log] for log in found}

    def _parse_actions(self) -> dict[str, Any]:
        words: dict[str, tuple[str, ...]] = {}
        for entry in self.action or ():
            action, equals, given = entry.partition("=")
            parts = tuple(word.strip() for word in given.split(",") if word.strip())
            if action not in ("subscribe", "unsubscribe") or not equals or not parts:
                raise typer.BadParameter(
                    f"{entry!r} is not subscribe=WORD,... or unsubscribe=WORD,...",
                    param_hint="'--action'",
                )
            words[action] = (*words.get(action, ()), *parts)
        return words


def _parse_each(name: str, given: Sequence[str] | None) -> dict[str, str]:
    """What an option says of each log: `LOG=VALUE` of one, and `VALUE` of all others."""
    for_all: dict[str, str] = {}
    own: dict[str, str] = {}
    for entry in given or ():
        log, equals, value = entry.partition("=")
        logs = [log] if equals and log in _LOGS else list(_LOGS)
        into = own if equals and log in _LOGS else for_all
        for one in logs:
            if one in into:
                raise typer.BadParameter(
                    f"{entry!r} comes after another; for one of two logs write LOG=VALUE",
                    param_hint=f"'--{name.replace('_', '-')}'",
                )
            into[one] = value if into is own else entry
    return for_all | own
