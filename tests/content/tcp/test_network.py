"""Broker processes that die, stop and lose their connections, under traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.content.tcp.network_scenario import Ledger, Scenario, Sent, Verdict, judge, run_scenario


def check(verdict: Verdict) -> None:
    assert verdict.missing == []
    assert (verdict.doubled, verdict.out_of_order, verdict.unwanted) == (0, 0, 0)
    assert verdict.acknowledged > 0
    assert verdict.deliveries > 0


def test_three_brokers_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    scenario = Scenario(
        seed=5,
        brokers=3,
        clients=6,
        seconds=4.0,
        events_per_s=15.0,
        fault_every=0.5,
        longest_fault=1.0,
    )
    check(run_scenario(scenario, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_seven_brokers_lose_double_and_reorder_nothing(seed: int, tmp_path: Path) -> None:
    scenario = Scenario(seed, brokers=7, clients=20, seconds=30.0, events_per_s=8.0, fault_every=1)
    verdict = run_scenario(scenario, tmp_path)
    check(verdict)
    assert {"kill", "stop", "cut"} <= verdict.faults.keys()


def test_the_judge_sees_what_is_lost_doubled_late_or_unwanted() -> None:
    sent = [Sent("p", n, {"symbol": "IBM", "price": n}) for n in (1, 2, 3)]
    ledger = Ledger(acknowledged=sent)
    ledger.delivered["c", "price < 3"] = [("p", 3), ("p", 2), ("p", 2)]
    verdict = judge(ledger)
    assert verdict.missing == [(("c", "price < 3"), ("p", 1))]
    assert (verdict.doubled, verdict.out_of_order, verdict.unwanted) == (1, 2, 1)
