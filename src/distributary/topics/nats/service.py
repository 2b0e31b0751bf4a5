"""The channel service: runs a host with all channels of topics and clusters on a NATS server.

It can be stopped, killed and started again at any moment without losing what it has confirmed.
It handles messages in batches: it writes the records of a batch first, and only then sends the
messages that follow from it.

Where the server has JetStream the state is kept there, and further services stand by: one of them
goes on from that state when the one that serves ends, or is cut off. Elsewhere the state is in a
folder, and only one service can run.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from distributary.errors import LiveError
from distributary.machines.actions import Action, Send
from distributary.machines.nats.connection import MalformedMessageError
from distributary.machines.nats.jetstream import AWAY, find_jetstream
from distributary.machines.nats.lease import KeptLease
from distributary.machines.nats.options import NatsOptions, connect_to_server
from distributary.machines.real import Driver, Store
from distributary.machines.real.tasks import own_tasks
from distributary.topics import Policy, topic_channel
from distributary.topics.advice import Adviser
from distributary.topics.codec import (
    AROUND,
    SERVICE,
    Create,
    Created,
    NoTopic,
    Remove,
    Removed,
    decode,
    encode,
)
from distributary.topics.errors import (
    NoStateError,
    ServerAwayError,
    ServiceReplacedError,
    SubjectDeniedError,
)
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import Advise
from distributary.topics.nats.lease import Lease
from distributary.topics.nats.packer import Packer
from distributary.topics.nats.packets import (
    BEAT,
    PACKETS,
    decode_beat,
    decode_joint_puts,
    decode_puts,
)
from distributary.topics.nats.permissions import Refusal, read_refusal
from distributary.topics.nats.policy import LIVE
from distributary.topics.nats.state_log import StateLog, StoppedError
from distributary.topics.nats.storage_watch import StorageWatch
from distributary.topics.nats.subjects import JOINT, Subjects
from distributary.topics.status import TopicStatus, status_of
from distributary.topics.store import TopicStore
from distributary.topics.survey import ChannelSurvey, survey

__all__ = ["ServiceSettings", "TopicService"]

_CLOSED = "the connection is closed for good"
_AWAY = (*AWAY, nats.errors.ConnectionClosedError)
_ANSWERS: Mapping[type, tuple[type, ...]] = {Create: (Created, NoTopic), Remove: (Removed,)}
_PLACE = "place"  # the key of the store
_BATCH = 512  # messages that share one write
_HOUSEKEEPING = 0.5  # seconds between two looks at who is alive and what is finished
_SOON = 0.05  # seconds
_REST = 9  # the pause after a search for clusters, in times of its processor time
_MOST_DENIED = 20  # subjects
_LAST_FLUSH = 1  # seconds for the last words at the end


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How a service works; times in seconds.

    `folder` is its own, with all it must know again where the server has no JetStream; what it has
    from before is moved into JetStream. `queue` bounds what waits to be taken in; when it is full
    the connection's own buffer fills, and what does not fit is dropped: clients say it again.
    """

    folder: Path | None
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
    searches: int = 0  # for better clusters
    search_seconds: float = 0.0  # of processor time that the last one took
    since: float = field(default_factory=time.time)


class _Former(NamedTuple):
    """The state of a former version, and the store of the folder that has it."""

    store: Store
    kept: TopicStore


class _Answer(NamedTuple):
    """What a request is answered with, once the records of its turn are written."""

    subject: str
    data: bytes


