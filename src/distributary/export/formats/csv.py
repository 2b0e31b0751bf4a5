"""Plain tables: which address each flow is sent to, and which addresses each receiver joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from distributary.delivery.addresses import GroupAddress
from distributary.export.network import Network
from distributary.export.tables import (
    csv_bytes,
    dictionary_column,
    placement_columns,
    subscription_columns,
    unicast_columns,
)
from distributary.model import IndexArray, Plan

__all__ = ["csv_files"]


def csv_files(plan: Plan, network: Network) -> dict[str, bytes]:
    """`flows.csv`, `subscriptions.csv` and `groups.csv`: one row per line (A, or A and B).

    Where flows go by unicast, `unicast.csv` has their receivers: it is for the sender to reach
    them.
    """
    n_lines, addresses = len(network.lines), network.assign(plan.n_groups)
    ends = {
        "flows": (placement_columns(plan, n_lines), plan.placement_session),
        "subscriptions": (subscription_columns(plan, n_lines), plan.subscription_session),
    }
    unicast = {}
    if len(plan.unicast_flow):
        unicast["unicast.csv"] = csv_bytes(unicast_columns(plan))
    return (
        unicast
        | {
            f"{name}.csv": csv_bytes(
                {**columns, **_place_columns(plan.session_group[session], addresses, network)}
            )
            for name, (columns, session) in ends.items()
        }
        | {"groups.csv": _groups(addresses, network)}
    )


def _place_columns(
    group: IndexArray, addresses: tuple[GroupAddress, ...], network: Network
) -> dict[str, Any]:
    """Line, address and port of each row; addresses come group by group, line by line."""
    n_lines = len(network.lines)
    line = np.tile(np.arange(n_lines), len(group))
    return {
        "line": dictionary_column(network.lines, line),
        "address": dictionary_column(
            [a.address for a in addresses], np.repeat(group, n_lines) * n_lines + line
        ),
        "port": pa.array(np.full(len(line), network.port, np.int32)),
    }


def _groups(addresses: tuple[GroupAddress, ...], network: Network) -> bytes:
    return csv_bytes(
        {
            "group": pa.array([a.group for a in addresses], pa.int32()),
            "line": pa.array([a.line for a in addresses]),
            "address": pa.array([a.address for a in addresses]),
            "port": pa.array([network.port] * len(addresses), pa.int32()),
            "mac": pa.array([a.mac for a in addresses]),
        }
    )
