"""Where the benchmarks of delivery run, and the receivers they measure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from distributary.delivery.udp import GroupAddresses, NetworkOptions
from distributary.files import write_plan
from distributary.model import Plan

NETWORK = NetworkOptions(GroupAddresses("239.77.0.0", 7_777), interface="lo", ttl=0)
PAYLOAD = 200  # bytes


def place(name: str) -> dict[str, Any]:
    """The settings of a measured receiver that say where it is."""
    groups = NETWORK.groups
    return {"name": name, "base": groups.base, "port": groups.port, "interface": "lo"}


def one_group(sessions: int, flows: int) -> Plan:
    """Sessions of so many flows in one group; receiver `r` subscribes to the first."""
    n = sessions * flows
    return Plan(
        ("r",),
        tuple(f"{at:05}" for at in range(n)),
        np.arange(n, dtype=np.int32),
        np.repeat(np.arange(sessions, dtype=np.int32), flows),
        np.zeros(sessions, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    )


@contextmanager
def stored(plan: Plan) -> Iterator[str]:
    """The folder of a plan, for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        write_plan(plan, {}, f"{folder}/plan")
        yield f"{folder}/plan"
