"""Who may act: signed sessions, tokens against forged requests, host names, and failed attempts.

All of it are values and machines: the time is an argument.
"""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections import OrderedDict, deque
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest, digest
from ipaddress import ip_address, ip_network

__all__ = ["Attempts", "HostRule", "Operator", "Sessions", "is_token"]

LONGEST_NAME = 60
SESSION_S = 12 * 3600.0
_MOST_ENDED = 10_000


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who has shown the token, under the name that the log of changes will have."""

    name: str
    session: str
    until: float


class Sessions:
    """Sessions as signed cookies. The key is of this run: a restart ends all sessions."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._ended: deque[str] = deque(maxlen=_MOST_ENDED)

    def begin(self, name: str, now: float) -> tuple[Operator, str]:
        """Begin a session; returns its cookie, too."""
        operator = Operator(name, secrets.token_urlsafe(16), now + SESSION_S)
        content = json.dumps([operator.name, operator.session, operator.until]).encode()
        return operator, f"{_encode(content)}.{self._sign('session', content)}"

    def find(self, cookie: str, now: float) -> Operator | None:
        """The operator of a cookie; None if it is forged, too old, or ended."""
        encoded, _, signature = cookie.partition(".")
        try:
            content = urlsafe_b64decode(encoded.encode() + b"=" * (-len(encoded) % 4))
        except (Base64Error, ValueError):
            return None
        if not _is_equal(signature, self._sign("session", content)):
            return None
        operator = Operator(*json.loads(content))
        return None if operator.until <= now or operator.session in self._ended else operator

    def end(self, operator: Operator) -> None:
        """End a session."""
        self._ended.append(operator.session)

    def make_csrf_token(self, operator: Operator) -> str:
        """The token that pages of this session send with each change."""
        return self._sign("csrf", operator.session.encode())

    def check_csrf_token(self, operator: Operator, token: str) -> bool:
        """Whether a change comes from a page of this session."""
        return _is_equal(token, self.make_csrf_token(operator))

    def _sign(self, purpose: str, content: bytes) -> str:
        return _encode(digest(self._key, purpose.encode() + b"\0" + content, "sha256"))


def is_token(given: str, token: str) -> bool:
    """Whether this is the operator's token, in a time that does not depend on it."""
    return bool(token) and _is_equal(given, token)


class HostRule:
    """Which `Host` a request may name.

    A page elsewhere can let its own name lead to this server (DNS rebinding) and would then count
    as of the same origin. Its requests carry that name, never an address. So addresses are
    allowed, localhost, and the names that were given.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = {name.casefold().rstrip(".") for name in names if name} | {"localhost"}

    def allows(self, host: str) -> bool:
        """Whether a `Host` header names this server."""
        name = _strip_port(host).casefold().rstrip(".")
        if name in self._names:
            return True
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


class Attempts:
    """Slows down who guesses: after `most` failures within `window_s`, an address must wait."""

    def __init__(self, most: int = 5, window_s: float = 60.0, addresses: int = 1_000) -> None:
        self._most = most
        self._window_s = window_s
        self._addresses = addresses
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """How long an address must wait before its next attempt; 0: not at all."""
        failed = self._failed.get(_network_of(address))
        if failed is None or len(failed) < self._most:
            return 0.0
        return max(0.0, failed[0] + self._window_s - now)

    def note_failure(self, address: str, now: float) -> None:
        """Count a failed attempt; the addresses that failed longest ago are forgotten."""
        network = _network_of(address)
        failed = self._failed.setdefault(network, deque(maxlen=self._most))
        failed.append(now)
        self._failed.move_to_end(network)
        while len(self._failed) > self._addresses:
            self._failed.popitem(last=False)


def _network_of(address: str) -> str:
    """An address, or the /64 of an IPv6 address: whoever has one has all of it."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ip_network(f"{address}/64", strict=False))


def _strip_port(host: str) -> str:
    if host.startswith("["):
        address, end, port = host.partition("]")
        return address + end if end and (not port or port.startswith(":")) else ""
    return host.partition(":")[0]


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _is_equal(given: str, expected: str) -> bool:
    """Compare digests, which hide the length, too."""
    return compare_digest(_hash(given), _hash(expected))


def _hash(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
