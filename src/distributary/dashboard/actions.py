"""What an operator may do: sign in with the token, then approve, reject, roll back, pin, set."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from starlette.responses import JSONResponse, Response

from distributary.control.errors import ControlDeniedError, ControlRefusedError
from distributary.control.requests import Done
from distributary.dashboard.answers import refuse
from distributary.dashboard.feed import AWAY_ERRORS, Feed, describe_absence
from distributary.dashboard.guard import LONGEST_NAME, Attempts, Operator, Sessions, is_token
from distributary.dashboard.recent import RecentAnswers
from distributary.dashboard.sources import ControlSource

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Actions"]

_LARGEST = 16_384  # bytes of a request
_CSRF = "x-csrf-token"


class _SignIn(msgspec.Struct):
    token: str
    name: str


class _Approve(msgspec.Struct):
    number: int


class _Reject(msgspec.Struct):
    number: int
    why: str = ""


class _Rollback(msgspec.Struct):
    version: int | None


class _Pin(msgspec.Struct):
    flow: str
    group: int | None


class _Mode(msgspec.Struct):
    mode: Literal["auto", "manual"]


_Asked = TypeVar("_Asked")


class Actions:
    """Signs operators in, checks each change, and hands it to the control plane."""

    def __init__(
        self, source: ControlSource, feed: Feed, recent: RecentAnswers, token: str, port: int
    ) -> None:
        self._source = source
        self._feed = feed
        self._recent = recent
        self._token = token
        # Cookies do not know ports: two dashboards on a machine need names of their own.
        self._cookie = f"distributary_{port}"
        self._sessions = Sessions()
        self._attempts = Attempts()

    # --- sessions ---------------------------------------------------------------------------------

    async def session(self, request: Request) -> Response:
        """Say who is signed in, with the token that their changes must carry."""
        return self._describe(self._find_operator(request))

    async def sign_in(self, request: Request) -> Response:
        """Begin a session for whoever shows the token."""
        if not self._token:
            return refuse("these pages are read-only; start them with --token-file to act", 403)
        address = request.client.host if request.client else ""
        refusal = self._refuse_attempt(address)
        if refusal is not None:
            return refusal
        asked = await _read(request, _SignIn)
        if isinstance(asked, Response):
            return asked
        refusal = self._refuse_attempt(address)  # others may have failed while this one was read
        if refusal is not None:
            return refusal
        name = " ".join(asked.name.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            return refuse(f"give a name of up to {LONGEST_NAME} characters, for the log", 400)
        if not is_token(asked.token, self._token):
            self._attempts.note_failure(address, time.monotonic())
            return refuse("this is not the operator's token; check the token's file", 403)
        operator, cookie = self._sessions.begin(name, time.time())
        answer = self._describe(operator)
        answer.set_cookie(
            self._cookie,
            cookie,
            path="/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def _refuse_attempt(self, address: str) -> Response | None:
        """Refuse whoever has shown too many wrong tokens lately."""
        wait = self._attempts.wait_s(address, time.monotonic())
        if not wait:
            return None
        says = f"too many wrong tokens; try again in {wait:.0f} seconds"
        return JSONResponse({"says": says}, 429, {"Retry-After": f"{wait + 1:.0f}"})

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        operator = self._check(request)
        if isinstance(operator, Response):
            return operator
        self._sessions.end(operator)
        answer = self._describe(None)
        answer.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict")
        return answer

    # --- changes ----------------------------------------------------------------------------------

    async def approve(self, request: Request) -> Response:
        """Put a proposal in force."""
        return await self._change(
            request, _Approve, lambda asked, by: self._source.approve(asked.number, by)
        )

    async def reject(self, request: Request) -> Response:
        """Drop a proposal."""
        return await self._change(
            request, _Reject, lambda asked, by: self._source.reject(asked.number, asked.why, by)
        )

    async def roll_back(self, request: Request) -> Response:
        """Go back to an earlier version."""
        return await self._change(
            request, _Rollback, lambda asked, by: self._source.rollback(asked.version, by)
        )

    async def pin(self, request: Request) -> Response:
        """Keep a flow in a group, or let it go."""
        return await self._change(
            request, _Pin, lambda asked, by: self._source.pin(asked.flow, asked.group, by)
        )

    async def set_mode(self, request: Request) -> Response:
        """Let proposals take effect by themselves, or wait."""
        return await self._change(
            request, _Mode, lambda asked, by: self._source.set_mode(asked.mode, by)
        )

    async def _change(
        self,
        request: Request,
        kind: type[_Asked],
        act: Callable[[_Asked, str], Awaitable[Done]],
    ) -> Response:
        operator = self._check(request)
        if isinstance(operator, Response):
            return operator
        asked = await _read(request, kind)
        if isinstance(asked, Response):
            return asked
        try:
            done = await act(asked, operator.name)
        except ControlRefusedError as error:
            return refuse(error.says, 409)
        except ControlDeniedError as error:
            return refuse(str(error), 403)
        except AWAY_ERRORS as error:
            return refuse(describe_absence(error), 503)
        self._recent.forget()
        await self._feed.look()
        return JSONResponse({"says": done.says, "version": done.version})

    def _check(self, request: Request) -> Operator | Response:
        operator = self._find_operator(request)
        if operator is None:
            return refuse("sign in with the operator's token first", 401)
        if not self._sessions.check_csrf_token(operator, request.headers.get(_CSRF, "")):
            return refuse("this request does not come from our page; load the page again", 403)
        return operator

    def _find_operator(self, request: Request) -> Operator | None:
        return self._sessions.find(request.cookies.get(self._cookie, ""), time.time())

    def _describe(self, operator: Operator | None) -> JSONResponse:
        found: dict[str, Any] = {"operator": None, "csrf": "", "can_sign_in": bool(self._token)}
        if operator is not None:
            found["operator"] = operator.name
            found["csrf"] = self._sessions.make_csrf_token(operator)
        return JSONResponse(found)


async def _read(request: Request, kind: type[_Asked]) -> _Asked | Response:
    """Read a small JSON body. Its type makes browsers ask before another page may send it."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return refuse("send JSON, as application/json", 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST:
            return refuse(f"the request has more than {_LARGEST:,} bytes; send less", 413)
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        return refuse(f"the request cannot be used: {error}; load the page again", 400)
