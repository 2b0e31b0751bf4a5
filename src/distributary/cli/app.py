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
    "Logs, on Spark",
    "Content: filters and brokers",
    "Live: multicast and topics",
    "Try out and reproduce",
)


def _entry(panel: str, name: str, help: str, attribute: str | None = None) -> CommandEntry:
    return CommandEntry(f"distributary.cli.{name}", attribute or name, help, panel)


# The help lines repeat the commands' own first paragraphs, which a test compares with these.
COMMANDS = {
    "plan": _entry(PLANS, "plan", "Decide which flow goes where and who joins what."),
    "evaluate": _entry(
        PLANS,
        "evaluate",
        "Check a plan and price it: is anybody missed, what is wasted, who carries how much.",
    ),
    "report": _entry(PLANS, "report", "Write a self-contained HTML page about a plan."),
    "sweep": _entry(
        PLANS,
        "sweep",
        "Say what one more group buys: plan with several numbers of groups and find the knee.",
    ),
    "export": _entry(
        PLANS, "export", "Turn a plan into configuration: tables, Cyclone DDS, NATS or Aeron."
    ),
    "pipeline": _entry(LOGS, "pipeline", "From logs to a plan and its replay, on Spark.", "app"),
    "match": _entry(CONTENT, "match", "Match a table of events against a table of SQL filters."),
    "filter": _entry(CONTENT, "filter", "Explain SQL filters.", "app"),
    "broker": _entry(CONTENT, "broker", "Try out networks of content brokers.", "app"),
    "publish": _entry(
        LIVE, "publish", "Publish messages by a plan, over multicast, and repair what is missed."
    ),
    "receive": _entry(
        LIVE,
        "receive",
        "Receive the wanted flows of a plan, each message once and in its flow's order.",
    ),
    "calibrate": _entry(
        LIVE,
        "calibrate",
        "Measure what receivers spend on a message at either filter: alpha(h) and beta(h).",
    ),
    "topics": _entry(
        LIVE, "topics", "Topics on a NATS server that share channels where that saves.", "app"
    ),
    "demo": _entry(
        STUDY,
        "demo",
        "Generate a day of a trading floor's logs, plan from them on Spark, replay them, report.",
    ),
    "generate": _entry(STUDY, "generate", "Write a workload: interest and rates, or logs.", "app"),
    "paper": _entry(STUDY, "paper", "Reproduce a paper's figure.", "app"),
}


class Commands(LazyGroup):
    """The commands of distributary."""

    table = COMMANDS


app = typer.Typer(
    name="distributary",
    cls=Commands,
    help="Decide which message flows travel together, over which few channels, to whom.",
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
    except ModuleNotFoundError as error:
        if (missing := find_extra(error)) is None:
            _fail_by_defect(error)
        _fail(str(missing))
    except MemoryError:
        _fail("there is not enough memory for this input; plan on a larger machine")
    except OSError as error:
        _fail(_describe(error))
    except Exception as error:
        _fail_by_defect(error)


def _flush_results() -> None:
    """Have results that cannot be written fail here, where it can be told, not at the very end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _fail(_describe(error))


def _describe(error: OSError) -> str:
    """Describe a fault of the environment that no room knew to describe better."""
    from distributary.files.faults import show_path, summarize_error

    reason = summarize_error(error)
    if isinstance(error.filename, str):
        return f"{show_path(error.filename)}: {reason}; check the path and its permissions"
    if error.errno in _UNWRITABLE:
        return f"the output cannot be written: {reason}; make room, or send it elsewhere"
    return reason


def _leave_interrupted() -> NoReturn:
    """Exit by Ctrl-C, without waiting for a search that is inside a compiled loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it has been heard
    with suppress(OSError):
        notes.print("interrupted: nothing is left half-written")
    planning = sys.modules.get("distributary.planning")  # who searches has imported it
    if planning and any(t.name == planning.SEARCH_THREAD for t in threading.enumerate()):
        os._exit(INTERRUPTED)
    sys.exit(INTERRUPTED)


def _fail_by_defect(error: Exception) -> NoReturn:
    if "DISTRIBUTARY_DEBUG" in os.environ:
        raise error
    said = " ".join(f"{type(error).__name__}: {error}".split())
    _fail(f"a defect in distributary itself: {said}; DISTRIBUTARY_DEBUG=1 shows the traceback")


def _fail(message: str) -> NoReturn:
    with suppress(OSError):
        notes.print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(FAILED)
