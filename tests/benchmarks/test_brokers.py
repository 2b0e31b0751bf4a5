"""The load of the benchmark of content brokers."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.brokers_load import CLIENTS, WARM, Load, Readings, Trade, drive, make_load


@pytest.fixture(scope="module")
def load() -> Load:
    return make_load(400, slow=WARM + 3, fast=97)


def test_filters_at_clients_accept_what_sqlite_selects(load: Load) -> None:
    for client in range(CLIENTS):
        by_symbol = load.by_symbol(client)
        accepted = [
            at
            for at, trade in enumerate(load.trades)
            if any(each.accepts(trade) for each in by_symbol.get(trade.symbol, ()))
        ]
        assert accepted == load.expected[client]


def test_a_smaller_load_has_the_first_trades_of_both_phases(load: Load) -> None:
    smaller = load.first(2, 10)
    assert smaller.trades == load.trades[:2] + load.trades[WARM + 3 : WARM + 13]
    assert smaller.count_expected(0, 2) == load.count_expected(0, 2)
    assert smaller.count_expected(2, 12) == load.count_expected(WARM + 3, WARM + 13)


@pytest.mark.parametrize("fault", ["", "doubled", "elsewhere"])
def test_driving_a_load_sees_deliveries_that_are_wrong(load: Load, fault: str) -> None:
    async def run() -> None:
        readings = Readings()

        async def publish(trade: Trade, payload: bytes) -> None:
            at = int(payload.split()[0])
            clients = [client for client in range(CLIENTS) if at in load.expected[client]]
            if fault == "doubled" and at == 50:
                clients.append(0)
                clients.append(0)
            elif fault == "elsewhere" and at >= 50:
                clients = [(client + 1) % CLIENTS for client in clients]
            for client in clients:
                readings.read(client, payload)

        driven = await drive(publish, readings, load, [])
        assert driven.events_per_s > 0
        assert len(driven.late) == load.count_expected(WARM, WARM + 3)

    if fault:
        with pytest.raises(AssertionError, match="client"):
            asyncio.run(run())
    else:
        asyncio.run(run())
