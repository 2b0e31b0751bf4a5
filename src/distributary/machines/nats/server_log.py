"""What only the log of an embedded NATS server says: who was refused, and which writes failed."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["FailedWrites", "RefusedLogins"]

_REFUSED = re.compile(rb'authentication error(?: - User "(.*)")?')
# A stream that has met such an error writes nothing more until the server is started again.
_FAILED = re.compile(rb"critical write error|JetStream failed to store a msg.*: write ", re.I)
_MOST = 1 << 16  # bytes of the log that are read at once; of more, the last ones


class RefusedLogins:
    """Reads from the log of a server as it grows, also that of its next process."""

    def __init__(self, log: Path) -> None:
        self._log = _GrowingLog(log)

    def read(self) -> list[str]:
        """The users that were refused since the last call; "" for one who named none."""
        found = _REFUSED.finditer(self._log.read())
        return [_unquote((each[1] or b"").decode(errors="replace")) for each in found]


class FailedWrites:
    """Reads from the log of a server as it grows, also that of its next process."""

    def __init__(self, log: Path) -> None:
        self._log = _GrowingLog(log)

    def read(self) -> bool:
        """Whether the server failed to write a stream since the last call, such as to a full disk.

        The log may be on that disk, and lack lines too; each later attempt to store adds one.
        """
        return _FAILED.search(self._log.read()) is not None


def _unquote(name: str) -> str:
    """A name as it was given; NATS 2.15 escapes what JSON escapes, too."""
    try:
        return str(json.loads(f'"{name}"'))
    except ValueError:
        return name


class _GrowingLog:
    """A log that is read as it grows; a file that replaces it is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._offset = 0, 0

    def read(self) -> bytes:
        """The whole lines that were added since the last call."""
        with suppress(OSError), self._path.open("rb") as log:
            now = self._path.stat()
            if now.st_ino != self._file or now.st_size < self._offset:
                self._file, self._offset = now.st_ino, 0
            self._offset = max(self._offset, now.st_size - _MOST)
            log.seek(self._offset)
            whole = log.read(_MOST).rpartition(b"\n")[0]
            self._offset += len(whole)
            return whole
        return b""
