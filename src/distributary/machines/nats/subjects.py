"""Encodes names as tokens of NATS subjects and as keys, and decodes them.

A subject consists of tokens separated by dots, and some characters have a meaning for the server.
Any name becomes one token: letters, digits, `_`, `-` and `~` stand for themselves, every other byte
of its UTF-8 is written as `%41`. Keys of a bucket allow fewer characters: `=41` stands for a byte.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes
from zlib import crc32

__all__ = ["check_prefix", "key_of", "name_of", "name_of_key", "name_stream", "token_of"]


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


def key_of(name: str) -> str:
    """The key of a name in a bucket."""
    return token_of(name).replace("~", "%7E").replace("%", "=")


def name_of_key(key: str) -> str:
    """The name of a key; raises `ValueError` if the key encodes none."""
    name = unquote_to_bytes(key.replace("=", "%")).decode()
    if not name or key_of(name) != key:
        raise ValueError(f"{key!r} is not an encoded name")
    return name


def check_prefix(prefix: str) -> None:
    """Raise `ValueError` unless subjects can begin with this."""
    if not all(token and token_of(token) == token for token in prefix.split(".")):
        raise ValueError(f"{prefix!r} is not a valid prefix: use letters, digits and dots")


def name_stream(prefix: str, what: str) -> str:
    """The name of a stream or bucket of JetStream, which may have neither dots nor tildes."""
    plain = prefix
    if not prefix.isalnum():
        plain = "".join(c if c.isalnum() else "_" for c in prefix)
        plain += f"_{crc32(prefix.encode()):08x}"  # a.b and a_b are two
    return f"{plain}_{what}"
