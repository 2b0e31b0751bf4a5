"""The table of commands, and the error handling that all of them share."""

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
from distributary.cli.console import notes
from distributary.cli.lazy import CommandEntry, LazyGroup
from distributary.cli.start import INTERRUPTED
from distributary.errors import DistributaryError
from distributary.extras import find_extra

__all__ = ["main"]

FAILED = 1
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)

PLANS, LOGS, CONTENT, LIVE, STUDY = (
    "Plans",
    "Logs (Spark)",
    "Content: filters and brokers",
    "Live: multicast and topics",
    "Try out and reproduce",
)


def _entry(panel: str, name: str, help: str, attribute: str | None = None) -> CommandEntry:
    return CommandEntry(f"distributary.cli.{name}", attribute or name, help, panel)


# The help lines repeat the commands' own first paragraphs, which a test compares with these.
COMMANDS = {
    "plan": _entry(
        PLANS,
        "plan",
        "Decide which session and group carry each flow, and which groups each receiver joins.",
    ),
    "evaluate": _entry(
        PLANS,
        "evaluate",
        "Check that a plan misses nobody, and compute what it costs and wastes.",
    ),
    "report": _entry(PLANS, "report", "Write a self-contained HTML page about a plan."),
    "sweep": _entry(
        PLANS,
        "sweep",
        "Plan with several numbers of groups, and find the knee beyond which more buy little.",
    ),
    "limits": _entry(PLANS, "limits", "List and show what known networks allow.", "app"),
    "export": _entry(
        PLANS,
        "export",
        "Export a plan as configuration: CSV tables, Cyclone DDS, NATS or Aeron.",
    ),
    "pipeline": _entry(
        LOGS, "pipeline", "Plan from logs, replay logs and propose topics, on Spark.", "app"
    ),
    "match": _entry(CONTENT, "match", "Match a table of events against a table of SQL filters."),
    "filter": _entry(CONTENT, "filter", "Explain and compare SQL filters.", "app"),
    "broker": _entry(
        CONTENT, "broker", "Run, use and simulate networks of content brokers.", "app"
    ),
    "up": _entry(
        LIVE,
        "up",
        "Run a whole system on this machine: control plane, Spark's stream, web pages.",
    ),
    "publish": _entry(
        LIVE,
        "publish",
        "Publish messages over IP multicast as a plan says, and repair losses.",
    ),
    "receive": _entry(
        LIVE,
        "receive",
        "Receive flows over IP multicast: each message once, each flow in order.",
    ),
    "control": _entry(
        LIVE,
        "control",
        "Run a control plane, look at it, and approve or change its plans.",
        "app",
    ),
    "dashboard": _entry(
        LIVE,
        "dashboard",
        "Show a running control plane on web pages: traffic, plan, receivers, changes and Spark.",
    ),
    "calibrate": _entry(
        LIVE,
        "calibrate",
        "Measure what a message costs a receiver at each of the two filters, for `plan`.",
    ),
    "topics": _entry(
        LIVE,
        "topics",
        "Serve topics on NATS or between peers; topics with the same readers share channels.",
        "app",
    ),
    "demo": _entry(
        STUDY,
        "demo",
        "Generate a day of trading-floor logs, plan from them on Spark, replay them and report.",
    ),
    "generate": _entry(
        STUDY, "generate", "Generate a workload: interest and rates, or logs.", "app"
    ),
    "paper": _entry(STUDY, "paper", "Reproduce figures of the papers.", "app"),
}


class Commands(LazyGroup):
    """The top-level command, with all commands below it."""

    table = COMMANDS


app = typer.Typer(
    name="distributary",
    cls=Commands,
    help="Fit many message flows into few multicast groups, so that receivers discard little.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"distributary {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Declare the options that come before the command."""


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
    except ModuleNotFoundError as error:
        if (missing := find_extra(error)) is None:
            _fail_by_defect(error)
        _fail(str(missing))
    except MemoryError:
        _fail("there is not enough memory for this input; use a machine with more")
    except OSError as error:
        _fail(_describe(error))
    except Exception as error:
        _fail_by_defect(error)


def _flush_results() -> None:
    """Flush stdout here, where a failure can still be reported."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _fail(_describe(error))


def _describe(error: OSError) -> str:
    """Describe an operating-system error that nothing below has turned into one of ours."""
    from distributary.files.faults import show_path, summarize_error

    reason = summarize_error(error)
    if isinstance(error.filename, str):
        return f"{show_path(error.filename)}: {reason}; check the path and its permissions"
    if error.errno in _UNWRITABLE:
        return f"the output cannot be written: {reason}; free some space, or write elsewhere"
    return reason


def _leave_interrupted() -> NoReturn:
    """Exit after Ctrl-C, without waiting for a search that is inside a compiled loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one is enough
    with suppress(OSError):
        notes.print("interrupted: nothing is left half-written")
    planning = sys.modules.get("distributary.planning")  # imported if a search runs
    if planning and any(t.name == planning.SEARCH_THREAD for t in threading.enumerate()):
        os._exit(INTERRUPTED)
    sys.exit(INTERRUPTED)


def _fail_by_defect(error: Exception) -> NoReturn:
    if "DISTRIBUTARY_DEBUG" in os.environ:
        raise error
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    _fail(f"a defect in distributary itself: {summary}; DISTRIBUTARY_DEBUG=1 shows the traceback")


def _fail(message: str) -> NoReturn:
    with suppress(OSError):
        notes.print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(FAILED)
