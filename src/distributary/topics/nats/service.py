"""The channel service: runs a host with all channels of topics and clusters on a NATS server.

It can be stopped, killed and started again at any moment without losing what it has confirmed.
It handles messages in batches: it writes the records of a batch first, and only then sends the
messages that follow from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.errors import LiveError
from distributary.machines.actions import Action, Append, Send
from distributary.machines.real import Driver, Store
from distributary.topics import Policy, members_of
from distributary.topics.advice import Adviser
from distributary.topics.codec import (
    AROUND,
    SERVICE,
    Create,
    Created,
    NoTopic,
    Taken,
    decode,
    encode,
)
from distributary.topics.errors import ServerAwayError
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import Event
from distributary.topics.nats.connection import MalformedMessageError
from distributary.topics.nats.lease import Lease
from distributary.topics.nats.options import NatsOptions, connect_to_server
from distributary.topics.nats.policy import LIVE
from distributary.topics.nats.subjects import Subjects
from distributary.topics.status import TopicStatus, status_of
from distributary.topics.store import TopicStore
from distributary.topics.survey import survey

__all__ = ["ServiceSettings", "TopicService"]

_MEMBERS = members_of("")
_CLOSED = "the connection is closed for good"
_BATCH = 512  # messages that share one write
_HOUSEKEEPING = 0.5  # seconds between two looks at who is alive and what is finished
_SOON = 0.05  # seconds
_LAST_FLUSH = 1  # seconds for the last words at the end


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How a service works; times in seconds.

    `folder` is its own, with all it must know again. `queue` bounds what waits to be taken in; when
    it is full the connection's own buffer fills, and what does not fit is dropped: clients say
    it again.
    """

    folder: Path
    policy: Policy = LIVE
    prefix: str = "distributary"
    seed: int = 0
    sync: bool = False  # outlive a loss of power too, not only the process
    dead_after: float = 10.0  # a client that is silent for so long is dead
    forget_after: float = 86_400.0  # a publisher that is silent for so long does not come back
    plan_every: float = 60.0  # ask for proposals of new clusters
    budget: int = 20_000  # subscriptions that proposals may move each time
    flow_memory: float = 10.0  # intervals that count for how busy a topic is
    queue: int = 10_000


@dataclass(slots=True)
class _Traffic:
    """What went through the connection."""

    received: int = 0
    sent: int = 0
    unsent: int = 0  # the server was away and the buffer full: repaired later
    dropped: int = 0  # by the connection, because we were too slow: said again by clients
    batches: int = 0
    since: float = field(default_factory=time.time)


class _Answer(NamedTuple):
    """What a request is answered with, once the records of its turn are written."""

    subject: str
    data: bytes


