"""The commands put together, and what every one of them does when something goes wrong."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from contextlib import suppress
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
from distributary.cli.start import INTERRUPTED
from distributary.errors import DistributaryError
from distributary.files.faults import brief, told
from distributary.planning import SEARCH_THREAD

__all__ = ["main"]

FAILED = 1
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)

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
    """Run a command and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        _run_command()
    except KeyboardInterrupt:
        _leave_interrupted()


def _run_command() -> None:
    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            raise KeyboardInterrupt from None
        _flush_results()
        raise
    except DistributaryError as error:
        _fail(str(error))
    except MemoryError:
        _fail("there is not enough memory for this input; plan on a larger machine")
    except OSError as error:
        _fail(_describe(error))
    except Exception as error:
        if "DISTRIBUTARY_DEBUG" in os.environ:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"a defect in distributary itself: {said}; DISTRIBUTARY_DEBUG=1 shows the traceback")


def _flush_results() -> None:
    """Have results that cannot be written fail here, where it can be told, not at the very end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _fail(_describe(error))


def _describe(error: OSError) -> str:
    """A fault of the environment that no room knew to describe better."""
    if isinstance(error.filename, str):
        return f"{told(error.filename)}: {brief(error)}; check the path and its permissions"
    if error.errno in _UNWRITABLE:
        return f"the output cannot be written: {brief(error)}; make room, or send it elsewhere"
    return brief(error)


def _leave_interrupted() -> NoReturn:
    """Exit by Ctrl-C, without waiting for a search that is inside a compiled loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it has been heard
    with suppress(OSError):
        notes.print("interrupted: nothing is left half-written")
    if any(thread.name == SEARCH_THREAD for thread in threading.enumerate()):
        os._exit(INTERRUPTED)
    sys.exit(INTERRUPTED)


def _fail(message: str) -> NoReturn:
    with suppress(OSError):
        notes.print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(FAILED)
