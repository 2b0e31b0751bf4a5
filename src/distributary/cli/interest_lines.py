"""Read lines on stdin that change what a running receiver wants: `+NAME` and `-NAME`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["InterestLine", "can_read_stdin", "read_interest_lines"]

_CHUNK = 1 << 16


class InterestLine(NamedTuple):
    """A line of stdin: subscribe (True), unsubscribe (False), or not understood (None)."""

    row: int
    text: str
    wanted: bool | None

    @property
    def flow(self) -> str:
        """The flow's name."""
        return self.text[1:]


def can_read_stdin() -> bool:
    """Whether stdin may be read: a background process that reads its terminal is stopped."""
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def read_interest_lines(descriptor: int = 0) -> Iterator[list[InterestLine]]:
    """Yield the lines of a file descriptor, as many at a time as are available."""
    row, rest = 0, b""
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:  # such as a closed terminal: the interest stays as it is
            return
        *lines, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
        found = [_parse_line(row + at, line) for at, line in enumerate(lines, 1)]
        row += len(lines)
        yield [line for line in found if line is not None]
        if not chunk:
            return


def _parse_line(row: int, line: bytes) -> InterestLine | None:
    text = line.removesuffix(b"\r").decode(errors="replace")
    if not text.strip():
        return None
    signs = {"+": True, "-": False}
    return InterestLine(row, text, signs.get(text[0]) if len(text) > 1 else None)
