"""Several publishers of one plan on real sockets in a network namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


def test_a_killed_publisher_is_gone_and_comes_back(worker: Worker, tmp_path: Path) -> None:
    worker.run("a_killed_publisher_is_gone_and_comes_back", str(tmp_path))


def test_a_flow_is_handed_from_one_publisher_to_another(worker: Worker) -> None:
    worker.run("a_flow_is_handed_over")


def test_a_second_publisher_of_a_flow_is_refused(worker: Worker, tmp_path: Path) -> None:
    worker.run("a_second_publisher_of_a_flow_is_refused", str(tmp_path))
