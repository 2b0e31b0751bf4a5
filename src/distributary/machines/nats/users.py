"""Users of a NATS server and what they may do, as its configuration has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SERVICE_USER", "NatsUser", "format_users"]

SERVICE_USER: Final = "distributary"  # of an embedded server; may do everything


@dataclass(frozen=True, slots=True, repr=False)
class NatsUser:
    """A user; without a list of subjects it may publish, or subscribe, everywhere.

    Whoever asks it something it may answer once.
    """

    name: str
    password: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"NatsUser({self.name!r})"


def format_users(users: Iterable[NatsUser]) -> str:
    """The list of users, to be put into an `authorization` block."""
    lines = ",\n".join(f"  {json.dumps(_describe(user))}" for user in users)
    return f"users: [\n{lines}\n]"


def _describe(user: NatsUser) -> dict[str, Any]:
    found: dict[str, Any] = {"user": user.name, "password": user.password}
    permissions: dict[str, Any] = {}
    if user.publish is not None:
        permissions["publish"] = {"allow": list(user.publish)}
    if user.subscribe is not None:
        permissions["subscribe"] = {"allow": list(user.subscribe)}
    if permissions:
        found["permissions"] = {**permissions, "allow_responses": True}
    return found
