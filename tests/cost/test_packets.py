from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heapreplace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import (
    ChannelPrices,
    FilteringPrices,
    PacketPrices,
    Prices,
    channel_cost,
    evaluate,
    filtering_cost,
    least_added_excess,
    least_excess_of_one_copy,
)
from distributary.delivery.heartbeats import Heartbeats
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.packing import Packer
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.window import RepairWindow
from distributary.model import Demand, FloatArray, Interest, Plan
from distributary.planning._packet_kernels import count_heartbeats, count_packets, count_pauses
from tests import oracles
from tests.cost.cases import apart, flooding
from tests.cost.test_unicast import in_session, links, with_pairs
from tests.strategies import any_plans, demands

RATES = st.floats(1e-6, 1e9)
AMOUNTS = st.floats(0, 1e3, allow_subnormal=False)
PACKET_PRICES = st.builds(
    PacketPrices,
    alpha0=AMOUNTS,
    alpha1=st.floats(1e-3, 1e3),
    beta0=AMOUNTS,
    beta1=AMOUNTS,
    messages_per_packet=st.one_of(st.just(1.0), st.floats(1, 1e4)),
    delay_s=st.one_of(st.just(0.0), st.floats(1e-9, 10)),
    heartbeats=st.one_of(st.just(0.0), st.floats(1e-3, 100)),
)
LINEAR = st.builds(FilteringPrices, st.floats(0, 9), st.floats(0.1, 9))
CALIBRATED = PacketPrices(20e-9, 300e-9, 60e-9, 150e-9)


# --- a plain recomputation: no arrays, nothing shared with the code -------------------------------


def packets(prices: PacketPrices, rate: float) -> float:
    return rate / min(prices.messages_per_packet, 1 + rate * prices.delay_s)


def heartbeats(prices: PacketPrices, rates: Sequence[float]) -> float:
    if not prices.heartbeats:
        return 0.0
    each = [packets(prices, rate) for rate in rates]
    pauses = sum(p * math.exp(-0.01 * p) for p in each)
    filled = 1.36 * (0.01 * pauses) ** 0.76
    return prices.heartbeats + filled / (1 + filled / 2) * 100


def stream_price(prices: PacketPrices, rate: float, *, beating: bool = True) -> float:
    """What a receiver pays for one stream that is all it gets."""
    if rate == 0:
        return 0.0
    return (
        (prices.alpha0 + prices.beta0) * rate
        + (prices.alpha1 + prices.beta1) * packets(prices, rate)
        + beating * prices.alpha1 * heartbeats(prices, [rate])
    )


def receiver_work(plan: Plan, demand: Demand, prices: PacketPrices, receiver: int) -> float:
    """The work of one receiver's two filters."""
    it, rate = oracles.plain(plan), demand.rate.tolist()
    in_sessions = [
        sum(rate[flow] for flow, at in it.placed if at == session)
        for session in range(plan.n_sessions)
    ]
    subscribed = {session for who, session in it.subscribed if who == receiver}
    joined = {int(plan.session_group[session]) for session in subscribed}
    work = 0.0
    for group in joined:
        carried = [
            in_sessions[session]
            for session in range(plan.n_sessions)
            if plan.session_group[session] == group
        ]
        work += sum(prices.alpha0 * r + prices.alpha1 * packets(prices, r) for r in carried)
        work += prices.alpha1 * heartbeats(prices, carried)
    for session in subscribed:
        carried_here = in_sessions[session]
        work += prices.beta0 * carried_here + prices.beta1 * packets(prices, carried_here)
    own = sum(rate[flow] for who, flow in links(plan) if who == receiver)
    return work + stream_price(prices, own)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, Demand]:
    """Any plan, with any wanted pairs sent by unicast, whether or not in a session too."""
    demand = draw(demands(rates=RATES))
    plan, interest = draw(any_plans(demand.interest)), demand.interest
    wanted = zip(interest.flow_receivers.tolist(), interest.pair_flows().tolist(), strict=True)
    return with_pairs(plan, draw(st.sets(st.sampled_from(sorted(wanted))))), demand


