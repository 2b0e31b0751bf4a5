"""A small file system for a test that fills it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_MOUNT = 'mount -t tmpfs -o size="$2" tmpfs "$1"; exec "$3" -c "$4" "$1"'


def on_small_disk(work: Callable[[Path], Awaitable[None]], folder: Path, size: str = "8m") -> None:
    """Run a coroutine function of a test module in a process whose `folder` is small."""
    code = (
        "import asyncio, sys; from pathlib import Path; "
        f"from {work.__module__} import {work.__name__} as work; "
        "asyncio.run(work(Path(sys.argv[1])))"
    )
    words = ["sh", "-ec", _MOUNT, "sh", str(folder), size, sys.executable, code]
    ran = subprocess.run(
        ["unshare", "-rm", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr


def fill(folder: Path) -> Callable[[], None]:
    """Fill the file system of a folder; what is returned frees it again."""
    filler = folder / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4_096))
    return filler.unlink
