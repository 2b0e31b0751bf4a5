"""Compile the planner's inner loops while a stream waits for its first batch.

On a machine where they were never compiled that takes some 20 seconds, which otherwise the first
changes of the plan take longer. It plans for a demand of its own and leaves nothing but compiled
code. Whoever plans waits for its end first, so no search loses time to it and no plan differs.
"""

from __future__ import annotations

import math
from contextlib import suppress
from threading import Event, Thread

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distributary.model import Constraints
from distributary.pipeline.following import PlanFollower
from distributary.pipeline.live_demand import LiveDemand
from distributary.planning import Request, has_terms

__all__ = ["PlannerWarmUp", "warm_up"]

_WANTED = {"ann": "abc", "bob": "bcd", "cyd": "cda", "dan": "dab"}
_CHANGES = (
    [(receiver, flow) for receiver, flows in _WANTED.items() for flow in flows],
    [("eva", "a"), ("eva", "e")],
    [("ann", "e")],
)


class PlannerWarmUp:
    """Compiles on a thread of its own from `start` on."""

    def __init__(self, request: Request) -> None:
        self._request, self._ended = request, Event()
        self._thread = Thread(target=self._work, name="distributary-warm-up", daemon=True)

    def start(self) -> None:
        """Begin to compile."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until everything is compiled."""
        self._thread.join()

    def end(self) -> None:
        """Begin nothing new, and wait until what is being compiled is done."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        # Whatever goes wrong here goes wrong again when the stream plans, which then says it.
        with suppress(Exception):
            warm_up(self._request, self._ended)


def warm_up(request: Request, ended: Event | None = None) -> None:
    """Follow a small demand as a stream does: a plan, newcomers and a drift, with such a request.

    Stops before its next step when `ended` is set.
    """
    demand = LiveDemand()
    demand.load([], None, 1.0)
    follower = PlanFollower(_shrink(request), demand, None, drift=0.0, max_moves=2)
    reference = None
    for number, change in enumerate(_CHANGES):
        if ended is not None and ended.is_set():
            return
        rows, counts = _list_actions(change, number), _count_messages(number)
        follower.follow(demand.apply(rows, counts, 1.0, _lose_ties), reference)
        reference = 0.001  # below any excess, so that flows are moved


def _shrink(request: Request) -> Request:
    """A request of the same kind for the small demand.

    Constraints and weights name receivers and flows, so the small demand has its own.
    """
    terms = request.terms
    return Request(
        groups=2,
        sessions=3,
        prices=request.prices,
        channel=request.channel,
        objective=request.search.objective,
        constraints=Constraints(apart=(frozenset("ad"),)) if has_terms(request) else Constraints(),
        unicast=terms.unicast,
        receiver_weights={"ann": 2.0} if terms.receiver_weights else {},
        budget_s=0.001,
        patience=math.inf,
    )


def _list_actions(pairs: list[tuple[str, str]], number: int) -> pa.Table:
    receivers, flows = zip(*pairs, strict=True)
    ts, on = [number] * len(pairs), [True] * len(pairs)
    return pa.table({"receiver": receivers, "flow": flows, "ts": ts, "on": on})


def _count_messages(number: int) -> pa.Table:
    return pa.table({"flow": list("abcde"), "messages": [1, 20 * number + 1, 3, 90, 2]})


def _lose_ties(rows: pa.Table) -> npt.NDArray[np.bool_]:
    return np.zeros(rows.num_rows, np.bool_)
