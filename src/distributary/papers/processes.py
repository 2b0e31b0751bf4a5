"""Runs of a figure side by side, each in a process of its own."""

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
    """Run every case, two at a time, and yield each with its result as it ends.

    Close the iterator, or leave it by an exception, and the processes end at once.
    """
    others = set(active_children())
    # A new interpreter for each process: forking one that has threads is not safe.
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        try:
            with _interrupts_held_back():
                running: dict[Future[R], C] = {pool.submit(run, case): case for case in cases}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            for process in set(active_children()) - others:
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, not even while they import; it is ours to answer.

    A process inherits the signals that are blocked here. An interrupt that comes meanwhile is
    answered at the end: a process that has not been told its work yet would complain.
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
