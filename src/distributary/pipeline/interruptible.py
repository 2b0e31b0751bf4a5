"""Answer Ctrl-C while Spark works.

An interrupt that meets a call into Java tears the connection, is printed with a traceback, and is
lost where it meets one that Python makes to collect garbage. So the work, Spark's start and end
included, is done on another thread, and the main one only waits, which can be interrupted. Spark's
jobs are then cancelled; the work fails with the next of them, puts everything back as it was, and
Spark is stopped.
"""

from __future__ import annotations

import ctypes
import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import RLock, Thread, current_thread, main_thread
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from distributary.pipeline.undisturbed import lock_of_work

__all__ = ["call_interruptibly"]

T = TypeVar("T")

_GRACE_S = 1.0
_PAUSE_S = 0.2
_LONGEST_S = 30.0


def call_interruptibly(work: Callable[[], T]) -> T:
    """Do work that starts and uses Spark; an interrupt cancels its jobs and waits for its end.

    On another thread than the main one, which no signal reaches, the work is just done.
    """
    if current_thread() is not main_thread():
        return work()
    outcome, lock = Future[T](), RLock()

    def run() -> None:
        lock_of_work.set(lock)
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    worker = Thread(target=copy_context().run, args=(run,), name="distributary-spark", daemon=True)
    try:
        worker.start()
        return outcome.result()
    except KeyboardInterrupt:
        with _undisturbed():
            _end(worker, lock)
        raise


def _end(worker: Thread, lock: Any) -> None:
    """Have the work fail with its next job, or where it computes for itself, and wait for it."""
    _cancel_jobs()
    worker.join(_GRACE_S)
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


def _interrupt(thread: int) -> None:
    interrupt = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), interrupt)


def _cancel_jobs() -> None:
    """Cancel what Spark does at the moment, if it runs: jobs, and streams that wait for files."""
    context = SparkContext._active_spark_context
    with suppress(Py4JError, PySparkException, OSError, AttributeError):
        if context is not None:
            context.cancelAllJobs()
            for query in SparkSession(context).streams.active:
                query.stop()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No second interrupt, and nothing from py4j about the calls that the first one ends."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        signal.signal(signal.SIGINT, handler)
