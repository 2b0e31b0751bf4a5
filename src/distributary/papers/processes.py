"""Run the cases of a figure in parallel, each in its own process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from threading import current_thread, main_thread
from typing import TypeVar

__all__ = ["run_apart"]

AT_ONCE = 2

C = TypeVar("C")
R = TypeVar("R")


def run_apart(run: Callable[[C], R], cases: Sequence[C]) -> Generator[tuple[C, R], None, None]:
    """Run every case, two at a time, and yield each with its result when it is done.

    When the iterator is closed, or left by an exception, the processes end at once.
    """
    others = set(active_children())
    # A new interpreter for each process: forking one that has threads is not safe.
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        try:
            with _defer_interrupts():
                running: dict[Future[R], C] = {pool.submit(run, case): case for case in cases}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            for process in set(active_children()) - others:
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, even while they import; this process handles it.

    A process inherits the signals that are blocked here. An interrupt in the meantime is raised at
    the end, because a process that has not received its work yet would print a traceback.
    """
    heard: list[int] = []
    is_main = current_thread() is main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if is_main:
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if heard:
        raise KeyboardInterrupt
