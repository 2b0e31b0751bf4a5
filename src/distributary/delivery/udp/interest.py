"""What a receiver wants, as it can be told."""

from __future__ import annotations

import os
from collections.abc import Iterable

from distributary.errors import InputError
from distributary.files import read_interest
from distributary.model import Interest

__all__ = ["flows_of", "read_flows"]


def flows_of(interest: Interest | Iterable[str], name: str) -> tuple[str, ...]:
    """The flows that somebody wants; nothing of a table that does not have them."""
    if not isinstance(interest, Interest):
        return tuple(interest)
    if name not in interest.receivers:
        return ()
    wanted = interest.flows_of(interest.receivers.index(name))
    return tuple(interest.flows[flow] for flow in wanted.tolist())


def read_flows(path: os.PathLike[str], name: str) -> tuple[str, ...]:
    """What a table of interest has for a receiver, which has to be in it."""
    interest = read_interest(path).value
    if name not in interest.receivers:
        raise InputError(
            f"has no receiver {name!r}", path=os.fspath(path), value=name, remedy="check the name"
        )
    return flows_of(interest, name)
