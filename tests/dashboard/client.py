"""A client of the pages that is no browser: it sends what a test says, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from tests.dashboard.served import TOKEN

__all__ = ["Answer", "Client", "read_events"]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def says(self) -> str:
        return str(self.json["says"])


class Client:
    """Keeps its cookie and the token against forged requests once it is signed in."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.host = urlsplit(address).netloc
        self.cookie = ""
        self.csrf = ""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._send("GET", path, None, headers or {})

    def post(
        self, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """Send what a page sends, but for the headers given; None leaves one out."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: dict[str, str | None] = {
            "Content-Type": "application/json",
            "Origin": self.address,
            "X-CSRF-Token": self.csrf,
            **(headers or {}),
        }
        return self._send("POST", path, content, sent)

    def sign_in(self, name: str = "ann", token: str = TOKEN) -> Answer:
        answer = self.post("/api/sign-in", {"token": token, "name": name})
        if answer.status == 200:
            self.csrf = answer.json["csrf"]
            self.cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        return answer

    def _send(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str | None]
    ) -> Answer:
        with self._open(method, path, content, headers) as response:
            return Answer(response.status, response.headers, response.read())

    @contextmanager
    def _open(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str | None]
    ) -> Iterator[HTTPResponse]:
        connection = HTTPConnection(self.host, timeout=20)
        sent = {name: value for name, value in headers.items() if value is not None}
        if self.cookie:
            sent.setdefault("Cookie", self.cookie)
        try:
            connection.request(method, path, content, sent)
            yield connection.getresponse()
        finally:
            connection.close()

    @contextmanager
    def watch(self) -> Iterator[HTTPResponse]:
        """An open stream of events."""
        with self._open("GET", "/events", None, {}) as response:
            yield response


def read_events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """The documents of a stream of events."""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))
