"""Answer Ctrl-C while compiled loops run.

Python handles signals in the main thread, between two of its own steps, and a compiled loop is one
step, which may take seconds. So a search runs on another thread while the main one waits: waiting
can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Event, Thread, current_thread, main_thread
from typing import TypeVar

from distributary.planning.progress import Progress, Step

__all__ = ["SEARCH_THREAD", "call_interruptibly"]

SEARCH_THREAD = "distributary-search"

T = TypeVar("T")


class _AbandonedError(Exception):
    """Nobody waits for the result any more."""


def call_interruptibly(search: Callable[[Progress], T], progress: Progress) -> T:
    """Run a search that tells its progress; an interrupt ends the wait for it at once.

    The search itself then ends when it next tells its progress. On another thread than the main
    one, which no signal reaches, it is just called.
    """
    if current_thread() is not main_thread():
        return search(progress)
    abandoned, outcome = Event(), Future[T]()

    def tell(step: Step) -> None:
        if abandoned.is_set():
            raise _AbandonedError
        progress(step)

    def run() -> None:
        try:
            outcome.set_result(search(tell))
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=copy_context().run, args=(run,), name=SEARCH_THREAD, daemon=True)
    try:
        thread.start()
        return outcome.result()
    finally:
        abandoned.set()
