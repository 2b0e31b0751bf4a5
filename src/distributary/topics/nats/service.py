"""The channel service: runs a host with all channels of topics and clusters on a NATS server.

It can be stopped, killed and started again at any moment without losing what it has confirmed.
It handles messages in batches: it writes the records of a batch first, and only then sends the
messages that follow from it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.errors import LiveError
from distributary.machines.actions import Action, Append, Send, SetTimer
from distributary.machines.real.store import Store
from distributary.machines.real.tasks import own_tasks
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
        self._stopping = asyncio.Event()
        self._queue: asyncio.Queue[Msg | None] = asyncio.Queue(settings.queue)
        self._due: deque[Callable[[float], Iterable[Action]]] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._stopping.set()
        self._wake()

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
            nc = await stack.enter_async_context(
                connect_to_server(
                    self.options,
                    name="distributary topics",
                    echo=False,
                    on_reconnect=self._on_reconnect,
                    on_disconnect=self._on_disconnect,
                    on_error=self._on_error,
                )
            )
            stack.callback(self._cancel_timers)
            await self._serve(nc)

    async def _serve(self, nc: Client) -> None:
        try:
            await self._lease.listen(nc)
            await self._prove_lease(nc)
            self.host.fit(nc.max_payload - AROUND)
            await self._perform(nc, self.host.start(time.time()))
            await nc.subscribe(self.subjects.service, cb=self._queue.put)
            await nc.subscribe(self.subjects.status, cb=self._queue.put)
            await nc.flush()
        except nats.errors.Error as error:
            raise ServerAwayError(self.options.url, str(error)) from error
        self.started.set()
        async with own_tasks() as start:
            start(self._keep_house(nc))
            await self._pump(nc)
        if nc.is_connected:
            with suppress(nats.errors.Error):
                await nc.flush(timeout=_LAST_FLUSH)

    async def _prove_lease(self, nc: Client) -> None:
        """Return once no other service answers under our prefix, or we are told to stop."""
        while not (self._lease.held or self._stopping.is_set()):
            self._check_open(nc)
            if nc.is_connected:
                await self._lease.prove(nc)
            else:
                await asyncio.sleep(_SOON)

    def _check_open(self, nc: Client) -> None:
        if nc.is_closed:
            raise ServerAwayError(self.options.url, str(nc.last_error or _CLOSED))

    # --- in and out ----------------------------------------------------------------------------

    async def _pump(self, nc: Client) -> None:
        while not self._stopping.is_set():
            self._check_open(nc)
            batch = [await self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            if not self._lease.held:
                await self._prove_lease(nc)
                if not self._lease.held:
                    return  # told to stop; what came now is said again to the next service
                self.host.excuse(time.time())
            now = time.time()
            actions: list[Action] = []
            answers: list[tuple[str, bytes]] = []
            for message in batch:
                if message is not None:
                    actions += self._take(message, now, answers)
            while self._due:
                actions += self._due.popleft()(now)
            await self._perform(nc, actions)
            for reply, data in answers:
                await self._publish(nc, reply, data)
            self.traffic.batches += 1

    def _take(self, message: Msg, now: float, answers: list[tuple[str, bytes]]) -> Iterable[Action]:
        """Hand a message to the host; answers to requests go to `answers`, with their subjects."""
        self.traffic.received += 1
        if message.subject == self.subjects.status:
            if message.reply:
                answers.append((message.reply, self.status().encode()))
            return ()
        try:
            sender, said = decode(message.data)
            to = self.subjects.channel(message.subject)
        except ValueError:  # msgspec's are ValueErrors, too
            self.host.counts.refused += 1
            return ()
        actions = self.host.on_message(sender, ChannelMessage(to, said), now)
        if isinstance(said, Create):  # whoever creates a topic waits for the reply, nobody else
            found = [action for action in actions if _answers_create(action)]
            actions = [action for action in actions if action not in found]
            if message.reply:
                data = (encode(SERVICE, a.message.message) for a in found if isinstance(a, Send))
                answers += [(message.reply, each) for each in data]
        return actions

    async def _perform(self, nc: Client, actions: list[Action]) -> None:
        """Write all records, then send; of confirmations, the last one of each stream."""
        self._store.write([action.record for action in actions if isinstance(action, Append)])
        confirmed: dict[tuple[str, int], Taken] = {}
        last: Any = None
        data = b""
        for action in actions:
            if isinstance(action, SetTimer):
                self._set_timer(action.name, action.at)
            elif isinstance(action, Send):
                sender, message = action.message.channel, action.message.message
                if isinstance(message, Taken):
                    confirmed[action.to, message.stream] = message
                    continue
                if message is not last:  # one event goes to several channels
                    data = encode("" if isinstance(message, Event) else sender, message)
                    last = message
                await self._publish(nc, self._subject(action.to), data)
        for (client, _), taken in confirmed.items():
            await self._publish(nc, self.subjects.client(client), encode(SERVICE, taken))

    def _subject(self, to: str) -> str:
        channel = to.removeprefix(_MEMBERS)
        return self.subjects.client(to) if channel == to else self.subjects.on(channel)

    async def _publish(self, nc: Client, subject: str, data: bytes) -> None:
        if not self._lease.held:  # lost since the batch was begun: others may serve by now
            self.traffic.unsent += 1
            return
        try:
            await nc.publish(subject, data)
        except nats.errors.ConnectionClosedError:
            self._check_open(nc)
        except nats.errors.Error:  # no room, too large, or no subject that can be answered to
            self.traffic.unsent += 1
        else:
            self.traffic.sent += 1

    async def _on_disconnect(self) -> None:
        self._lease.lose()

    async def _on_reconnect(self) -> None:
        self._do(self.host.repeat_last)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.traffic.dropped += 1
        elif isinstance(error, MalformedMessageError):
            self.host.counts.refused += 1

    # --- time ----------------------------------------------------------------------------------

    def _set_timer(self, name: str, at: float | None) -> None:
        running = self._timers.pop(name, None)
        if running is not None:
            running.cancel()
        if at is not None:
            delay = max(0.0, at - time.time())
            call = asyncio.get_running_loop().call_later(delay, self._ring, name)
            self._timers[name] = call

    def _ring(self, name: str) -> None:
        self._timers.pop(name, None)
        self._do(partial(self.host.on_timer, name))

    def _do(self, what: Callable[[float], Iterable[Action]]) -> None:
        """Give the host an input of our own, after the next batch of messages."""
        self._due.append(what)
        self._wake()

    def _wake(self) -> None:
        if self._queue.empty():
            self._queue.put_nowait(None)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    async def _keep_house(self, nc: Client) -> None:
        settings = self.settings
        planned, looked = time.monotonic(), time.time()
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            asleep = time.time() - looked - _HOUSEKEEPING > settings.dead_after / 2
            looked = time.time()
            if not self._lease.held:
                self._wake()
                continue
            await self._lease.announce(nc)
            if asleep:
                self._do(self.host.excuse)
            else:
                self._do(lambda now: self.host.bury(now, settings.dead_after))
            self._do(lambda now: self.host.sweep(now, settings.forget_after))
            # Where members do not tell, nobody knows what they need: channels ask by themselves.
            if settings.policy.tells and time.monotonic() - planned >= settings.plan_every:
                self._do(self.adviser.remind)
                found = survey([self.host], time.time())
                advice = await asyncio.to_thread(self.adviser.propose, found)
                self._do(partial(self.adviser.give, advice))
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


def _answers_create(action: Action) -> bool:
    return isinstance(action, Send) and isinstance(action.message.message, Created | NoTopic)
