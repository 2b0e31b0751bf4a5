from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Interest, distinct
from tests.strategies import interests, names

SOME_PAIRS = st.lists(st.tuples(names(), names()), min_size=1, max_size=20)


def codes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def pairs_by_flow(interest: Interest) -> list[tuple[str, str]]:
    return [
        (interest.receivers[receiver], interest.flows[flow])
        for flow in range(len(interest.flows))
        for receiver in interest.receivers_of(flow)
    ]


def pairs_by_receiver(interest: Interest) -> list[tuple[str, str]]:
    return [
        (interest.receivers[receiver], interest.flows[flow])
        for receiver in range(len(interest.receivers))
        for flow in interest.flows_of(receiver)
    ]


@given(pairs=SOME_PAIRS)
def test_both_directions_hold_exactly_the_pairs_given(pairs: list[tuple[str, str]]) -> None:
    interest = Interest.from_pairs(pairs)
    assert pairs_by_receiver(interest) == sorted(set(pairs))
    assert pairs_by_flow(interest) == sorted(set(pairs), key=lambda pair: (pair[1], pair[0]))
    assert interest.receivers == tuple(sorted({receiver for receiver, _ in pairs}))
    assert interest.flows == tuple(sorted({flow for _, flow in pairs}))


@given(data=st.data(), pairs=SOME_PAIRS)
def test_order_and_repeats_of_pairs_do_not_matter(
    data: st.DataObject, pairs: list[tuple[str, str]]
) -> None:
    repeats = data.draw(st.lists(st.sampled_from(pairs)))
    shuffled = data.draw(st.permutations(pairs + repeats))
    assert Interest.from_pairs(iter(shuffled)) == Interest.from_pairs(pairs)


@given(pairs=SOME_PAIRS)
def test_one_more_pair_makes_another_interest(pairs: list[tuple[str, str]]) -> None:
    longest = max(len(name) for pair in pairs for name in pair)
    more = [*pairs, (pairs[0][0], "x" * (longest + 1))]
    assert Interest.from_pairs(more) != Interest.from_pairs(pairs)


@given(interest=interests())
def test_counts_follow_from_the_pairs(interest: Interest) -> None:
    pairs = pairs_by_flow(interest)
    assert interest.pairs == len(pairs)
    assert interest.density == len(pairs) / (len(interest.receivers) * len(interest.flows))
    assert interest.audience.tolist() == [
        sum(flow == name for _, flow in pairs) for name in interest.flows
    ]
    assert [interest.flows[flow] for flow in interest.pair_flows()] == [flow for _, flow in pairs]


@given(interest=interests())
def test_names_and_codes_build_the_same_interest(interest: Interest) -> None:
    receiver, flow = interest.flow_receivers, interest.pair_flows()
    twice = np.concatenate([receiver, receiver]), np.concatenate([flow, flow])
    assert Interest.from_codes(interest.receivers, interest.flows, *twice) == interest


def test_two_interests_with_the_same_pairs_but_other_names_differ() -> None:
    here = Interest.from_pairs([("a", "x"), ("b", "y")])
    assert here != Interest.from_pairs([("a", "x"), ("c", "y")])
    assert here != Interest.from_pairs([("a", "x"), ("b", "z")])
    assert here != Interest.from_pairs([("a", "x"), ("b", "x"), ("b", "y")])
    assert here != "an interest"


def test_its_repr_says_how_large_it_is() -> None:
    interest = Interest.from_pairs([("a", str(flow)) for flow in range(1234)])
    assert repr(interest) == "Interest(1 receivers, 1,234 flows, 1,234 pairs)"


def test_nobody_wanting_anything_is_no_interest() -> None:
    with pytest.raises(ValueError, match="at least one receiver that wants one flow"):
        Interest.from_pairs([])


@pytest.mark.parametrize("receivers", [("b", "a"), ("a", "a")])
def test_receivers_out_of_order_or_twice_are_refused(receivers: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="receiver names must be sorted and unique"):
        Interest.from_codes(receivers, ("x",), codes(0, 1), codes(0, 0))


@pytest.mark.parametrize("flows", [("y", "x"), ("x", "x")])
def test_flows_out_of_order_or_twice_are_refused(flows: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="flow names must be sorted and unique"):
        Interest.from_codes(("a",), flows, codes(0, 0), codes(0, 1))


@pytest.mark.parametrize(
    ("receivers", "flows"), [(("a", "b"), ("x",)), (("a",), ("x", "y"))], ids=["receiver", "flow"]
)
def test_a_receiver_without_flows_or_a_flow_without_receivers_is_refused(
    receivers: tuple[str, ...], flows: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="every receiver must want a flow"):
        Interest.from_codes(receivers, flows, codes(0), codes(0))


@given(keys=st.lists(st.integers(0, 2**62)))
def test_distinct_keys_are_those_of_a_set(keys: list[int]) -> None:
    assert distinct(np.array(keys, np.int64)).tolist() == sorted(set(keys))
