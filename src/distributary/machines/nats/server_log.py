"""Who was refused by an embedded NATS server: its log says so, and nothing else does."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["RefusedLogins"]

_REFUSED = re.compile(rb'authentication error(?: - User "(.*)")?')
_MOST = 1 << 16  # bytes of the log that are read at once; of more, the last ones


class RefusedLogins:
    """Reads the log of a server as it grows, also that of its next process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file, self._offset = 0, 0

    def read(self) -> list[str]:
        """The users that were refused since the last call; "" for one who named none."""
        with suppress(OSError), self._log.open("rb") as log:
            now = self._log.stat()
            if now.st_ino != self._file or now.st_size < self._offset:
                self._file, self._offset = now.st_ino, 0
            self._offset = max(self._offset, now.st_size - _MOST)
            log.seek(self._offset)
            lines = log.read(_MOST)
            whole = lines.rpartition(b"\n")[0]
            self._offset += len(whole)
            found = _REFUSED.finditer(whole)
            return [_unquote((each[1] or b"").decode(errors="replace")) for each in found]
        return []


def _unquote(name: str) -> str:
    """A name as it was given; NATS 2.15 escapes what JSON escapes, too."""
    try:
        return str(json.loads(f'"{name}"'))
    except ValueError:
        return name
