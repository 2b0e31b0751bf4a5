"""Secret tokens that prove names, from a JSON file that nobody else can read.

The file has an object for each role, with the token of each name: `{"broker": {"A": "..."},
"client": {"ann": "..."}}`. Tokens are never part of an error, a report or a `repr`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any

from distributary.errors import LiveError

__all__ = ["TokenFileError", "Tokens", "read_token", "read_tokens"]

SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1_024
_LARGEST_FILE = 1 << 26
_MAKE_ONE = "make tokens with `head -c 24 /dev/urandom | base64`"


class TokenFileError(LiveError):
    """The tokens at `path` cannot be used."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")


class Tokens:
    """The tokens of names, by role."""

    def __init__(self, tokens: Mapping[str, Mapping[str, str]]) -> None:
        self._tokens = {role: dict(names) for role, names in tokens.items()}

    def __repr__(self) -> str:
        return f"Tokens({', '.join(f'{role}: {len(t):,}' for role, t in self._tokens.items())})"

    def find(self, role: str, name: str) -> str | None:
        """The token of a name, to prove it to others; None if there is none."""
        return self._tokens.get(role, {}).get(name)

    def list_names(self, role: str) -> list[str]:
        """The names of a role."""
        return [*self._tokens.get(role, {})]

    def check(self, role: str, name: str, token: str) -> bool:
        """Whether this is the token of the name, in a time that does not depend on the token."""
        known = self.find(role, name)
        equal = compare_digest(_digest(known or ""), _digest(token))
        return equal and known is not None


def read_token(path: Path) -> str:
    """Read a file with a single token; raises `TokenFileError` as `read_tokens` does."""
    try:
        token = _read_private(path).decode().strip()
    except UnicodeDecodeError:
        token = ""
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        raise TokenFileError(
            str(path),
            f"is not a text of {SHORTEST_TOKEN} to {LONGEST_TOKEN:,} characters",
            _MAKE_ONE,
        )
    return token


def read_tokens(path: Path, roles: Collection[str]) -> Tokens:
    """Read a file of tokens; raises `TokenFileError` if anybody else could read or change it."""
    name, data = str(path), _read_private(path)
    try:
        content = json.loads(data, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        # A JSON error has the place, not the text; ours has the name that is there twice.
        raise TokenFileError(name, f"is not JSON ({error})", _example(roles)) from None
    return Tokens(_check_content(name, content, roles))


def _read_private(path: Path) -> bytes:
    """Read a file that nobody else can read or change."""
    name = str(path)
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())  # of the open file, even if the path changes meanwhile
            _check_owner_and_mode(name, found)
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        reason = f"cannot be read ({(error.strerror or str(error)).lower()})"
        raise TokenFileError(name, reason, "check the path") from None
    if len(data) > _LARGEST_FILE:
        raise TokenFileError(name, f"is larger than {_LARGEST_FILE:,} bytes", "check the path")
    return data


def _check_owner_and_mode(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise TokenFileError(name, "is not a file", "name the file that holds the tokens")
    if found.st_uid != os.geteuid():
        raise TokenFileError(name, "belongs to another user", "make a copy of your own")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise TokenFileError(
            name, f"other users have access to it (mode {mode:03o})", f"run `chmod 600 {name}`"
        )


def _check_content(path: str, content: Any, roles: Collection[str]) -> dict[str, dict[str, str]]:
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise TokenFileError(path, "does not have an object for each role", _example(roles))
    for role, names in content.items():
        if role not in roles:
            raise TokenFileError(path, f"{role!r} is not a role", _example(roles))
        for name, token in names.items():
            if not isinstance(token, str) or not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
                raise TokenFileError(
                    path,
                    f"the token of {role} {name!r} is not a text of {SHORTEST_TOKEN} to "
                    f"{LONGEST_TOKEN:,} characters",
                    _MAKE_ONE,
                )
    return content


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _example(roles: Collection[str]) -> str:
    example = ", ".join(f'"{role}": {{"NAME": "TOKEN"}}' for role in roles)
    return f"write it as {{{example}}}"


def _digest(token: str) -> bytes:
    """Hide the length of a token, too."""
    return sha256(token.encode(errors="surrogatepass")).digest()
