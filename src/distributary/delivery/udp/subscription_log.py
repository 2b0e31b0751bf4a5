"""The log of a receiver's subscriptions, in the form that the pipeline reads.

Whoever plans learns from it which flows are wanted, also those that no plan carries yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from distributary.errors import DistributaryError, OutputError

__all__ = ["SubscriptionLog"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE_ENDS = (".jsonl", ".json")


class SubscriptionLog:
    """Writes what one receiver subscribes to, and what it unsubscribes from.

    In a folder each change is a file of its own, which is complete when it appears, as `pipeline
    stream` needs it. To a file (one that exists, or is named `.jsonl` or `.json`) lines are
    appended, all of a change by one write. Any number of receivers may share either. What cannot be
    written goes to `on_fault`, and is written with the next change.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        receiver: str,
        on_fault: Callable[[DistributaryError], None],
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clock` returns nanoseconds since 1970. A log that cannot be written is an error."""
        self._path = Path(path)
        self._receiver = receiver
        self._on_fault = on_fault
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self._wanted: set[str] = set()
        self._micros = 0  # of the last line
        self._unwritten: dict[str, dict[str, str]] = {}  # the last line of each flow
        try:
            self._is_file = self._path.is_file() or (
                not self._path.is_dir() and self._path.suffix in _FILE_ENDS
            )
            if self._is_file:
                os.close(self._open())
            else:
                self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._make_fault(error) from None

    def subscribe(self, flows: Iterable[str]) -> None:
        """Log flows that the receiver wants from now on, unless it wants them already."""
        self._log(set(flows) - self._wanted, "subscribe")

    def unsubscribe(self, flows: Iterable[str]) -> None:
        """Log flows that the receiver does not want any more."""
        self._log(set(flows), "unsubscribe")

    def want(self, flows: Iterable[str]) -> None:
        """Log the difference to these flows, which are all that the receiver wants from now on."""
        wanted = set(flows)
        self._log(self._wanted - wanted, "unsubscribe")
        self._log(wanted - self._wanted, "subscribe")

    def _log(self, flows: set[str], action: str) -> None:
        if not flows:
            return
        if action == "subscribe":
            self._wanted |= flows
        else:
            self._wanted -= flows
        # Later than the last line, also where the clock stepped back: the last action counts.
        self._micros = max(self._micros + 1, self._clock() // 1_000)
        ts = (_EPOCH + timedelta(microseconds=self._micros)).isoformat(timespec="microseconds")
        for flow in sorted(flows):
            self._unwritten.pop(flow, None)
            self._unwritten[flow] = {
                "ts": ts,
                "receiver": self._receiver,
                "flow": flow,
                "action": action,
            }
        lines = b"".join(self._encode(line) + b"\n" for line in self._unwritten.values())
        try:
            if self._is_file:
                self._append(lines)
            else:
                self._add_file(lines)
        except OSError as error:
            self._on_fault(self._make_fault(error))
        else:
            self._unwritten.clear()

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _append(self, lines: bytes) -> None:
        """Append lines, behind the end of one that a killed process may have left open."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # what others write at the moment is no torn line
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            if os.write(file, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _add_file(self, lines: bytes) -> None:
        """Put lines into the folder as a file; readers leave out hidden ones."""
        name = f"{self._micros:017d}-{uuid.uuid4().hex}.jsonl"
        hidden = self._path / f".{name}.tmp"
        try:
            hidden.write_bytes(lines)
            hidden.rename(self._path / name)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise

    def _make_fault(self, error: OSError) -> OutputError:
        return OutputError(
            error.strerror or str(error),
            path=str(self._path),
            remedy="make room or give access, or name another log of subscriptions",
        )
