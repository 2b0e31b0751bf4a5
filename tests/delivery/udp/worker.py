"""`python -m tests.delivery.udp.worker`: runs scenarios by name.

It reads a JSON list on each line, the name of a scenario and its arguments, runs it, and answers
with a line: done, skip or failed, and why.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from typing import Any

from tests.delivery.udp import (
    command_scenarios,
    content_scenarios,
    control_scenarios,
    hostile_scenarios,
    latency_scenarios,
    line_scenarios,
    publisher_scenarios,
    scenarios,
    seat_scenarios,
    subscription_log_scenarios,
    veth_scenarios,
)

PATIENCE = 240.0  # seconds after which a scenario fails: never how long anything should take
ROOMS = (
    scenarios,
    hostile_scenarios,
    latency_scenarios,
    command_scenarios,
    content_scenarios,
    control_scenarios,
    line_scenarios,
    publisher_scenarios,
    seat_scenarios,
    subscription_log_scenarios,
    veth_scenarios,
)


def answer(name: str, *values: Any) -> tuple[str, str]:
    """Run a scenario: what came of it."""
    scenario = next(getattr(room, name) for room in ROOMS if hasattr(room, name))

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario(*values)

    try:
        asyncio.run(bounded())
    except scenarios.SkipError as reason:
        return "skip", str(reason)
    except BaseException:
        return "failed", traceback.format_exc()
    finally:
        command_scenarios.kill_commands()
    return "done", ""


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
