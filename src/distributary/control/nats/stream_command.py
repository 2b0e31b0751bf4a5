"""The command line of the stream that plans for a control plane."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from distributary.control.nats.stream_files import StreamFiles
from distributary.control.settings import ControlSettings
from distributary.files.replacing import replace_file

__all__ = ["make_command", "show_command"]

_BUDGET = "10s"  # for the first plan; later ones begin with the plan in force


def make_command(
    files: StreamFiles, settings: ControlSettings, more: Sequence[str] = ()
) -> list[str]:
    """Make the command, and write the files of terms that it names."""
    command = [
        *(sys.executable, "-m", "distributary", "pipeline", "stream", "--json"),
        *("--subscriptions", str(files.subscriptions)),
        *("--publications", str(files.publications)),
        *("--out", str(files.out), "--base", str(files.base)),
        *("--groups", str(settings.groups), "--sessions", str(settings.sessions)),
        *("--drift", f"{settings.drift:.6f}", "--budget", _BUDGET),
        *("--trigger", f"{settings.trigger:.3f}s", "--rate-window", f"{settings.rate_window:.3f}s"),
    ]
    if settings.max_moves is not None:
        command += ["--max-moves", str(settings.max_moves)]
    if settings.limits:
        path = files.folder / "limits.toml"
        _write(path, settings.limits)
        command += ["--limits", str(path)]
    if settings.pins:
        path = files.folder / "pins.csv"
        _write(path, _format_pins(settings.pins))
        command += ["--pins", str(path)]
    return [*command, *more]


def show_command(command: Sequence[str]) -> str:
    """The command as one types it in a shell."""
    return shlex.join(["distributary", *command[3:]])


def _format_pins(pins: dict[str, int]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["flow", "group"])
    writer.writerows(sorted(pins.items()))
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    with replace_file(path) as file:
        file.write(text.encode())
