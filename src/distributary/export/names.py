"""Escapes arbitrary Unicode names for NATS, DDS and XML, and back.

Percent-encoding of UTF-8 (RFC 3986): ASCII letters and digits, `-`, `_` and `~` stay; every other
byte becomes `%` and two upper-case hexadecimal digits. That includes the full stop, which separates
tokens in NATS subjects and partition from topic in Cyclone DDS: `BRK.B` is `BRK%2EB`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

__all__ = ["escape_name", "unescape_name"]


def escape_name(name: str) -> str:
    """The name without blanks, dots, wildcards, quotes or non-ASCII characters.

    Different names stay different: `unescape_name` is the inverse.
    """
    if not name:
        raise ValueError("an empty name cannot be written as a subject or topic")
    return quote(name, safe="").replace(".", "%2E")


def unescape_name(escaped: str) -> str:
    """The inverse of `escape_name`."""
    return unquote(escaped, errors="strict")
