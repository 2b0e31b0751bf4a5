"""The dashboard as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from distributary.dashboard.actions import Actions
from distributary.dashboard.answers import Answers
from distributary.dashboard.assets import Assets
from distributary.dashboard.events import Events
from distributary.dashboard.feed import Feed
from distributary.dashboard.guard import HostRule
from distributary.dashboard.looks import Look
from distributary.dashboard.pages import PAGES, Page, PageShells
from distributary.dashboard.recent import RecentAnswers
from distributary.dashboard.settings import DashboardSettings
from distributary.dashboard.shield import Shield
from distributary.dashboard.sources import ControlSource

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

__all__ = ["make_app"]


def make_app(
    source: ControlSource,
    feed: Feed,
    settings: DashboardSettings,
    *,
    topics: Sequence[Look] = (),
    brokers: Sequence[Look] = (),
) -> ASGIApp:
    """Make the application; somebody else runs `feed`, which asks the same `source`."""
    assets = Assets()
    shells = PageShells(assets)
    recent = RecentAnswers(keep_for=settings.every)
    answers = Answers(source, feed, recent, topics, brokers)
    actions = Actions(source, feed, recent, settings.token, settings.port)
    events = Events(feed, settings.most_browsers)
    app = Starlette(
        routes=[
            *(Route(page.path, _serve_page(shells, page)) for page in PAGES),
            Route("/static/{digest}/{name}", assets.get),
            Route("/favicon.ico", _lead_to(f"/static/{assets.digest}/icon.svg")),
            Route("/events", events.stream),
            *_list_answers(answers),
            *_list_actions(actions),
        ]
    )
    return Shield(app, HostRule((settings.host, *settings.names)))


def _list_answers(answers: Answers) -> list[Route]:
    return [
        Route("/api/history", answers.history),
        Route("/api/changes", answers.changes),
        Route("/api/plan", answers.plan),
        Route("/api/flow", answers.flow),
        Route("/api/receiver", answers.receiver),
        Route("/api/receivers", answers.receivers),
        Route("/api/batches", answers.batches),
        Route("/api/topics", answers.topics),
        Route("/api/brokers", answers.brokers),
    ]


def _list_actions(actions: Actions) -> list[Route]:
    changes = {
        "sign-in": actions.sign_in,
        "sign-out": actions.sign_out,
        "approve": actions.approve,
        "reject": actions.reject,
        "roll-back": actions.roll_back,
        "pin": actions.pin,
        "mode": actions.set_mode,
    }
    return [
        Route("/api/session", actions.session),
        *(Route(f"/api/{name}", act, methods=["POST"]) for name, act in changes.items()),
    ]


def _serve_page(shells: PageShells, page: Page) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        del request
        return HTMLResponse(shells.render(page))

    return serve


def _lead_to(path: str) -> Callable[[Request], Response]:
    def lead(request: Request) -> Response:
        del request
        return RedirectResponse(path)

    return lead