@st.composite
def weights_for(draw: st.DrawFn, demand: Demand) -> FloatArray | None:
    n = len(demand.interest.receivers)
    one = st.one_of(st.integers(1, 9).map(float), st.floats(1e-3, 1e3))
    drawn = draw(st.none() | st.lists(one, min_size=n, max_size=n))
    return None if drawn is None else np.array(drawn)


@given(data=st.data(), case=cases(), prices=PACKET_PRICES)
def test_any_plan_costs_what_its_messages_packets_and_heartbeats_cost(
    data: st.DataObject, case: tuple[Plan, Demand], prices: PacketPrices
) -> None:
    plan, demand = case
    weights = data.draw(weights_for(demand))
    cost = filtering_cost(plan, demand, prices, weights)
    who = range(len(plan.receivers))
    weight = [1.0] * len(who) if weights is None else weights.tolist()
    work = sum(weight[j] * receiver_work(plan, demand, prices, j) for j in who)
    total = sum(demand.rate.tolist())
    wants = oracles.wanted_flows(demand.interest)
    wanted = sum(
        weight[j]
        * stream_price(prices, sum(float(demand.rate[f]) for f in wants[j]), beating=False)
        for j in who
    )
    flooded = sum(weight[j] * stream_price(prices, total) for j in who)
    assert cost.work == pytest.approx(work, rel=1e-9)
    assert cost.wanted_work == pytest.approx(wanted, rel=1e-9)
    assert cost.flooding_work == pytest.approx(flooded, rel=1e-9)


@given(demand=demands(rates=RATES), data=st.data(), prices=PACKET_PRICES)
def test_no_valid_plan_costs_less_than_the_wanted_work(
    demand: Demand, data: st.DataObject, prices: PacketPrices
) -> None:
    for plan in (flooding(demand), apart(demand), data.draw(any_plans(demand.interest))):
        cost = filtering_cost(plan, demand, prices)
        if not evaluate(plan, demand).problems:
            assert cost.work >= cost.wanted_work * (1 - 1e-9)
    cost = filtering_cost(flooding(demand), demand, prices)
    assert cost.excess == pytest.approx(cost.flooding_excess, rel=0, abs=1e-9 * cost.work)


@given(
    receivers=st.integers(1, 6),
    rate=st.lists(RATES, min_size=1, max_size=6),
    prices=st.one_of(PACKET_PRICES.map(lambda own: replace(own, heartbeats=0)), LINEAR),
    data=st.data(),
)
def test_flooding_wastes_nothing_where_everybody_wants_everything(
    receivers: int, rate: list[float], prices: Prices, data: st.DataObject
) -> None:
    pairs = [(str(r), str(f)) for r in range(receivers) for f in range(len(rate))]
    demand = Demand(Interest.from_pairs(pairs), np.array(rate))
    weights = data.draw(weights_for(demand))
    cost = filtering_cost(flooding(demand), demand, prices, weights)
    assert cost.flooding_excess == cost.relative_excess == 0


@given(case=cases(), h=st.floats(1, 100))
def test_full_packets_without_heartbeats_cost_what_linear_prices_say(
    case: tuple[Plan, Demand], h: float
) -> None:
    plan, demand = case
    prices = PacketPrices(0.5, 3.0, 0.25, 2.0, h, delay_s=1e12, heartbeats=0)
    linear = filtering_cost(plan, demand, prices.linear)
    cost = filtering_cost(plan, demand, prices)
    assert cost.session_cost == pytest.approx(linear.session_cost, rel=1e-9)
    assert cost.flow_cost == pytest.approx(linear.flow_cost, rel=1e-9)
    assert cost.wanted_work == pytest.approx(linear.wanted_work, rel=1e-9)


