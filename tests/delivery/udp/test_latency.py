"""Latencies on real sockets in a network namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


@pytest.mark.parametrize("plain", [False, True], ids=["mmsg", "plain"])
def test_latencies_on_one_host_are_what_they_can_be(worker: Worker, plain: bool) -> None:
    worker.run("latency_on_one_host", plain)


@pytest.mark.parametrize("seconds", [3, -3])
def test_a_publisher_whose_clock_is_off_is_corrected(worker: Worker, seconds: int) -> None:
    worker.run("a_publisher_whose_clock_is_off", seconds)
