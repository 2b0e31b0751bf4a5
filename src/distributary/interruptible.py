"""Answer Ctrl-C during work that Python cannot interrupt: compiled loops, and calls into Java.

Python handles signals in the main thread, between two of its own instructions. So the work runs on
another thread while the main one waits for it: waiting can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from threading import Thread, current_thread, main_thread
from typing import TypeVar

__all__ = ["call_on_thread"]

T = TypeVar("T")


def call_on_thread(
    work: Callable[[], T],
    name: str,
    *,
    context: Context | None = None,
    on_interrupt: Callable[[Thread], None] = lambda thread: None,
) -> T:
    """Run the work on a thread of this name, and return or raise what it does.

    An interrupt ends the wait; `on_interrupt` gets the thread, which still runs, before the
    `KeyboardInterrupt` goes on. The work sees the context variables of `context`, by default the
    caller's. Signals reach the main thread only, so on any other one the work is called directly.
    """
    if current_thread() is not main_thread():
        return work()
    outcome = Future[T]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=(context or copy_context()).run, args=(run,), name=name, daemon=True)
    try:
        thread.start()
        return outcome.result()
    except KeyboardInterrupt:
        on_interrupt(thread)
        raise
