"""The whole loop with Spark: interest shifts, the stream plans, the control plane moves over."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from distributary.control.nats import Control, ControlClient, SparkChoice
from distributary.control.nats.member_seats import PublisherPlace
from distributary.machines.nats import run_embedded_server
from tests.control.nats.fake_service import publisher_statistics
from tests.control.nats.services import run, serving, status_that

THEMES, FLOWS_EACH, READERS_EACH = 4, 6, 3
EVERY = 0.2  # seconds between two rounds of messages


def flows_of(theme: int) -> list[str]:
    return [f"{theme}.{at}" for at in range(FLOWS_EACH)]


async def publish(seat: PublisherPlace) -> None:
    """Count messages of all flows, and report them, without end."""
    rounds = 0
    while True:
        for theme in range(THEMES):
            for flow in flows_of(theme):
                for _ in range(5):
                    seat.count(flow)
        rounds += 1
        if rounds % 5 == 0:
            seat.report(1, publisher_statistics(rounds * 5 * THEMES * FLOWS_EACH))
        await asyncio.sleep(EVERY)


@pytest.mark.slow
def test_a_plan_that_no_longer_fits_is_planned_anew(tmp_path: Path) -> None:
    """At first everybody wants one flow of each theme; then each wants a theme of its own."""
    small = ("--master", "local[1]", "--conf", "spark.ui.enabled=false")
    spark = SparkChoice("embedded", small)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(run_embedded_server(tmp_path))
            terms = {"groups": 4, "sessions": 4, "max_moves": 24, "drift": 0.02}
            pace = {"trigger": 1.0, "rate_window": 20.0, "tolerance": 1e9}
            await enter(serving(server.options, tmp_path / "s", spark=spark, **terms, **pace))
            client = await enter(ControlClient(server.options, within=60.0))
            control = Control(tmp_path)
            publishing = asyncio.create_task(
                publish(await enter(control.seat_publisher("p", None, lambda fault: None)))
            )
            stack.callback(publishing.cancel)
            seats = [
                await enter(
                    control.seat_receiver(
                        f"r{theme}.{at}",
                        tuple(flows_of(other)[at] for other in range(THEMES)),
                        print,
                    )
                )
                for theme in range(THEMES)
                for at in range(READERS_EACH)
            ]
            await status_that(client, lambda found: found.stream.batch >= 1)
            for at, seat in enumerate(seats):
                seat.want(flows_of(at // READERS_EACH))
            found = await status_that(
                client, lambda found: found.force and found.force.kind == "planned"
            )
            assert found.stream.state == "running"
            assert found.stream.restarts == 0
            assert found.stream.rows["subscriptions"] > 0
            assert found.stream.rows["publications"] > 0
            assert found.force is not None
            assert found.force.moves > 0
            # By an oracle: each theme has a session of its own, so that nobody drops anything.
            while not all(len(found) == 1 for found in await list_sessions(client)):
                await asyncio.sleep(0.5)
            assert len(set.union(*await list_sessions(client))) == THEMES

    async def list_sessions(client: ControlClient) -> list[set[int | None]]:
        """The sessions of each theme's flows."""
        return [
            {(await client.flow(flow)).session for flow in flows_of(theme)}
            for theme in range(THEMES)
        ]

    run(work(), 1_200.0)
