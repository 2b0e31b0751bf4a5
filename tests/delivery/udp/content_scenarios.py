"""What happens in the namespace when events are published by their content."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from distributary.files import FlowFilters
from distributary.model import Attribute, AttributeKind, Schema
from tests.delivery.content_plans import save_content
from tests.delivery.udp.command_scenarios import start_command, until_joined

STOCKS = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("volume", AttributeKind.INTEGER),
    )
)
IBM, DEAR, LARGE, RARE = "symbol = 'IBM'", "price > 120", "volume >= 500", "symbol = 'RARE'"
FLOWS = {"c-ibm": [IBM], "c-ibm-dear": [IBM, DEAR], "c-large": [LARGE], "c-silent": [RARE]}
OWNERS = {"ann": [IBM, LARGE], "bob": [DEAR], "cy": [LARGE], "dee": [RARE]}
ADHOC = "symbol = 'IBM' AND price > 125"


def _is_wanted(name: str, event: dict[str, Any]) -> bool:
    symbol, price, volume = event["symbol"], event["price"], event["volume"]
    match name:
        case "ann":
            return bool(symbol == "IBM" or volume >= 500)
        case "bob":
            return bool(price > 120)
        case "cy":
            return bool(volume >= 500)
        case "dee":
            return bool(symbol == "RARE")
    return bool(symbol == "IBM" and price > 125)


async def events_by_content(folder: str) -> None:
    where = Path(folder)
    save_content(FlowFilters.of(STOCKS, FLOWS, OWNERS), where)
    shared = (
        *("--plan", str(where / "plan"), "--content", str(where / "content")),
        *("--interface", "lo"),
    )
    events = [
        {
            "symbol": ("IBM", "GE", "RARE")[at % 3],
            "price": 100 + at % 41,
            "volume": at * 7 % 1_000,
            "id": at,
        }
        for at in range(600)
    ]
    wanted = {
        name: [event for event in events if _is_wanted(name, event)] for name in (*OWNERS, "adhoc")
    }
    receivers = {}
    for name, found in wanted.items():
        asked = ("--filter", ADHOC) if name == "adhoc" else ("--as", name)
        receivers[name] = await start_command(
            "receive", *shared, *asked, "--out", str(where / name), "--count", str(len(found)),
            "--json",
        )  # fmt: skip
    for at in range(len(receivers)):
        await until_joined("239.192.77.0", at + 1)
    sending = await start_command(
        "publish", *shared, "--json", "--max-bad", "1%", stdin=asyncio.subprocess.PIPE
    )
    lines = [json.dumps(event) for event in events]
    told, faults = await sending.communicate("\n".join([*lines, '{"symbol": 7}', ""]).encode())
    assert sending.returncode == 0, faults
    document = json.loads(told)["content"]
    assert document["bad"] == 1
    assert document["events"] == 601
    assert document["several"] > 0
    assert document["exact"] > 0
    assert b"have no flow of their own" in faults
    assert b"stdin, row 601" in faults
    for name, receiver in receivers.items():
        _, faults = await receiver.communicate()
        assert receiver.returncode == 0, faults
        assert b"Traceback" not in faults
        got = [json.loads(line) for line in (where / name).read_text().splitlines()]
        printed = [found for found in got if "report" not in found]
        # In the order of the publisher's numbers: flows of different sessions may overtake.
        printed.sort(key=lambda found: found["number"])
        assert [json.loads(found["payload"]) for found in printed] == wanted[name], name
        for flow in FLOWS:
            sequences = [found["sequence"] for found in got if found.get("flow") == flow]
            assert sequences == sorted(sequences)