@given(rate=RATES, prices=PACKET_PRICES)
def test_the_messages_of_a_packet_are_between_one_and_h(rate: float, prices: PacketPrices) -> None:
    [number] = prices.packing.packets(np.array([rate]))
    assert rate / prices.messages_per_packet <= number * (1 + 1e-12)
    assert number <= rate
    if prices.delay_s == 0 or prices.messages_per_packet == 1:
        assert number == rate


@given(rates=st.lists(st.floats(0, 1e9), min_size=1, max_size=5), prices=PACKET_PRICES)
def test_compiled_numbers_are_those_of_the_prices(rates: list[float], prices: PacketPrices) -> None:
    *_, h, delay_s, idle = prices.numbers
    rate = np.array(rates)
    each = [count_packets(r, h, delay_s) for r in rates]
    assert each == pytest.approx(prices.packing.packets(rate).tolist(), rel=1e-12)
    pauses = [count_pauses(p) for p in each]
    assert pauses == pytest.approx(prices.pauses(rate).tolist(), rel=1e-9)
    whole = np.array([sum(pauses)])
    assert count_heartbeats(sum(pauses), idle) == pytest.approx(prices.heartbeat_rate(whole)[0])
    assert count_heartbeats(-1e-20, idle) == idle


def test_linear_prices_have_the_same_numbers_in_the_same_order() -> None:
    linear, rate = FilteringPrices(2.0, 3.0), np.array([4.0])
    alpha0, alpha1, beta0, beta1, h, delay_s, idle = linear.numbers
    number = count_packets(4.0, h, delay_s)
    assert alpha0 * 4 + alpha1 * number == linear.session_filter(rate)[0] == 8
    assert beta0 * 4 + beta1 * number == linear.flow_filter(rate)[0] == 12
    assert count_heartbeats(linear.pauses(rate)[0], idle) == linear.heartbeat_price(rate)[0] == 0
    assert linear.stream(rate)[0] == 20


# --- what is saved --------------------------------------------------------------------------------


@given(data=st.data(), case=cases(), prices=st.one_of(PACKET_PRICES, st.just(FilteringPrices())))
def test_the_saving_of_unicast_is_the_cheapest_way_back_into_a_session(
    data: st.DataObject, case: tuple[Plan, Demand], prices: Prices
) -> None:
    plan, demand = case
    weights = data.draw(weights_for(demand))
    before = filtering_cost(plan, demand, prices, weights).work
    found = least_added_excess(plan, demand, prices, weights)
    flows = sorted({flow for _, flow in links(plan)})
    assert len(found) == len(flows)
    for flow, saving in zip(flows, found, strict=True):
        works = [
            filtering_cost(in_session(plan, flow, session), demand, prices, weights).work
            for session in range(plan.n_sessions)
        ]
        exact = 1e-9 * (before + min(works))
        assert saving == pytest.approx(min(works) - before, abs=exact)


@given(data=st.data(), demand=demands(rates=RATES), prices=PACKET_PRICES)
def test_the_saving_of_copies_is_the_cheapest_single_copy(
    data: st.DataObject, demand: Demand, prices: PacketPrices
) -> None:
    plan = data.draw(any_plans(demand.interest))
    weights = data.draw(weights_for(demand))
    before = filtering_cost(plan, demand, prices, weights).work
    it = oracles.plain(plan)
    sessions_of: dict[int, set[int]] = {}
    for flow, session in it.placed:
        sessions_of.setdefault(flow, set()).add(session)
    copied = sorted(flow for flow, sessions in sessions_of.items() if len(sessions) > 1)
    found = least_excess_of_one_copy(plan, demand, prices, weights)
    assert len(found) == len(copied)
    for flow, saving in zip(copied, found, strict=True):
        works = [
            filtering_cost(_only_in(plan, demand, flow, session), demand, prices, weights).work
            for session in sessions_of[flow]
        ]
        # A session may be left with nothing but the rounding of a difference.
        exact = 1e-6 * (before + min(works))
        assert saving == pytest.approx(min(works) - before, abs=exact)


