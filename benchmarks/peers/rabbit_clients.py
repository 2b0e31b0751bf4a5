"""Clients of RabbitMQ under a load; runs in an environment of its own that has aio-pika."""

from __future__ import annotations

import asyncio
import pickle
import sys
from pathlib import Path

import aio_pika  # type: ignore[import-not-found]
from aio_pika.abc import AbstractIncomingMessage  # type: ignore[import-not-found]

from benchmarks.brokers_load import Driven, Load, Readings, Trade, drive


async def run(url: str, server: int, load: Load) -> Driven:
    """Bind a durable queue per client, then drive the load with confirmed, persistent messages."""
    readings = Readings()
    connections = [await aio_pika.connect(url) for _ in range(len(load.wanted) + 1)]
    try:
        channel = await connections[-1].channel(publisher_confirms=True)
        exchange = await channel.declare_exchange("trades", "headers", durable=True)
        for client, connection in enumerate(connections[:-1]):
            await _consume(connection, client, load, readings)

        async def publish(trade: Trade, payload: bytes) -> None:
            await exchange.publish(
                aio_pika.Message(
                    payload,
                    headers=trade.attributes,
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                ),
                routing_key="",
            )

        return await drive(publish, readings, load, [server])
    finally:
        for each in connections:
            await each.close()


async def _consume(
    connection: aio_pika.abc.AbstractConnection, client: int, load: Load, readings: Readings
) -> None:
    wanted = load.by_symbol(client)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10_000)
    queue = await channel.declare_queue(f"client-{client}", durable=True)
    for symbol, venue in sorted({(each.symbol, each.venue) for each in load.wanted[client]}):
        headers = {"symbol": symbol, **({"venue": venue} if venue else {})}
        await queue.bind("trades", arguments={"x-match": "all", **headers})

    async def take(message: AbstractIncomingMessage) -> None:
        readings.messages += 1
        trade = Trade(**message.headers)
        if any(each.accepts(trade) for each in wanted.get(trade.symbol, ())):
            readings.read(client, message.body)
        await message.ack()

    await queue.consume(take)


if __name__ == "__main__":
    url, server, given, found = sys.argv[1:]
    driven = asyncio.run(run(url, int(server), pickle.loads(Path(given).read_bytes())))
    Path(found).write_bytes(pickle.dumps(driven))
