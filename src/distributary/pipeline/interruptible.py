"""Answer Ctrl-C while Spark works.

An interrupt that meets a call into Java breaks the connection and prints a traceback, and it is
lost if it meets a call that Python makes to collect garbage. So all work with Spark, including its
start and stop, runs on another thread. On an interrupt Spark's jobs are cancelled; the work fails
with its next job, removes what it began, and stops Spark.
"""

from __future__ import annotations

import ctypes
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import RLock, Thread
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from distributary.interruptible import call_on_thread
from distributary.pipeline.undisturbed import lock_of_work

__all__ = ["call_interruptibly"]

T = TypeVar("T")

_GRACE_S = 1.0
_PAUSE_S = 0.2
_LONGEST_S = 30.0


def call_interruptibly(work: Callable[[], T]) -> T:
    """Run work that starts and uses Spark; an interrupt cancels its jobs and waits for its end."""
    lock, context = RLock(), copy_context()
    context.run(lock_of_work.set, lock)

    def end(thread: Thread) -> None:
        with _ignore_interrupts():
            _end(thread, lock)

    return call_on_thread(work, "distributary-spark", context=context, on_interrupt=end)


def _end(worker: Thread, lock: Any) -> None:
    """Wait until the work has failed: with its next job, or interrupted in its own computation."""
    for _ in range(max(1, round(_GRACE_S / _PAUSE_S))):  # it may start further jobs
        _cancel_jobs()
        worker.join(_PAUSE_S)
    patience, interrupted = int(_LONGEST_S / _PAUSE_S), False
    while worker.is_alive() and patience:
        if lock.acquire(blocking=False):
            try:
                if not interrupted and worker.ident is not None:
                    _interrupt(worker.ident)
                interrupted = True
            finally:
                lock.release()
            patience -= 1
        _cancel_jobs()
        worker.join(_PAUSE_S)


class _Interrupt(KeyboardInterrupt):
    """Not `KeyboardInterrupt` itself: one that meets `exec` of a text, as when a dataclass is made,
    makes `python -m` end by the signal instead of its exit status, though it is handled later.
    """


def _interrupt(thread: int) -> None:
    interrupt = ctypes.py_object(_Interrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), interrupt)


def _cancel_jobs() -> None:
    """Cancel Spark's current jobs and streaming queries, if Spark runs."""
    context = SparkContext._active_spark_context
    with suppress(Py4JError, PySparkException, OSError, AttributeError):
        if context is not None:
            context.cancelAllJobs()
            for query in SparkSession(context).streams.active:
                query.stop()


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore further interrupts, and silence py4j about the calls that the first one breaks."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        signal.signal(signal.SIGINT, handler)
