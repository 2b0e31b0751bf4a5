"""Searches that an interrupt ends: the wait at once, the search at its next progress report."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

from distributary.interruptible import call_on_thread
from distributary.planning.progress import Progress, Step

__all__ = ["SEARCH_THREAD", "call_interruptibly"]

SEARCH_THREAD = "distributary-search"

T = TypeVar("T")


class _AbandonedError(Exception):
    """Nobody is waiting for the result any more."""


def call_interruptibly(search: Callable[[Progress], T], progress: Progress) -> T:
    """Run a search that reports its progress; an interrupt ends the wait for it at once.

    The search itself then ends when it next reports progress.
    """
    abandoned = Event()

    def report(step: Step) -> None:
        if abandoned.is_set():
            raise _AbandonedError
        progress(step)

    try:
        return call_on_thread(lambda: search(report), SEARCH_THREAD)
    finally:
        abandoned.set()
