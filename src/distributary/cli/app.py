"""The commands put together, and what every one of them does when something goes wrong."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from distributary import __version__
from distributary.cli import (
    broker,
    calibrate,
    demo,
    evaluate,
    export,
    filter,
    generate,
    match,
    paper,
    pipeline,
    plan,
    publish,
    receive,
    report,
    sweep,
    topics,
)
from distributary.cli.console import notes
from distributary.errors import DistributaryError

__all__ = ["main"]

FAILED, INTERRUPTED = 1, 130

app = typer.Typer(
    name="distributary",
    help="Decide which message flows travel together, over which few channels, to whom.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo")(demo.demo)
app.add_typer(generate.app, name="generate")
app.command("plan")(plan.plan)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("sweep")(sweep.sweep)
app.command("export")(export.export)
app.add_typer(pipeline.app, name="pipeline")
app.command("match")(match.match)
app.add_typer(filter.app, name="filter")
app.add_typer(broker.app, name="broker")
app.command("publish")(publish.publish)
app.command("receive")(receive.receive)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(topics.app, name="topics")
app.add_typer(paper.app, name="paper")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"distributary {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Hold the options that come before any command."""


def main() -> None:
    """Run the command line: exit 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            notes.print("interrupted: nothing is left half-written")
        raise
    except DistributaryError as error:
        _fail(str(error))
    except MemoryError:
        _fail("there is not enough memory for this input; plan on a larger machine")
    except Exception as error:
        if "DISTRIBUTARY_DEBUG" in os.environ:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"a defect in distributary itself: {said}; DISTRIBUTARY_DEBUG=1 shows the traceback")


def _fail(message: str) -> NoReturn:
    notes.print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(FAILED)
