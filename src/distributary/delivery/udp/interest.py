"""The flows that a receiver wants, from a list, an `Interest` or a table."""

from __future__ import annotations

import os
from collections.abc import Iterable

from distributary.errors import InputError
from distributary.files import read_interest
from distributary.model import Interest

__all__ = ["flows_of", "read_flows"]


def flows_of(interest: Interest | Iterable[str], name: str) -> tuple[str, ...]:
    """The flows that a receiver wants; none if an `Interest` does not have the receiver."""
    if not isinstance(interest, Interest):
        return tuple(interest)
    if name not in interest.receivers:
        return ()
    wanted = interest.flows_of(interest.receivers.index(name))
    return tuple(interest.flows[flow] for flow in wanted.tolist())


def read_flows(path: os.PathLike[str], name: str) -> tuple[str, ...]:
    """Read the flows of a receiver from a table of interest, which has to have the receiver."""
    interest = read_interest(path).value
    if name not in interest.receivers:
        raise InputError(
            f"has no receiver {name!r}", path=os.fspath(path), value=name, remedy="check the name"
        )
    return flows_of(interest, name)
