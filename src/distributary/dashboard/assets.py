"""Scripts and styles of the pages, and Plotly's bundle from its wheel.

Their addresses have a digest of their content, so that browsers may keep them for good.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Assets", "respond"]

PLOTLY = "plotly.min.js"
_FOR_GOOD = "public, max-age=31536000, immutable"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_WORTH_COMPRESSING = 1_400  # bytes: less is one packet anyway


class Assets:
    """All static files, read once."""

    def __init__(self) -> None:
        folder = files("distributary.dashboard") / "static"
        self._contents = {file.name: file.read_bytes() for file in folder.iterdir()}
        self._compressed: dict[str, bytes] = {}
        self._compressing = asyncio.Lock()

    @cached_property
    def digest(self) -> str:
        """A digest of all files, and of Plotly's version: part of every address."""
        from plotly import __version__

        found = sha256(__version__.encode())
        for name, content in sorted(self._contents.items()):
            found.update(name.encode() + b"\0" + content + b"\0")
        return found.hexdigest()[:12]

    @cached_property
    def style_ids(self) -> tuple[str, ...]:
        """Ids of the styles for maps that Plotly adds to a page unless it has an element of it.

        The security policy would refuse them, and the browser's console would say so.
        """
        found = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', self._read(PLOTLY))
        return tuple(sorted({each.decode() for each in found}))

    async def get(self, request: Request) -> Response:
        """Serve a file; only under the digest of now may it be kept."""
        name = request.path_params["name"]
        if name != PLOTLY and name not in self._contents:
            return Response("there is no such file", 404, media_type="text/plain")
        kept = request.path_params["digest"] == self.digest
        headers = {"Cache-Control": _FOR_GOOD if kept else "no-store", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            content = await self._compress(name)
        else:
            content = self._read(name)
        kind = _KINDS[name[name.rfind(".") :]]
        return Response(content, headers=headers, media_type=kind)

    def _read(self, name: str) -> bytes:
        if name == PLOTLY:
            folder = files("plotly") / "package_data"
            return (folder / PLOTLY).read_bytes()
        return self._contents[name]

    async def _compress(self, name: str) -> bytes:
        """Compress once; Plotly takes a good part of a second, beside the pages."""
        async with self._compressing:
            if name not in self._compressed:
                content = self._read(name)
                self._compressed[name] = await asyncio.to_thread(gzip.compress, content, 6)
        return self._compressed[name]


def respond(request: Request, content: bytes) -> Response:
    """Answer with JSON, compressed if that is worth it. For answers without secrets only."""
    headers = {"Vary": "Accept-Encoding"}
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    if accepts and len(content) > _WORTH_COMPRESSING:
        content = gzip.compress(content, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(content, headers=headers, media_type="application/json")
