"""Members of a control plane that really runs, with traffic in a network of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


def test_members_go_on_without_their_control_plane(worker: Worker, tmp_path: Path) -> None:
    worker.run("members_go_on_without_their_control_plane", str(tmp_path))


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_members_and_control_outlive_a_server_that_is_away(
    worker: Worker, tmp_path: Path, seconds: float
) -> None:
    worker.run("the_server_is_away", str(tmp_path), seconds)


def test_commands_belong_to_a_control_plane(worker: Worker, tmp_path: Path) -> None:
    worker.run("commands_belong_to_a_control_plane", str(tmp_path))
