"""Names of any Unicode as names that NATS, DDS and XML take, and back.

Percent-encoding of UTF-8 (RFC 3986): letters and digits of ASCII, `-`, `_` and `~` stay; every
other byte becomes `%` and two capital hexadecimal digits, the full stop among them, since it
separates tokens in NATS subjects and partition from topic in Cyclone DDS. `BRK.B` is `BRK%2EB`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

__all__ = ["escape_name", "unescape_name"]


def escape_name(name: str) -> str:
    """The name without blanks, dots, wildcards, quotes or anything outside ASCII.

    Different names stay different: `unescape_name` gives the name back.
    """
    if not name:
        raise ValueError("an empty name cannot be written as a subject or topic")
    return quote(name, safe="").replace(".", "%2E")


def unescape_name(escaped: str) -> str:
    """The name that `escape_name` was given."""
    return unquote(escaped, errors="strict")
