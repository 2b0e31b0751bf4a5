"""Brokers that match together find what each would find by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.content import ContentBroker, Covering
from distributary.content.hop_index import HopIndex
from distributary.content.messages import Name
from distributary.content.tables import MatchIndex
from distributary.model import Filter, Schema
from distributary.papers.chen import mobile, network
from distributary.papers.chen.mobile import MobileCase, MobileOutcome, run_mobile_case
from distributary.papers.chen.network import CongestionCase, CongestionOutcome, run_congestion_case
from distributary.papers.chen.runs import POLICIES
from distributary.papers.chen.shared_matching import NetworkMatcher, SharedIndex
from distributary.papers.queue_trace import QueueTrace
from distributary.workloads.roaming import RoamingParams
from distributary.workloads.workflows import WorkflowsParams, draw_events, range_filter

SMALL = CongestionCase(
    POLICIES["active"],
    WorkflowsParams(subscriptions=150, degree=9, workflows=2),
    unsubscriptions=6,
    publications=300,
    before=60,
    probe_after=0.0,
    similarities=3,
    scale=0.01,
)
SMALL_MOBILE = MobileCase(
    POLICIES["active"],
    RoamingParams(subscribers=80, publishers=3, workflows=2, moves_per_minute=4.0, duration=300.0),
    scale=0.03,
)
SCHEMA = WorkflowsParams().schema
EVENTS = draw_events(40, 2, 1, np.random.default_rng(0))
HOPS = ["ann", "ben", "left", "right"]


def make_plain(
    name: str,
    neighbours: Iterable[str],
    schema: Schema,
    policy: Covering,
    network: NetworkMatcher,
) -> ContentBroker:
    """A broker with an index of its own, in place of one that shares the network's."""
    return ContentBroker(name, neighbours, schema, policy)


def list_all(found: object) -> object:
    """An outcome as lists and numbers, which are equal only to the last bit."""
    match found:
        case CongestionOutcome() | MobileOutcome() | QueueTrace():
            return [list_all(getattr(found, each.name)) for each in fields(found)]
        case dict():
            return [(key, list_all(value)) for key, value in found.items()]
        case np.ndarray():
            return found.tolist()
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_congestion_is_the_same_whether_brokers_match_together_or_by_themselves(
    policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = replace(SMALL, policy=POLICIES[policy], seed=seed)
    together = run_congestion_case(case)
    monkeypatch.setattr(network, "SharingBroker", make_plain)
    apart = run_congestion_case(case)
    assert list_all(together) == list_all(apart)


@pytest.mark.parametrize("policy", POLICIES)
def test_moves_are_the_same_whether_brokers_match_together_or_by_themselves(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = replace(SMALL_MOBILE, policy=POLICIES[policy])
    together = run_mobile_case(case)
    monkeypatch.setattr(mobile, "SharingBroker", make_plain)
    apart = run_mobile_case(case)
    assert list_all(together) == list_all(apart)


def filters() -> st.SearchStrategy[Filter]:
    """Ranges of a workflow's values, and unions of two."""
    ends = st.tuples(st.integers(0, 9), st.integers(1, 10)).filter(
        lambda found: found[0] < found[1]
    )
    ranges = st.builds(
        lambda of, found: range_filter(SCHEMA, of, [found[0] / 10], [found[1] / 10]),
        st.integers(0, 1),
        ends,
    )
    return st.lists(ranges, min_size=1, max_size=2).map(
        lambda found: Filter.of((box for each in found for box in each.boxes), SCHEMA)
    )


# A subscription comes to a broker from a hop, or one of those in its table leaves; then an event.
Change = tuple[int, int, Filter, str, bool, int]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),  # the broker
            st.integers(0, 7),  # the subscription
            filters(),
            st.sampled_from(HOPS),
            st.booleans(),  # it comes, or leaves
            st.integers(0, len(EVENTS) - 1),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_a_shared_index_finds_what_an_own_one_does_in_the_same_order(
    changes: list[Change], by_place: bool
) -> None:
    matcher = NetworkMatcher(SCHEMA)
    shared = [SharedIndex(matcher, by_place=by_place) for _ in range(2)]
    own: list[HopIndex | MatchIndex] = [
        HopIndex(SCHEMA) if by_place else MatchIndex(SCHEMA) for _ in range(2)
    ]
    held: list[dict[Name, str]] = [{}, {}]
    meant: dict[Name, Filter] = {}  # a name keeps its filter
    for broker, number, filter, hop, comes, at in changes:
        name = Name("b", number)
        if comes and name not in held[broker]:
            filter = meant.setdefault(name, filter)
            held[broker][name] = hop
            for index in (shared[broker], own[broker]):
                index.add(name, filter, hop)
        elif not comes and name in held[broker]:
            hop = held[broker].pop(name)
            for index in (shared[broker], own[broker]):
                index.remove(name, hop)
        for here, plain in zip(shared, own, strict=True):
            for but in (None, "left"):
                assert here.find_hops(EVENTS[at], but) == plain.find_hops(EVENTS[at], but)
                if isinstance(plain, MatchIndex):
                    assert here.match(EVENTS[at], but) == plain.match(EVENTS[at], but)
