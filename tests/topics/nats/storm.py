"""Two services under one prefix are killed and suspended while clients publish and read."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from distributary.topics.nats import TopicClient, run_embedded_server
from tests.topics.nats.running import Child, client
from tests.topics.peer.tcp.storm import Account, publish, read

SERVICES, TOPICS, READERS, EACH = 2, 6, 6, 3
STAYS = 12.0  # seconds for which a service is left in peace, at most
AWAY = 8.0  # seconds for which it is away, at most: longer than the lease lasts
PATIENCE = 240.0


async def blow(child: Child, until: float, rng: random.Random, account: Account) -> None:
    """Kill a service and start it again, or suspend it, until a time; then it is well."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(rng.uniform(0.0, STAYS))
        assert child.process is not None
        if child.process.returncode is not None:
            account.troubles.append(f"a service ended with {child.process.returncode}")
            return
        if rng.random() < 0.5:
            account.faults["killed"] += 1
            await child.kill()
            await asyncio.sleep(rng.uniform(0.0, AWAY / 2))
            await child.start(stands_by=True)
        else:
            account.faults["suspended"] += 1
            os.kill(child.process.pid, signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(0.1, AWAY))
            os.kill(child.process.pid, signal.SIGCONT)


async def wander(
    reader: TopicClient, names: list[str], done: asyncio.Event, rng: random.Random, account: Account
) -> None:
    """Subscribe to a topic, read some events, which follow on each other, and leave it again."""
    while not done.is_set():
        topic = rng.choice(names)
        subscription = await reader.subscribe(topic)
        last = None
        for _ in range(rng.randrange(1, 20)):
            try:
                event = await asyncio.wait_for(subscription.get(), 1.0)
            except TimeoutError:
                continue
            if event is None:
                account.troubles.append(f"the subscription to {topic} ended")
                return
            if last is not None and event.number != last + 1:
                account.troubles.append(f"{topic}: {event.number} came after {last}")
            last = event.number
        await reader.unsubscribe(topic)
        account.faults["moved"] += 1


async def storm(folder: Path, *, seconds: float, seed: int) -> Account:
    """Publish and read while services fail, and wait until everything is read."""
    rng = random.Random(seed)
    account, done = Account(), asyncio.Event()
    names = [f"topic {at}" for at in range(TOPICS)]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(run_embedded_server())
        children = [Child(server.options, folder / str(at)) for at in range(SERVICES)]
        for child in children:
            stack.push_async_callback(child.kill)
            await child.start(stands_by=True)
        clients = [client(server.options, timeout=PATIENCE) for _ in range(READERS + 3)]
        for each in clients:
            await stack.enter_async_context(each)
        publishers, wanderer, readers = clients[:2], clients[2], clients[3:]
        async with asyncio.TaskGroup() as group:
            for topic in names:
                await publishers[0].create(topic)
            reading = [
                group.create_task(read(each, topic, [], account))
                for each in readers
                for topic in rng.sample(names, EACH)
            ]
            async with asyncio.timeout(PATIENCE):
                while len(account.read) < len(reading):
                    await asyncio.sleep(0.1)
            working = [
                group.create_task(publish(publishers[at % 2], topic, account, done, rng))
                for at, topic in enumerate(names)
            ]
            working.append(group.create_task(wander(wanderer, names, done, rng, account)))
            until = asyncio.get_running_loop().time() + seconds
            await asyncio.gather(
                *(blow(c, until, random.Random(rng.random()), account) for c in children)
            )
            done.set()
            await asyncio.wait_for(asyncio.gather(*working), PATIENCE)
            async with asyncio.timeout(PATIENCE):
                while account.missing() and not account.troubles:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)  # what comes twice comes now
            for task in reading:
                task.cancel()
    return account
