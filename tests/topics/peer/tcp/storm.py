"""Peers are killed and suspended at random while clients publish and read.

The account knows only what applications did and got: which events were acknowledged to their
publishers, and what each reader read.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from distributary.errors import LiveError
from distributary.topics.errors import NotConfirmedError
from distributary.topics.live import TopicClient
from tests.topics.peer.tcp.processes import PATIENCE, PeerProcess, make_client, run_peers

COPIES = 3
SETTLE = 5.0  # seconds between two pairs of failures: copies are made again meanwhile


@dataclass
class Account:
    """What was acknowledged by topic, what perhaps was, and what was read by reader and topic."""

    acknowledged: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    uncertain: set[bytes] = field(default_factory=set)
    read: dict[tuple[int, str], list[bytes]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)

    def missing(self) -> int:
        """Acknowledged events that a reader of their topic has not read."""
        return sum(
            len(set(self.acknowledged[topic]) - set(found))
            for (_, topic), found in self.read.items()
        )

    def check(self) -> None:
        """Every acknowledged event was read by every reader, once, in order."""
        assert not self.troubles, self.troubles[:3]
        for (reader, topic), found in self.read.items():
            said = self.acknowledged[topic]
            twice = [event for event, times in Counter(found).items() if times > 1]
            assert not twice, f"reader {reader} of {topic} got {twice[:3]} twice"
            lost = set(said) - set(found)
            assert not lost, f"reader {reader} of {topic} lacks {sorted(lost)[:3]}"
            strange = set(found) - set(said) - self.uncertain
            assert not strange, f"reader {reader} of {topic} got {sorted(strange)[:3]}"
            known = set(said)
            assert [event for event in found if event in known] == said, f"{topic}: out of order"


async def read(client: TopicClient, topic: str, found: list[bytes], account: Account) -> None:
    """Read a topic for ever; what is lost is written down."""
    subscription = await client.subscribe(topic)
    account.read[id(client), topic] = found
    while True:
        try:
            event = await subscription.get()
        except LiveError as error:
            account.troubles.append(f"{topic}: {error}")
            continue
        if event is None:
            return
        found.append(event.payload)


async def publish(
    client: TopicClient, topic: str, account: Account, done: asyncio.Event, rng: random.Random
) -> None:
    """Publish events in order until told to stop."""
    number = 0
    while not done.is_set():
        many = rng.choice((1, 1, 2, 3, 30))  # those of one turn travel together
        batch = [b"%s %d" % (topic.encode(), number + at) for at in range(many)]
        number += len(batch)
        results = await asyncio.gather(
            *(client.publish(topic, event) for event in batch), return_exceptions=True
        )
        for event, result in zip(batch, results, strict=True):
            if isinstance(result, NotConfirmedError):
                account.uncertain.add(event)
            elif isinstance(result, BaseException):
                raise result
            else:
                account.acknowledged[topic].append(event)
        await asyncio.sleep(rng.random() * 0.4)


async def fail(peer: PeerProcess, rng: random.Random, account: Account) -> None:
    """Kill a peer and start it again, or suspend it."""
    if rng.random() < 0.5:
        account.faults["killed"] += 1
        await peer.end()
        await asyncio.sleep(rng.random() * 3.0)
        await peer.start(joins=False)
    else:
        account.faults["suspended"] += 1
        peer.signal(signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(0.5, 8.0))
        peer.signal(signal.SIGCONT)


async def storm(
    folder: Path, *, peers: int, topics: int, readers: int, seconds: float, seed: int
) -> Account:
    """Run a ring, publish and read while peers fail, and wait until everything is read."""
    rng = random.Random(seed)
    account, done = Account(), asyncio.Event()
    names = [f"topic {at} ü" for at in range(topics)]
    async with run_peers(folder, peers, "--copies", str(COPIES)) as ring:
        clients = [make_client(rng.sample(ring, peers)) for _ in range(readers + 2)]
        publishers = clients[:2]
        for each in clients:
            await each.__aenter__()
        async with asyncio.TaskGroup() as group:
            for topic in names:
                await publishers[0].create(topic)
            reading = [
                group.create_task(read(each, topic, [], account))
                for each in clients[2:]
                for topic in rng.sample(names, max(1, topics // 3))
            ]
            async with asyncio.timeout(PATIENCE):
                while len(account.read) < len(reading):
                    await asyncio.sleep(0.1)
            publishing = [
                group.create_task(publish(publishers[at % 2], topic, account, done, rng))
                for at, topic in enumerate(names)
            ]
            await blow(ring, seconds, rng, account)
            done.set()
            await asyncio.wait_for(asyncio.gather(*publishing), PATIENCE)
            async with asyncio.timeout(PATIENCE):
                while account.missing() and not account.troubles:
                    await asyncio.sleep(0.1)
            for task in reading:
                task.cancel()
        for each in clients:
            await each.__aexit__(None, None, None)
    return account


async def blow(
    ring: list[PeerProcess], seconds: float, rng: random.Random, account: Account
) -> None:
    """Let at most two peers fail at a time, one copy less than there are."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        await asyncio.sleep(rng.random())
        await asyncio.gather(*(fail(each, rng, account) for each in rng.sample(ring, COPIES - 1)))
        await asyncio.sleep(min(rng.uniform(0.0, SETTLE), max(0.0, until - loop.time())))
