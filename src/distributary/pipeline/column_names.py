"""What the names of columns say: how well each fits what a log must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from distributary.pipeline.shapes import Path

__all__ = ["DOCUMENTED", "FAINT", "HINTED", "NAMED", "score_name"]

DOCUMENTED: Final = 10
NAMED: Final = 6
HINTED: Final = 4
FAINT: Final = 2


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of columns, by what they say: surely that, and perhaps that.
_STRONG: Final[Mapping[str, frozenset[str]]] = {
    "ts": _words("ts time timestamp datetime eventtime when at moment"),
    "receiver": _words(
        "receiver subscriber client consumer user username member reader listener recipient"
    ),
    "flow": _words("flow topic symbol channel instrument ticker stream feed"),
    "action": _words("action op operation"),
    "size": _words("size bytes length len"),
    "count": _words("count messagecount msgcount messages nmessages nummessages"),
    "id": _words("id msgid messageid uuid guid eventid mid"),
    "filter": _words("filter condition predicate selector"),
}
_WEAK: Final[Mapping[str, frozenset[str]]] = {
    "ts": _words("date created occurred logged received sent epoch clock day"),
    "receiver": _words(
        "host ip addr address account login customer person peer node machine agent "
        "owner viewer player follower trader desk remote who employee tenant principal "
        "session device dependent"
    ),
    "flow": _words(
        "subject sensor isin ric security series item product package resource path url uri page "
        "room device asset stock tag category queue key group match station metric signal entity "
        "title repo repository module library file document dependency"
    ),
    "action": _words(
        "event type verb command cmd kind method status state change subscribed active"
    ),
    "size": frozenset({"payloadbytes"}),
    "count": frozenset(),
    "id": _words("offset seq sequence seqno nonce requestid"),
    "filter": _words("where query expression rule subscription"),
}
_GENERIC = _words("id name key value code no nr number uid uuid text ref")
_ENDS = re.compile(r"(?:id|name|key|code|ms|us|ns|utc|epoch|millis)$")


def score_name(role: str, steps: Path) -> int:
    """How well a path's name fits a role: a documented name, a strong one, a weak one or none."""
    names = [str(step) for step in steps if not isinstance(step, int)]
    if len(steps) == 1 and names[0] == role:
        return DOCUMENTED
    own = _score_word(role, names[-1])
    if own or len(names) < 2 or _join(names[-1]) not in _GENERIC:
        return own
    return max(_score_word(role, names[-2]) - 1, 0)


def _score_word(role: str, name: str) -> int:
    tokens = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", name)]
    joined = _join(name)
    forms = {joined, _ENDS.sub("", joined)}
    if role == "ts" and joined.endswith(("time", "timestamp")):
        return NAMED
    if forms & _STRONG[role]:
        return NAMED
    if role not in ("id", "action", "count") and set(tokens) & _STRONG[role]:
        return HINTED
    return FAINT if (forms | set(tokens)) & _WEAK[role] else 0


def _join(name: str) -> str:
    return re.sub(r"[\W\d_]+", "", name).lower()
