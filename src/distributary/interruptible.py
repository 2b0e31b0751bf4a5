"""Answer Ctrl-C during work that Python cannot interrupt: compiled loops, and calls into Java.

Python handles signals in the main thread, and interrupts that one thread sends to another in that
one, between two of its own instructions. So the work runs on a thread of its own while the caller's
waits for it, a moment at a time: between two moments it can be interrupted, whichever thread it is.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from threading import Thread
from typing import TypeVar

__all__ = ["call_on_thread"]

T = TypeVar("T")

_MOMENT_S = 0.2


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
    caller's.
    """
    outcome = Future[T]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=(context or copy_context()).run, args=(run,), name=name, daemon=True)
    try:
        thread.start()
        while not outcome.done():  # a `join` that is interrupted takes the thread for ended
            with suppress(TimeoutError):
                outcome.result(_MOMENT_S)
        return outcome.result()
    except KeyboardInterrupt:
        on_interrupt(thread)
        raise
