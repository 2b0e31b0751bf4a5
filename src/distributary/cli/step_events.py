"""The progress of a run as JSON lines in a file, for other programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from distributary.cli.console import warn
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.pipeline.progress import StepState
    from distributary.pipeline.steps import RunEnd

__all__ = ["StepEvents"]

_PAUSE_S = 1.0


class StepEvents:
    """Writes each event as a line of a file, which it replaces, as soon as it happens.

    Progress within a step is written once a second. A disk that is full ends the file, not the run.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._clock, self._calendar = path, clock, calendar
        self._last = 0.0
        try:
            self._file: TextIO | None = _open(path)
        except OSError as error:
            raise InputError(
                f"cannot write the events: {error.strerror}",
                path=str(path),
                remedy="name a file in a folder that exists and can be written to",
            ) from error

    def start_run(self) -> None:
        """Write `started`."""
        self._write("started", seconds=0.0)

    def begin_step(self, step: StepState) -> None:
        """Write the first `progress` of a step."""
        self._write_step("progress", step)
        self._last = self._clock()

    def move_step(self, step: StepState) -> None:
        """Write `progress`, unless the last one is recent."""
        if self._clock() - self._last >= _PAUSE_S:
            self.begin_step(step)

    def end_step(self, step: StepState) -> None:
        """Write `step`."""
        self._write_step("step", step)

    def end_run(self, end: RunEnd) -> None:
        """Write how the run ended."""
        summary = end.summary.document()
        more: dict[str, Any] = {"stages": summary["steps"]}
        if end.ending == "failed" and end.error is not None:
            more["error"] = " ".join(str(end.error).split()) or type(end.error).__name__
        self._write(end.ending, seconds=summary["seconds"], **more)
        if self._file is not None:
            self._file.close()

    def _write_step(self, event: str, step: StepState) -> None:
        rate, left = step.rows_per_s, step.seconds_left
        self._write(
            event,
            step=step.name,
            detail=step.detail or None,
            rows=step.rows,
            rows_per_s=None if rate is None else round(rate, 1),
            share=None if step.share is None else round(step.share, 4),
            seconds_left=None if left is None else round(left, 1),
            seconds=round(step.seconds, 3),
        )

    def _write(self, event: str, **facts: Any) -> None:
        if self._file is None:
            return
        moment = datetime.fromtimestamp(self._calendar(), UTC)
        line = {"event": str(event), "time": moment.isoformat(timespec="milliseconds"), **facts}
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            self._file = None
            warn(f"{self._path}: no more events are written: {error.strerror}")


def _open(path: Path) -> TextIO:
    """Open the file for writing; where it is stdout or stderr, the events share its position.

    Opened anew, a redirected stdout would be emptied, and the results written over the events.
    """
    for standard in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(standard), path.stat()):
                return os.fdopen(os.dup(standard), "w", encoding="utf-8", newline="\n")
    return path.open("w", encoding="utf-8", newline="\n")
