"""The command line of `pipeline run` for logs as they are, and what the command makes of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from distributary.cli.log_shapes import ShapeOptions

if TYPE_CHECKING:
    from distributary.pipeline.proposals import Proposal
    from distributary.pipeline.shapes import LogShape, LogShapes

__all__ = ["print_words", "read_words", "write_words"]

_OPTIONS = {"time_unit": "auto", "time_zone": "UTC", "time_format": None}


def write_words(proposal: Proposal, settings: Sequence[str]) -> list[str]:
    """The words of a complete command for these logs, with only the options that they need.

    A log that is not there gets a name in capitals.
    """
    logs = {log.kind: log for log in proposal.logs}
    words = ["distributary", "pipeline", "run"]
    if not logs.keys() & {"subscriptions", "filters"}:
        words += ["--subscriptions", "SUBSCRIPTIONS"]
    for log in proposal.logs:
        words += [f"--{log.kind}", log.look.path]
    if "publications" not in logs:
        words += ["--publications", "PUBLICATIONS"]
    shapes = {str(kind): log.shape for kind, log in logs.items()}
    words += _write_columns(shapes)
    words += _write_actions(shapes)
    for name, default in _OPTIONS.items():
        words += _write_times(name, default, shapes)
    return [*words, *settings]


def read_words(words: Sequence[str]) -> LogShapes:
    """How the logs are written according to a command line, as the command itself reads it."""
    from distributary.cli.pipeline import app

    group: Any = typer.main.get_command(app)
    command = group.commands["run"]
    with command.make_context("run", list(words[3:])) as context:
        given = {one.name: context.params[one.name] for one in fields(ShapeOptions)}
        return ShapeOptions(**given).read_shapes()


def print_words(words: Sequence[str]) -> str:
    """A command line for a shell, each option on a line of its own after the first two."""
    pairs: list[str] = []
    for word in words[3:]:
        if word.startswith("--") or not pairs:
            pairs.append(word)
        else:
            pairs[-1] += f" {_quote(word)}"
    return " \\\n    ".join([" ".join(words[:3]), *pairs])


def _quote(word: str) -> str:
    """A word for the shell; in double quotes if it has single ones, which are easier to read."""
    if "'" in word and not set(word) & set('"$`\\!\n'):
        return f'"{word}"'
    return shlex.quote(word)


def _write_columns(shapes: Mapping[str, LogShape]) -> list[str]:
    words = []
    named = dict.fromkeys(column for shape in shapes.values() for column in shape.columns)
    for column in named:
        paths = {
            log: shape.columns[column] for log, shape in shapes.items() if column in shape.columns
        }
        alike = len(set(paths.values())) == 1
        everywhere = alike and len(shapes) > 1 and len(paths) == len(_logs_with(column, shapes))
        if everywhere or column not in ("ts", "flow"):
            words += ["--column", f"{column}={next(iter(paths.values()))}"]
        else:
            for log, path in paths.items():
                words += ["--column", f"{log}.{column}={path}"]
    return words


def _logs_with(column: str, shapes: Mapping[str, LogShape]) -> list[str]:
    from distributary.pipeline.shapes import LOG_COLUMNS

    return [log for log in shapes if column in LOG_COLUMNS[log]]


def _write_actions(shapes: Mapping[str, LogShape]) -> list[str]:
    shape = shapes.get("subscriptions")
    words = []
    for action in ("subscribe", "unsubscribe"):
        known = (action,) if shape is None else getattr(shape, action)
        if known != (action,):
            words += ["--action", f"{action}={','.join(known)}"]
    return words


def _write_times(name: str, default: str | None, shapes: Mapping[str, LogShape]) -> list[str]:
    values = {log: getattr(shape, name) for log, shape in shapes.items() if log != "filters"}
    option = f"--{name.replace('_', '-')}"
    told = {log: value for log, value in values.items() if value != default}
    if len(told) > 1 and len(told) == len(values) and len(set(told.values())) == 1:
        return [option, str(next(iter(told.values())))]
    return [word for log, value in told.items() for word in (option, f"{log}={value}")]
