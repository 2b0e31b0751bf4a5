"""What pages ask for besides the stream of events. All of it is read-only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import JSONResponse, Response

from distributary.control.errors import ControlRefusedError
from distributary.control.status import HistoryPoint
from distributary.dashboard.assets import respond
from distributary.dashboard.feed import AWAY_ERRORS, Feed, describe_absence
from distributary.dashboard.glance import ORDERS, list_receivers
from distributary.dashboard.looks import Look, look_at_all
from distributary.dashboard.recent import RecentAnswers
from distributary.dashboard.sources import ControlSource

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Answers", "refuse"]

_MOST_CHANGES = 500
_LONGEST = 1_000  # characters of a name that is looked for


class Answers:
    """Answers from the control plane and other services, each asked at most once a second."""

    def __init__(
        self,
        source: ControlSource,
        feed: Feed,
        recent: RecentAnswers,
        topics: Sequence[Look],
        brokers: Sequence[Look],
    ) -> None:
        self._source = source
        self._feed = feed
        self._recent = recent
        self._topics = topics
        self._brokers = brokers

    async def history(self, request: Request) -> Response:
        """What was measured and predicted in the last minutes, as columns."""

        async def ask() -> Any:
            return _turn_to_columns(await self._source.history(0.0))

        return await self._answer(request, "history", ask)

    async def changes(self, request: Request) -> Response:
        """The last changes, newest first."""
        return await self._answer(request, "changes", lambda: self._source.changes(_MOST_CHANGES))

    async def plan(self, request: Request) -> Response:
        """The plan in force."""
        return await self._answer(request, "plan", self._source.plan_view)

    async def flow(self, request: Request) -> Response:
        """Where a flow travels."""
        name = request.query_params.get("name", "")[:_LONGEST]
        return await self._answer(request, ("flow", name), lambda: self._source.flow(name))

    async def receiver(self, request: Request) -> Response:
        """One receiver, with its last minutes."""
        name = request.query_params.get("name", "")[:_LONGEST]
        return await self._answer(request, ("receiver", name), lambda: self._source.receiver(name))

    async def receivers(self, request: Request) -> Response:
        """The receivers that are looked for, from the newest state."""
        order = request.query_params.get("order", "worst")
        if order not in ORDERS:
            return refuse(f"{order!r} is not an order; use one of {', '.join(ORDERS)}", 400)
        if not self._feed.watchers:  # what is known may be old
            await self._recent.get("look", self._feed.look, ())
        latest = self._feed.latest
        if latest.status is None:
            return refuse(latest.away.says if latest.away else "nothing is known yet", 503)
        find = request.query_params.get("find", "")[:_LONGEST]
        found = list_receivers(latest.status.receivers, find=find, order=order)
        return respond(request, msgspec.json.encode(found))

    async def batches(self, request: Request) -> Response:
        """The batches of the stream since somebody began to watch."""
        return respond(request, msgspec.json.encode(list(self._feed.batches)))

    async def topics(self, request: Request) -> Response:
        """The topic services whose addresses were given."""
        return await self._answer(request, "topics", lambda: look_at_all(self._topics))

    async def brokers(self, request: Request) -> Response:
        """The content brokers whose addresses were given."""
        return await self._answer(request, "brokers", lambda: look_at_all(self._brokers))

    async def _answer(
        self, request: Request, key: object, ask: Callable[[], Awaitable[Any]]
    ) -> Response:
        try:
            found = await self._recent.get(key, ask, AWAY_ERRORS)
        except ControlRefusedError as error:
            return refuse(error.says, 404)
        except AWAY_ERRORS as error:
            return refuse(describe_absence(error), 503)
        return respond(request, msgspec.json.encode(found))


def refuse(says: str, status: int) -> JSONResponse:
    """Answer why something is not so, in one sentence."""
    return JSONResponse({"says": says}, status)


def _turn_to_columns(points: Sequence[HistoryPoint]) -> dict[str, list[float]]:
    """A third of the bytes of the same points as objects."""
    return {
        "at": [round(each.at, 1) for each in points],
        "version": [each.version for each in points],
        "wanted": [_round(each.measured.wanted) for each in points],
        "dropped_first": [_round(each.measured.dropped_first) for each in points],
        "dropped_second": [_round(each.measured.dropped_second) for each in points],
        "predicted": [
            _round(each.predicted.dropped_first + each.predicted.dropped_second) for each in points
        ],
    }


def _round(value: float) -> float:
    return float(f"{value:.4g}")
