"""Two lines on real sockets in a network namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


@pytest.mark.parametrize("interface", ["veth0", "veth0,veth1"])
@pytest.mark.parametrize("base", ["239.192.77.0", "ff15::7700:0"])
def test_what_comes_on_both_lines_is_delivered_once(
    worker: Worker, base: str, interface: str
) -> None:
    worker.run("both_lines", base, interface)


def test_each_line_fills_the_gaps_of_the_other(worker: Worker) -> None:
    worker.run("loss_on_both_lines", 0.05)


@pytest.mark.parametrize("line", [0, 1], ids=["A", "B"])
@pytest.mark.parametrize("seconds", [0.5, pytest.param(10.0, marks=pytest.mark.slow)])
def test_a_line_that_is_cut_loses_nothing_and_costs_no_repair(
    worker: Worker, line: int, seconds: float
) -> None:
    worker.run("a_line_that_is_cut", line, seconds)


def test_a_line_whose_interface_goes_down_loses_nothing(worker: Worker) -> None:
    worker.run("an_interface_that_goes_down")


@pytest.mark.parametrize("line_b", [False, True], ids=["A", "B"])
def test_a_receiver_of_one_line_gets_what_is_published_on_two(worker: Worker, line_b: bool) -> None:
    worker.run("one_line_of_two", line_b)


def test_a_receiver_of_two_lines_gets_what_is_published_on_one(worker: Worker) -> None:
    worker.run("a_publisher_on_one_line")


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    ("base", "interface", "source", "other"),
    [
        ("232.77.0.0", "veth0", "10.77.0.1", "10.77.0.9"),
        ("232.77.0.0", "10.77.0.1", "10.77.0.1", "10.77.0.9"),
        ("239.192.77.0", "lo", "127.0.0.1", "127.0.0.2"),
        ("ff35::8000:0", "veth0", "fd77::1", "fd77::9"),
    ],
)
def test_only_the_source_that_is_named_is_heard(
    worker: Worker, base: str, interface: str, source: str, other: str, pairs: bool
) -> None:
    worker.run("one_source", base, interface, source, other, pairs)


def test_statistics_of_lines_are_served_to_prometheus(worker: Worker) -> None:
    worker.run("statistics_of_lines")


def test_commands_with_pairs_deliver_and_tell_of_both_lines(worker: Worker, tmp_path: Path) -> None:
    worker.run("commands_with_pairs", str(tmp_path))