def _only_in(plan: Plan, demand: Demand, flow: int, session: int) -> Plan:
    """One flow in one session alone, with all who want it subscribed there."""
    it = oracles.plain(plan)
    placed = {pair for pair in it.placed if pair[0] != flow} | {(flow, session)}
    audience = demand.interest.receivers_of(flow).tolist()
    subscribed = it.subscribed | {(receiver, session) for receiver in audience}
    placement, subscription = (
        np.array(sorted(pairs), np.int32).T for pairs in (placed, subscribed)
    )
    return Plan(
        plan.receivers, plan.flows, *placement, plan.session_group, *subscription,
        plan.unicast_receiver, plan.unicast_flow,
    )  # fmt: skip


# --- weights --------------------------------------------------------------------------------------


@given(data=st.data(), case=cases(), prices=st.one_of(PACKET_PRICES, st.just(FilteringPrices())))
def test_a_receiver_of_weight_n_counts_as_n_receivers_alike(
    data: st.DataObject, case: tuple[Plan, Demand], prices: Prices
) -> None:
    plan, demand = case
    n = len(plan.receivers)
    copies = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    weights = np.array(copies, np.float64)
    many, as_many = _repeat_receivers(plan, demand, copies)
    own = filtering_cost(plan, demand, prices, weights)
    other = filtering_cost(many, as_many, prices)
    assert own.work == pytest.approx(other.work, rel=1e-9)
    assert own.wanted_work == pytest.approx(other.wanted_work, rel=1e-9)
    assert own.flooding_work == pytest.approx(other.flooding_work, rel=1e-9)
    channel = ChannelPrices(2.0, 0.0)  # what is sent by unicast would be sent more often
    own_channel = channel_cost(plan, demand, channel, weights=weights)
    other_channel = channel_cost(many, as_many, channel)
    assert own_channel.cost == pytest.approx(other_channel.cost, rel=1e-9)
    assert own_channel.lower_bound == pytest.approx(other_channel.lower_bound, rel=1e-9)
    assert own_channel.flooding == pytest.approx(other_channel.flooding, rel=1e-9)


def _repeat_receivers(plan: Plan, demand: Demand, copies: list[int]) -> tuple[Plan, Demand]:
    """The same plan with each receiver there several times."""
    names = [
        (old, f"{name}/{copy}")
        for old, name in enumerate(plan.receivers)
        for copy in range(copies[old])
    ]
    names.sort(key=lambda pair: pair[1])
    originals = [old for old, _ in names]
    interest = demand.interest
    pairs = [
        (name, interest.flows[flow])
        for old, name in names
        for flow in oracles.wanted_flows(interest)[old]
    ]
    as_many = Demand(type(interest).from_pairs(pairs), demand.rate)
    it = oracles.plain(plan)
    subscribed = sorted(
        (new, session) for new, old in enumerate(originals) for r, session in it.subscribed
        if r == old
    )  # fmt: skip
    sent = {(new, f) for new, old in enumerate(originals) for r, f in links(plan) if r == old}
    receiver, session = np.array(subscribed, np.int32).reshape(-1, 2).T
    many = Plan(
        as_many.interest.receivers, plan.flows, plan.placement_flow, plan.placement_session,
        plan.session_group, receiver, session, plan.unicast_receiver[:0], plan.unicast_flow[:0],
    )  # fmt: skip
    return with_pairs(many, sent), as_many


@given(data=st.data(), case=cases())
def test_weights_of_one_change_nothing(data: st.DataObject, case: tuple[Plan, Demand]) -> None:
    plan, demand = case
    ones = np.ones(len(plan.receivers))
    weighted, plain = evaluate(plan, demand, weights=ones), evaluate(plan, demand)
    assert weighted.filtering.work == pytest.approx(plain.filtering.work, rel=1e-12)
    assert weighted.channel.cost == pytest.approx(plain.channel.cost, rel=1e-12)
    assert weighted.filtering.flooding_work == pytest.approx(
        plain.filtering.flooding_work, rel=1e-12
    )


