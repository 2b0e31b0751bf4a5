"""Seeded schedules that fail, made as short as they can be and still fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_STEPS = 400


def checked(run: Callable[..., Any], seed: int, *words: Any) -> Any:
    """Run a schedule; if it fails, say with how few of its first steps it fails already."""
    try:
        return run(seed, *words)
    except AssertionError as error:
        first = error
    for steps in range(1, MOST_STEPS):
        try:
            run(seed, *words, steps=steps)
        except AssertionError as error:
            raise AssertionError(f"{error}\n(all its steps: {first})") from None
    raise first
