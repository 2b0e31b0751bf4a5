"""What receivers should get by a plan, second by second, from the messages that were counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np

from distributary.model import FloatArray, IndexArray, IntArray, Plan

__all__ = ["predict_seconds"]


def predict_seconds(
    plan: Plan, wants: Mapping[str, Collection[str]], counts: Sequence[Mapping[str, int]]
) -> FloatArray:
    """What some receivers want, and what their two filters drop: an array of (second, 3).

    `wants` has what each of them wants, `counts` the messages by flow of each second. Each flow is
    in one session.
    """
    number = {flow: at for at, flow in enumerate(plan.flows)}
    session_of = np.zeros(len(plan.flows), np.int32)
    session_of[plan.placement_flow] = plan.placement_session
    messages: IntArray = np.array(
        [[count.get(flow, 0) for flow in plan.flows] for count in counts], np.int64
    ).reshape(len(counts), len(plan.flows))
    carried = [[number[flow] for flow in flows if flow in number] for flows in wants.values()]
    flow = np.fromiter(chain.from_iterable(carried), np.int64)
    receiver = np.repeat(np.arange(len(carried)), [len(flows) for flows in carried])
    in_session = _add_up(messages, session_of, plan.n_sessions)
    in_group = _add_up(in_session, plan.session_group, plan.n_groups)
    sessions = _list_distinct(receiver, session_of[flow], plan.n_sessions)
    groups = _list_distinct(receiver, plan.session_group[session_of[flow]], plan.n_groups)
    wanted = messages[:, flow].sum(axis=1)
    accepted = in_session[:, sessions].sum(axis=1)
    received = in_group[:, groups].sum(axis=1)
    return np.stack([wanted, received - accepted, accepted - wanted], axis=1).astype(np.float64)


def _add_up(values: IntArray, into: IndexArray, size: int) -> IntArray:
    """Add up columns by what each belongs to."""
    sums = np.zeros((size, len(values)), np.int64)
    np.add.at(sums, into, values.T)
    return sums.T


def _list_distinct(receiver: IntArray, of: IndexArray, size: int) -> IntArray:
    """What each receiver has, each once, of all receivers together."""
    if not len(receiver):
        return np.zeros(0, np.int64)
    return np.unique(receiver * size + of) % size
