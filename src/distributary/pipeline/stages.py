"""Spark's counts of its stages, from the store behind its web pages (which need not be served)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from distributary.pipeline.progress import StageCount

__all__ = ["SparkStages"]

_SETTLED = ("COMPLETE", "FAILED")
_FLUSH_MS = 2_000


class SparkStages:
    """Reads the stages that Spark submits from now on.

    Each call into Java takes a while, so a stage that has ended is read once.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext._jsc.sc()
        self._settled: set[tuple[int, int]] = set()
        self._first = 0  # stages with a lower number have ended
        newest = self._list_stages()
        if newest.size():
            self._first = newest.apply(0).stageId() + 1

    def read(self, *, complete: bool = False) -> list[StageCount]:
        """The counts that may have changed since the last call.

        Spark's events reach the store on a thread of its own; `complete` waits for it.
        """
        if complete:
            self._context.listenerBus().waitUntilEmpty(_FLUSH_MS)
        listed, found, at_work = self._list_stages(), [], False
        for index in range(listed.size()):  # the newest first
            stage = listed.apply(index)
            number, attempt = stage.stageId(), stage.attemptId()
            if number < self._first:
                break
            if (number, attempt) in self._settled:
                continue
            status = stage.status().toString()
            if status in (*_SETTLED, "ACTIVE"):
                found.append(_count(stage, number, attempt))
            if status in ("ACTIVE", "PENDING"):
                at_work = True
            else:
                self._settled.add((number, attempt))
        if self._settled and not at_work:  # what comes now has higher numbers
            self._first = max(number for number, _ in self._settled) + 1
            self._settled.clear()
        return found

    def _list_stages(self) -> Any:
        store = self._context.statusStore()
        quantiles = getattr(store, "stageList$default$4")()
        return store.stageList(None, False, False, quantiles, None)


def _count(stage: Any, number: int, attempt: int) -> StageCount:
    described, submitted = stage.description(), stage.submissionTime()
    return StageCount(
        stage=number,
        attempt=attempt,
        name=described.get() if described.isDefined() else "",
        submitted_ms=submitted.get().getTime() if submitted.isDefined() else 0,
        done=stage.numCompleteTasks(),
        total=stage.numTasks(),
        rows=stage.inputRecords(),
    )
