"""Names of topics and channels as subjects of NATS, and back.

A subject is tokens with dots between, where blanks and some signs mean something to the server. A
name of ours, whatever its letters, becomes one token of harmless ones: letters, digits, `_`, `-`
and `~` stand for themselves, every other byte of its UTF-8 is written `%41`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

__all__ = ["Subjects", "name_of", "token_of"]


@lru_cache(maxsize=65_536)
def token_of(name: str) -> str:
    """The token that stands for a name."""
    return quote(name, safe="").replace(".", "%2E")


@lru_cache(maxsize=65_536)
def name_of(token: str) -> str:
    """The name that a token stands for; a ValueError if none is written so."""
    name = unquote_to_bytes(token).decode()
    if not name or token_of(name) != token:
        raise ValueError(f"{token!r} stands for no name")
    return name


@dataclass(frozen=True, slots=True)
class Subjects:
    """Where things are said, all under one prefix that several systems on a server tell apart by.

    Whoever may publish under `to` may act as any client: keep others out with the server's
    permissions.
    """

    prefix: str = "distributary"

    def __post_init__(self) -> None:
        if not all(token and token_of(token) == token for token in self.prefix.split(".")):
            raise ValueError(f"{self.prefix!r} cannot begin subjects: letters, digits, dots only")

    @property
    def status(self) -> str:
        """Where a service is asked how it is."""
        return f"{self.prefix}.status"

    @property
    def claim(self) -> str:
        """Where services tell each other which of them answers."""
        return f"{self.prefix}.claim"

    @property
    def service(self) -> str:
        """Everything that a service listens to."""
        return f"{self.prefix}.to.*"

    def to(self, channel: str) -> str:
        """Where a channel is spoken to."""
        return f"{self.prefix}.to.{token_of(channel)}"

    def channel(self, subject: str) -> str:
        """Which channel is spoken to on a subject."""
        return name_of(subject.rpartition(".")[2])

    def on(self, channel: str) -> str:
        """Where everybody on a channel gets its events."""
        return f"{self.prefix}.on.{token_of(channel)}"

    def client(self, name: str) -> str:
        """Where one client is spoken to."""
        return f"{self.prefix}.client.{token_of(name)}"
