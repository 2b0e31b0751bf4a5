"""What a part of the system says, in a file of its own that does not grow without end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["PartLog"]

_MOST_BYTES = 10_000_000  # then the file becomes the former one, which is dropped
_LAST_LINES = 20
_HAS_TIME = '{"time":'  # how a line that is logged as JSON begins


class PartLog:
    """Appends lines to `PATH`, each with its time unless it has one; `PATH.1` has what came before.

    A file that cannot be written, such as on a full disk, stops nobody: `on_trouble` is told once,
    and the lines are tried again, one by one. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        on_trouble: Callable[[str], None],
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.path = path
        self._clock, self._on_trouble, self._most_bytes = clock, on_trouble, most_bytes
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._is_in_trouble = False

    def begin(self) -> None:
        """Note that the part starts: what it said before is no longer its last words."""
        self._last.clear()

    def write(self, line: str) -> None:
        """Append a line."""
        self._last.append(line)
        entry = line if line.startswith(_HAS_TIME) else f"{self._say_when()} {line}"
        try:
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{entry}\n")
                is_full = file.tell() > self._most_bytes
            if is_full:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        except OSError as error:
            if not self._is_in_trouble:
                self._is_in_trouble = True
                reason = (error.strerror or str(error)).lower()
                self._on_trouble(f"{self.path}: cannot be written ({reason}); free some space")
        else:
            self._is_in_trouble = False

    def _say_when(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")

    @property
    def last_words(self) -> str:
        """What it said last, if possible of what went wrong."""
        errors = [line for line in self._last if "error:" in line]
        said = errors[-1] if errors else next(reversed(self._last), "")
        return said.rpartition("error:")[2].strip()