class TopicService:
    """Hosts channels until it is told to stop.

    `run` may be cancelled at any time: what was confirmed is kept. A `store` in the settings'
    folder may be given that is open already, and is not closed then.
    """

    def __init__(
        self, options: NatsOptions, settings: ServiceSettings, *, store: Store | None = None
    ) -> None:
        self.options = options
        self.settings = settings
        self.subjects = Subjects(settings.prefix)
        self.traffic = _Traffic()
        self.started = asyncio.Event()
        self.reports: list[str] = []  # what of its state could not be brought back
        self._opened = store
        self._lease = Lease(self.subjects)
        self._stopping = False
        self._nc: Client
        self._driver = Driver(
            self._take,
            lambda name, now: self.host.on_timer(name, now),
            {Send: self._send, _Answer: self._answer},
            clock=time.time,
            store=self._write,
            capacity=settings.queue,
            batch=_BATCH,
        )

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._stopping = True
        self._driver.stop()

    async def run(self) -> None:
        """Serve until `stop`, or until the server does not let us in any more."""
        async with AsyncExitStack() as stack:
            store = self._opened or stack.enter_context(
                Store(self.settings.folder, sync=self.settings.sync)
            )
            policy = self.settings.policy
            self._store = TopicStore(store, policy)
            self.reports = self._store.reports
            self.host = TopicHost(
                policy,
                self._store.state,
                seed=self.settings.seed,
                flow_memory=self.settings.flow_memory,
            )
            self.adviser = Adviser(self.host, self.settings.budget)
            self._nc = await stack.enter_async_context(
                connect_to_server(
                    self.options,
                    name="distributary topics",
                    echo=False,
                    on_reconnect=self._on_reconnect,
                    on_disconnect=self._on_disconnect,
                    on_error=self._on_error,
                )
            )
            async with self._driver:
                await self._begin(self._nc)
                self._driver.start(self._keep_house())
                await self._take_turns()
            if self._nc.is_connected:
                with suppress(nats.errors.Error):
                    await self._nc.flush(timeout=_LAST_FLUSH)

    async def _begin(self, nc: Client) -> None:
        try:
            await self._lease.listen(nc)
            await self._prove_lease()
            self.host.fit(nc.max_payload - AROUND)
            self._driver.call(self.host.start)
            await self._driver.turn()
            await nc.subscribe(self.subjects.service, cb=self._driver.put)
            await nc.subscribe(self.subjects.status, cb=self._driver.put)
            await nc.flush()
        except nats.errors.Error as error:
            raise ServerAwayError(self.options.url, str(error)) from error
        self.started.set()

    async def _prove_lease(self) -> None:
        """Return once no other service answers under our prefix, or we are told to stop."""
        while not (self._lease.held or self._stopping):
            self._check_open()
            if self._nc.is_connected:
                await self._lease.prove(self._nc)
            else:
                await asyncio.sleep(_SOON)

    def _check_open(self) -> None:
        if self._nc.is_closed:
            raise ServerAwayError(self.options.url, str(self._nc.last_error or _CLOSED))

    # --- in and out ----------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        while await self._driver.wait():
            self._check_open()
            if not self._lease.held:
                await self._prove_lease()
                if not self._lease.held:
                    return  # told to stop; what came now is said again to the next service
                self.host.excuse(time.time())
            await self._driver.turn()
            self.traffic.batches += 1

    def _take(self, message: Msg, now: float) -> Iterable[Action | _Answer]:
        """Hand a message to the host; requests get their answers."""
        self.traffic.received += 1
        if message.subject == self.subjects.status:
            return [_Answer(message.reply, self.status().encode())] if message.reply else ()
        try:
            sender, said = decode(message.data)
            to = self.subjects.channel(message.subject)
        except ValueError:  # msgspec's are ValueErrors, too
            self.host.counts.refused += 1
            return ()
        actions = self.host.on_message(sender, ChannelMessage(to, said), now)
        if isinstance(said, Create):  # whoever creates a topic waits for the reply, nobody else
            return list(_redirect_answers(actions, message.reply))
        return actions

    def _write(self, records: list[Append]) -> None:
        self._store.write([action.record for action in records])

    async def _send(self, sends: list[Send]) -> None:
        """Send messages; of confirmations, the last one of each stream."""
        confirmed: dict[tuple[str, int], Taken] = {}
        last: Any = None
        data = b""
        for action in sends:
            sender, message = action.message.channel, action.message.message
            if isinstance(message, Taken):
                confirmed[action.to, message.stream] = message
                continue
            if message is not last:  # one event goes to several channels
                data = encode("" if isinstance(message, Event) else sender, message)
                last = message
            await self._publish(self._subject(action.to), data)
        for (client, _), taken in confirmed.items():
            await self._publish(self.subjects.client(client), encode(SERVICE, taken))

    async def _answer(self, answers: list[_Answer]) -> None:
        for answer in answers:
            await self._publish(answer.subject, answer.data)

    def _subject(self, to: str) -> str:
        channel = to.removeprefix(_MEMBERS)
        return self.subjects.client(to) if channel == to else self.subjects.on(channel)

    async def _publish(self, subject: str, data: bytes) -> None:
        if not self._lease.held:  # lost since the batch was begun: others may serve by now
            self.traffic.unsent += 1
            return
        try:
            await self._nc.publish(subject, data)
        except nats.errors.ConnectionClosedError:
            self._check_open()
        except nats.errors.Error:  # no room, too large, or no subject that can be answered to
            self.traffic.unsent += 1
        else:
            self.traffic.sent += 1

    async def _on_disconnect(self) -> None:
        self._lease.lose()

    async def _on_reconnect(self) -> None:
        self._driver.call(self.host.repeat_last)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.traffic.dropped += 1
        elif isinstance(error, MalformedMessageError):
            self.host.counts.refused += 1

    async def _keep_house(self) -> None:
        settings, call = self.settings, self._driver.call
        planned, looked = time.monotonic(), time.time()
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            asleep = time.time() - looked - _HOUSEKEEPING > settings.dead_after / 2
            looked = time.time()
            if not self._lease.held:
                call(lambda now: ())  # a turn begins with proving it
                continue
            await self._lease.announce(self._nc)
            if asleep:
                call(self.host.excuse)
            else:
                call(lambda now: self.host.bury(now, settings.dead_after))
            call(lambda now: self.host.sweep(now, settings.forget_after))
            # Where members do not tell, nobody knows what they need: channels ask by themselves.
            if settings.policy.tells and time.monotonic() - planned >= settings.plan_every:
                call(self.adviser.remind)
                found = survey([self.host], time.time())
                advice = await asyncio.to_thread(self.adviser.propose, found)
                call(partial(self.adviser.give, advice))
                planned = time.monotonic()

    # --- looking -------------------------------------------------------------------------------

    def status(self) -> TopicStatus:
        """How things are now."""
        if not self.started.is_set():
            raise LiveError("the channel service has not started; wait for it")
        traffic = self.traffic
        return status_of(
            self.host,
            time.time(),
            uptime=time.time() - traffic.since,
            received=traffic.received,
            sent=traffic.sent,
            unsent=traffic.unsent,
            dropped=traffic.dropped,
            batches=traffic.batches,
        )


def _redirect_answers(actions: Iterable[Action], reply: str) -> Iterator[Action | _Answer]:
    """Have what answers a `Create` go to the reply's subject, if there is one."""
    for action in actions:
        if not (isinstance(action, Send) and isinstance(action.message.message, Created | NoTopic)):
            yield action
        elif reply:
            yield _Answer(reply, encode(SERVICE, action.message.message))
