"""What every answer carries and every request must keep to, whatever it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from distributary.dashboard.guard import HostRule

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["POLICY", "Shield"]

# Scripts, styles, data: everything comes from this server, and nothing is inline. Plotly would add
# styles to the page; ours has its few rules and the class that keeps Plotly from adding them.
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READS = ("GET", "HEAD")


class Shield:
    """An ASGI middleware: refuses foreign names and foreign pages, and sets security headers."""

    def __init__(self, app: ASGIApp, hosts: HostRule) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refuse(scope["method"], Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refuse(self, method: str, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        if not self._hosts.allows(host):
            says = (
                f"{host!r} is not a name of this server; open it by its address, "
                "or give the name with --name"
            )
            return JSONResponse({"says": says}, 421)
        if method in _READS or _is_of_this_origin(headers, host):
            return None
        return JSONResponse({"says": "this request comes from another page; use ours"}, 403)


def _is_of_this_origin(headers: Headers, host: str) -> bool:
    """Browsers name the origin of every request that changes something."""
    origin = urlsplit(headers.get("origin", ""))
    site = headers.get("sec-fetch-site", "same-origin")
    return origin.netloc == host and site == "same-origin"
