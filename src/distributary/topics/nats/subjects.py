"""Encodes names of topics and channels as NATS subjects, and decodes them.

A subject consists of tokens separated by dots, and some characters have a meaning for the server.
Any name becomes one token: letters, digits, `_`, `-` and `~` stand for themselves, every other byte
of its UTF-8 is written as `%41`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes
from zlib import crc32

from distributary.topics.names import is_cluster

__all__ = ["Subjects", "name_of", "token_of"]


@lru_cache(maxsize=65_536)
def token_of(name: str) -> str:
    """The token of a name."""
    return quote(name, safe="").replace(".", "%2E")


@lru_cache(maxsize=65_536)
def name_of(token: str) -> str:
    """The name of a token; raises `ValueError` if the token encodes none."""
    name = unquote_to_bytes(token).decode()
    if not name or token_of(name) != token:
        raise ValueError(f"{token!r} is not an encoded name")
    return name


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of one system; systems on the same server use different prefixes.

    A client that may publish under `to` may act as any client: restrict it with the server's
    permissions.
    """

    prefix: str = "distributary"

    def __post_init__(self) -> None:
        if not all(token and token_of(token) == token for token in self.prefix.split(".")):
            raise ValueError(f"{self.prefix!r} is not a valid prefix: use letters, digits and dots")

    @property
    def status(self) -> str:
        """The subject of requests for the service's status."""
        return f"{self.prefix}.status"

    @property
    def claim(self) -> str:
        """The subject of the claims of services."""
        return f"{self.prefix}.claim"

    @property
    def service(self) -> str:
        """The subjects of all messages to a service."""
        return f"{self.prefix}.to.*"

    @property
    def state(self) -> str:
        """The subject of the records of the service's state."""
        return f"{self.prefix}.state"

    def stream(self, what: str) -> str:
        """The name of a JetStream stream or bucket, which may have neither dots nor tildes."""
        prefix = self.prefix
        if not prefix.isalnum():
            prefix = "".join(c if c.isalnum() else "_" for c in prefix)
            prefix += f"_{crc32(self.prefix.encode()):08x}"  # a.b and a_b are two
        return f"{prefix}_topics_{what}"

    def to(self, channel: str) -> str:
        """The subject of messages to a channel."""
        return f"{self.prefix}.to.{token_of(channel)}"

    def channel(self, subject: str) -> str:
        """The channel that a subject addresses."""
        return name_of(subject.rpartition(".")[2])

    def on(self, channel: str, topic: str | None = None) -> str:
        """The subject of a channel's events to its subscribers; a cluster's names the topic."""
        subject = f"{self.prefix}.on.{token_of(channel)}"
        return subject if topic is None else f"{subject}.{token_of(topic)}"

    def all_on(self, channel: str) -> str:
        """What subscribers of a channel subscribe to."""
        return f"{self.on(channel)}.*" if is_cluster(channel) else self.on(channel)

    def client(self, name: str) -> str:
        """The subject of messages to one client."""
        return f"{self.prefix}.client.{token_of(name)}"
