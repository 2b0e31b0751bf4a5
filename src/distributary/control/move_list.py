"""Flows that move, as they are shown: from where, to where, and who wants them."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.control.interest import LiveInterest
from distributary.control.placement import Places
from distributary.control.status import FlowMove

__all__ = ["list_moves"]


def list_moves(
    moved: Iterable[str], before: Places, after: Places, interest: LiveInterest, most: int
) -> list[FlowMove]:
    """List some of the flows that move, those wanted most first."""
    flows = sorted(moved, key=lambda flow: (-len(interest.receivers_of(flow)), flow))
    return [_describe_move(flow, before, after, interest) for flow in flows[:most]]


def _describe_move(flow: str, before: Places, after: Places, interest: LiveInterest) -> FlowMove:
    come, go = before.place_of(flow), after.place_of(flow)
    return FlowMove(
        flow=flow,
        from_session=None if come is None else come[0],
        from_group=None if come is None else come[1],
        to_session=None if go is None else go[0],
        to_group=None if go is None else go[1],
        receivers=len(interest.receivers_of(flow)),
    )