class TopicService:
    """Hosts channels until it is told to stop.

    `run` may be cancelled at any time: what was confirmed is kept. A `store` in the settings'
    folder may be given that is open already, and is not closed then. `report` is called with what
    an operator should know, in words.
    """

    def __init__(
        self,
        options: NatsOptions,
        settings: ServiceSettings,
        *,
        store: Store | None = None,
        report: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.options = options
        self.settings = settings
        self.subjects = Subjects(settings.prefix)
        self.traffic = _Traffic()
        self.started = asyncio.Event()
        self.standing_by = asyncio.Event()  # at least once
        self.reports: list[str] = []  # what of its state could not be brought back
        self._report = report
        self._watch = StorageWatch(report, lambda: self._nc.is_connected)
        self._denied: set[tuple[str, str]] = set()  # what the server refuses, reported once
        self._opened = store
        self._claim = Lease(self.subjects)
        self._lease: Lease | KeptLease = self._claim
        self._stopping = False
        self._nc: Client
        self._driver: Driver[Msg] | None = None  # while it serves

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._stopping = True
        if self._driver is not None:
            self._driver.stop()

    async def run(self) -> None:
        """Serve until `stop`, or until the server does not let us in any more."""
        async with AsyncExitStack() as stack:
            store, folder = self._opened, self.settings.folder
            if store is None and folder is not None:
                store = stack.enter_context(Store(folder, sync=self.settings.sync))
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
            js = await find_jetstream(self._nc, self.options.url)
            if js is not None:
                await self._serve_in_turn(js, store)
            elif store is not None:
                await self._serve_alone(store)
            else:
                raise NoStateError(self.options.url)
            if self._nc.is_connected:
                with suppress(nats.errors.Error):
                    await self._nc.flush(timeout=_LAST_FLUSH)

    # --- terms ---------------------------------------------------------------------------------

    async def _serve_alone(self, store: Store) -> None:
        """Serve with the state in a folder; another service under our prefix ends one of us."""
        kept = TopicStore(store, self.settings.policy)
        self.reports = kept.reports
        await self._claim.listen(self._nc)
        async with own_tasks() as start:
            start(self._keep_lease())
            await self._serve(kept)

    async def _serve_in_turn(self, js: JetStreamContext, store: Store | None) -> None:
        """Stand by, serve with the state in JetStream, and stand by again when replaced."""
        lease = self._lease = KeptLease(
            js,
            self.subjects.stream("lease"),
            lambda: ServiceReplacedError(self.settings.prefix),
            place=_name_place(store),
        )
        former = self._open_former(store)
        try:
            await lease.open()
            while not self._stopping:
                self.standing_by.set()
                if not await lease.take(lambda: self._stopping, self._tell_holder):
                    return
                try:
                    await self._serve_once(js, former)
                finally:
                    await lease.give_back()
        except StoppedError:
            return  # what could not be stored is confirmed to nobody
        except _AWAY as error:
            raise ServerAwayError(self.options.url, str(self._nc.last_error or error)) from error

    async def _serve_once(self, js: JetStreamContext, former: _Former | None) -> None:
        """Serve with the lease, until told to stop or until there is a reason to stand by."""
        try:
            async with own_tasks() as start:
                start(self._keep_lease())
                await self._serve(await self._open_log(js, former))
        except ServiceReplacedError:
            self._report("another service has taken over; this one stands by")
        except (*_AWAY, ServerAwayError) as error:
            self._check_open()
            reason = str(error) or type(error).__name__
            self._report(f"the server was away as this service began ({reason}); it stands by")
            await asyncio.sleep(_HOUSEKEEPING)

    def _tell_holder(self, holder: str) -> None:
        self._report(f"standing by: {holder} serves {self.settings.prefix!r}")

    async def _keep_lease(self) -> None:
        """Renew the lease, also while the state is read; raises an error if another has it."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            # One that is lost while we serve is proven at the beginning of a turn.
            if self._lease.held or self._driver is None:
                await self._lease.announce(self._nc)
            self._note_lease()

    def _note_lease(self) -> None:
        if self._lease.held:
            self._watch.note_stored("lease")
        elif isinstance(self._lease, KeptLease):
            self._watch.note_failed("lease")

    def _open_former(self, store: Store | None) -> _Former | None:
        """Read the state that a former version kept in the folder, before there is a lease.

        It takes seconds if it is large, in which a lease would not be renewed.
        """
        if store is None or not TopicStore.holds_state(store):
            return None
        return _Former(store, TopicStore(store, self.settings.policy))

    async def _open_log(self, js: JetStreamContext, former: _Former | None) -> StateLog:
        log = StateLog(
            js,
            self.subjects,
            self.settings.policy,
            most_payload=self._nc.max_payload,
            stopping=lambda: self._stopping,
            watch=self._watch,
        )
        was_empty = await log.open()
        self.reports = log.reports
        if former is not None and TopicStore.holds_state(former.store):
            await self._move_state(former, log, was_empty)
        return log

    async def _move_state(self, former: _Former, log: StateLog, was_empty: bool) -> None:
        """Move the state of a former version from the folder into JetStream."""
        store, kept = former
        self.reports += kept.reports
        if was_empty:
            await log.shorten(kept.state)
            store.replace([])
            self._report(f"moved the state in {store.path} into JetStream")
        else:
            self.reports.append(
                f"{store.path}: ignored, because the state is in JetStream; remove the file"
            )

    async def _serve(self, kept: TopicStore | StateLog) -> None:
        """Host channels until told to stop, or until another service replaces this one."""
        settings = self.settings
        self.host = TopicHost(
            settings.policy, kept.state, seed=settings.seed, flow_memory=settings.flow_memory
        )
        self.adviser = Adviser(self.host, settings.budget)
        for each in self.reports:
            self._report(f"warning: {each}")
        self._driver = Driver(
            self._take,
            lambda name, now: self.host.on_timer(name, now),
            {Send: self._send, _Answer: self._answer},
            clock=time.time,
            store=lambda found: kept.write([action.record for action in found]),
            capacity=settings.queue,
            batch=_BATCH,
        )
        if self._stopping:
            self._driver.stop()
        try:
            async with self._driver, AsyncExitStack() as stack:
                await self._begin(self._driver, stack)
                self._report(f"serving topics on {self.options.address}, state in {kept.place}")
                self._driver.start(self._keep_house(self._driver))
                # Where members do not tell, nobody knows what they need: channels ask themselves.
                if settings.policy.tells:
                    self._driver.start(self._plan_clusters(self._driver))
                await self._take_turns(self._driver)
        finally:
            self._driver = None

    async def _begin(self, driver: Driver[Msg], stack: AsyncExitStack) -> None:
        nc = self._nc
        try:
            await self._prove_lease()
            self.host.fit(nc.max_payload - AROUND)
            # In a thread, because it takes seconds if there are many topics: the lease is renewed.
            driver.call(lambda now: asyncio.to_thread(self.host.start, now))
            await driver.turn()
            for subject in (self.subjects.service, self.subjects.status):
                heard = await nc.subscribe(subject, cb=driver.put)
                stack.push_async_callback(_unsubscribe, heard)
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
                self._note_lease()
            else:
                await asyncio.sleep(_SOON)

    def _check_open(self) -> None:
        if self._nc.is_closed:
            raise ServerAwayError(self.options.url, str(self._nc.last_error or _CLOSED))

    # --- in and out ----------------------------------------------------------------------------

    async def _take_turns(self, driver: Driver[Msg]) -> None:
        while await driver.wait():
            self._check_open()
            if not self._lease.held:
                await self._prove_lease()
                if not self._lease.held:
                    return  # told to stop; what came now is said again to the next service
                self.host.excuse(time.time())
            await driver.turn()
            self.traffic.batches += 1

    def _take(self, message: Msg, now: float) -> Iterable[Action | _Answer]:
        """Hand a message to the host; requests get their answers."""
        self.traffic.received += 1
        if message.subject == self.subjects.status:
            return [_Answer(message.reply, self.status().encode())] if message.reply else ()
        try:
            found = self._decode(message)
        except ValueError:  # msgspec's are ValueErrors, too
            self.host.counts.refused += 1
            return ()
        actions = [
            action for sender, said in found for action in self.host.on_message(sender, said, now)
        ]
        answers = _ANSWERS.get(type(found[0][1].message)) if found else None
        if answers:  # who asks waits for the reply, nobody else
            return list(_redirect_answers(actions, answers, message.reply))
        return actions

    def _decode(self, message: Msg) -> list[tuple[str, ChannelMessage]]:
        """What a message says to channels, each with its sender; raises `ValueError`."""
        to, data = self.subjects.channel(message.subject), message.data
        if to == JOINT:
            sender, found = decode_joint_puts(data)
            puts = ((topic_channel(topic), put) for topic, each in found for put in each)
            return [(sender, ChannelMessage(channel, put)) for channel, put in puts]
        if data[:1] == BEAT:
            sender, beat = decode_beat(data)
            return [(sender, ChannelMessage(to, beat))]
        if data[:1] and data[0] in PACKETS:
            sender, stream = decode_puts(data)
            return [(sender, ChannelMessage(to, put)) for put in stream]
        sender, said = decode(data)
        return [(sender, ChannelMessage(to, said))]

    async def _send(self, sends: list[Send]) -> None:
        """Send messages, the events of a topic together, and the confirmations of a client."""
        packer = Packer(self.subjects, self._nc.max_payload)
        for action in sends:
            packer.add(action)
        for subject, data in packer.finish():
            await self._publish(subject, data)

    async def _answer(self, answers: list[_Answer]) -> None:
        for answer in answers:
            await self._publish(answer.subject, answer.data)

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
        if self._driver is not None:
            self._driver.call(self.host.repeat_last)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.traffic.dropped += 1
        elif isinstance(error, MalformedMessageError) and self._driver is not None:
            self.host.counts.refused += 1
        elif (refusal := read_refusal(error)) is not None:
            self._report_refusal(refusal)

    def _report_refusal(self, refusal: Refusal) -> None:
        """Report what the server forbids, once: clients wait for it, or miss it, in silence."""
        denied = (refusal.action, refusal.find_family(self.subjects))
        if denied not in self._denied and len(self._denied) < _MOST_DENIED:
            self._denied.add(denied)
            self._report(f"warning: {SubjectDeniedError(*denied)}")

    async def _keep_house(self, driver: Driver[Msg]) -> None:
        settings, call = self.settings, driver.call
        looked = time.time()
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            asleep = time.time() - looked - _HOUSEKEEPING > settings.dead_after / 2
            looked = time.time()
            if not self._lease.held:
                call(lambda now: ())  # a turn begins with proving it
                continue
            if asleep:
                call(self.host.excuse)
            else:
                call(lambda now: self.host.bury(now, settings.dead_after))
            call(lambda now: self.host.sweep(now, settings.forget_after))

    async def _plan_clusters(self, driver: Driver[Msg]) -> None:
        """Look for better clusters now and then, for a tenth of a processor's time at most.

        The search sees a copy and runs in a thread. The host gets what follows from it in small
        inputs, one in each turn, so that it goes on to serve its clients.
        """
        traffic, pause = self.traffic, self.settings.plan_every
        while True:
            await asyncio.sleep(pause)
            if not self._lease.held:
                continue
            await driver.call_in_turns(self.adviser.reminders())
            found = survey([self.host], time.time())
            advice, traffic.search_seconds = await asyncio.to_thread(self._search, found)
            await driver.call_in_turns(self.adviser.hand_out(advice))
            traffic.searches += 1
            pause = max(self.settings.plan_every, _REST * traffic.search_seconds)

    def _search(self, found: ChannelSurvey) -> tuple[list[tuple[str, Advise]], float]:
        """Search for clusters; returns the processor time that it took, too."""
        began = time.thread_time()
        return self.adviser.propose(found), time.thread_time() - began

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
            searches=traffic.searches,
            search_seconds=traffic.search_seconds,
        )


def _name_place(store: Store | None) -> str:
    """A name for a folder that is unique, and stays the same; empty without a folder."""
    if store is None:
        return ""
    place = store.get(_PLACE)
    if place is None:
        place = secrets.token_hex(8).encode()
        store.put(_PLACE, place)
    return place.decode()


async def _unsubscribe(heard: Subscription) -> None:
    with suppress(nats.errors.Error):
        await heard.unsubscribe()


def _redirect_answers(
    actions: Iterable[Action], kinds: tuple[type, ...], reply: str
) -> Iterator[Action | _Answer]:
    """Have what answers a request go to the reply's subject, if there is one."""
    for action in actions:
        if not (isinstance(action, Send) and isinstance(action.message.message, kinds)):
            yield action
        elif reply:
            yield _Answer(reply, encode(SERVICE, action.message.message))
