"""Channels and streams for Aeron: a group is a channel, a session a stream in it.

The grammar is that of Aeron's `ChannelUri`:

    uri   = "aeron:" media [ "?" param *( "|" param ) ]
    media = any but "?" and ":"
    param = key "=" value        key = any but "="        value = any but "|"

Here the media is `udp`, and the keys are `endpoint` (address and port; Aeron sends its control
messages to the next address, see `delivery.addresses`), `interface` if one is configured, and
`alias`, which appears only in Aeron's counters. Add `|ttl=8` or the like if groups cross routers:
Aeron uses the system's default of 1. Stream ids are session numbers plus 1, since Aeron reserves 0.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

from distributary.export.network import Network
from distributary.model import Plan

__all__ = ["aeron_files"]


def aeron_files(plan: Plan, network: Network) -> dict[str, bytes]:
    """`aeron.json`: the streams of each session with its flows, and of each receiver."""
    streams = _session_streams(plan, network)
    flows: list[list[str]] = [[] for _ in streams]
    for flow, session in zip(
        plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True
    ):
        flows[session].append(plan.flows[flow])
    subscribed: list[list[dict[str, Any]]] = [[] for _ in plan.receivers]
    for receiver, session in zip(
        plan.subscription_receiver.tolist(), plan.subscription_session.tolist(), strict=True
    ):
        subscribed[receiver] += streams[session]
    document = {
        "sessions": [
            {"session": session, "group": group, "streams": streams[session], "flows": names}
            for session, (group, names) in enumerate(
                zip(plan.session_group.tolist(), flows, strict=True)
            )
        ],
        "receivers": [
            {"receiver": receiver, "streams": wanted}
            for receiver, wanted in zip(plan.receivers, subscribed, strict=True)
        ],
    }
    return {"aeron.json": (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()}


def _session_streams(plan: Plan, network: Network) -> list[list[dict[str, Any]]]:
    """Channel and stream id of each session, on each line."""
    address = {(a.group, a.line): a.address for a in network.assign(plan.n_groups)}
    return [
        [
            {
                "line": line,
                "channel": _channel(
                    address[group, line],
                    network.port,
                    network.interface(line),
                    f"g{group}.s{session}.{line}",
                ),
                "streamId": session + 1,
            }
            for line in network.lines
        ]
        for session, group in enumerate(plan.session_group.tolist())
    ]


def _channel(address: str, port: int, interface: str | None, alias: str) -> str:
    host = address if ip_address(address).version == 4 else f"[{address}]"
    params = {"endpoint": f"{host}:{port}", "interface": interface, "alias": alias}
    written = "|".join(f"{key}={value}" for key, value in params.items() if value is not None)
    return f"aeron:udp?{written}"