@given(data=st.data(), case=cases())
def test_weights_scale_coefficients_too(data: st.DataObject, case: tuple[Plan, Demand]) -> None:
    plan, demand = case
    n = len(plan.receivers)
    weights = np.array(data.draw(st.lists(st.floats(0.1, 9), min_size=n, max_size=n)))
    ones = np.ones((n, len(plan.flows)))
    prices = ChannelPrices(2.0, 3.0)
    by_weight = channel_cost(plan, demand, prices, weights=weights)
    by_both = channel_cost(plan, demand, prices, ones, weights)
    assert by_both.cost == pytest.approx(by_weight.cost, rel=1e-9)
    assert by_both.flooding == pytest.approx(by_weight.flooding, rel=1e-9)


# --- heartbeats as the sender sends them ----------------------------------------------------------


def _send_heartbeats(rates: Sequence[float], seconds: float, seed: int) -> float:
    """Heartbeats per second of one group whose streams send packets at random, in virtual time."""
    params, rng = SenderParams(), random.Random(seed)
    beats = Heartbeats(params.heartbeat_min, params.heartbeat_max)
    streams = [
        OutgoingStream(number, "group", False, Packer(1_000, 8), RepairWindow(1, 1))
        for number in range(len(rates))
    ]
    due = [(rng.expovariate(rate), number) for number, rate in enumerate(rates)]
    heapify(due)
    for stream in streams:
        beats.put_off(stream, 0.0)
    sent = 0
    while (now := min(due[0][0], beats.next_at())) < seconds:
        if beats.next_at() <= due[0][0]:
            sent += sum(1 for _ in beats.take_due(now))
        else:
            number = due[0][1]
            beats.put_off(streams[number], now)
            heapreplace(due, (now + rng.expovariate(rates[number]), number))
    return sent / seconds


@pytest.mark.parametrize(
    "rates",
    [[0.01], [0.01] * 10, [1.0], [1.0] * 30, [10.0], [10.0] * 10, [30.0] * 3, [100.0] * 10,
     [300.0] * 5, [2000.0], [0.1, 1.0, 10.0, 100.0, 1000.0], [3.0, 3.0, 50.0, 800.0]],
)  # fmt: skip
def test_a_group_is_charged_about_the_heartbeats_that_the_sender_sends(rates: list[float]) -> None:
    sent = _send_heartbeats(rates, 30.0 if sum(rates) > 300 else 100.0, seed=1)
    each_alone = PacketPrices(0, 1, 0, 0, messages_per_packet=1)
    pauses = each_alone.pauses(np.array(rates)).sum()
    [charged] = each_alone.heartbeat_rate(np.array([pauses]))
    # Beside the packets themselves, the difference is small.
    assert abs(charged - sent) <= 0.15 * (sent + sum(rates)) + 1


@pytest.mark.parametrize(
    ("word", "bad"),
    [("alpha0", -1), ("alpha1", float("nan")), ("beta0", 2e12), ("beta1", float("inf")),
     ("heartbeats", -0.5), ("messages_per_packet", 0.5), ("delay_s", -1)],
)  # fmt: skip
def test_bad_prices_are_refused_by_name(word: str, bad: float) -> None:
    good = {"alpha0": 1.0, "alpha1": 1.0, "beta0": 1.0, "beta1": 1.0}
    with pytest.raises(ValueError, match=word):
        PacketPrices(**{**good, word: bad})


def test_something_must_cost_something() -> None:
    with pytest.raises(ValueError, match="cannot all be 0"):
        PacketPrices(0, 0, 0, 0)


def test_a_slow_session_pays_nearly_a_packet_for_each_message() -> None:
    rate = np.array([1.0, 7_000.0, 1e6])
    assert CALIBRATED.packing.packets(rate) == pytest.approx([1 / 1.001, 875, 125_000])
