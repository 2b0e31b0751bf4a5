"""An asyncio client of content brokers: subscribe with SQL, publish anywhere, move."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Self

from distributary.content.client_actions import (
    Complete,
    Dial,
    EndClient,
    Fail,
    HandEvent,
    HandLoss,
    HangUp,
    Lapse,
    LostEvents,
    ReceivedEvent,
    Settle,
)
from distributary.content.client_machine import ClientMachine
from distributary.content.client_move import MoveState
from distributary.content.client_session import RequestKey, TakenFrom
from distributary.content.errors import (
    BrokerAwayError,
    BrokerRefusedError,
    ClientDismissedError,
    ContentClientClosedError,
    EventNotStoredError,
    EventRefusedError,
    FilterRefusedError,
    MoveFailedError,
    SessionRefusedError,
)
from distributary.content.event_form import EventForm
from distributary.content.protocol import Refusal, SendFrame, SessionOpened, Welcome
from distributary.content.tcp.client_settings import (
    ContentClientSettings,
    ContentClientStatistics,
)
from distributary.content.tcp.dialing import Credentials, check_address
from distributary.content.tcp.places import Place, PlaceEvents, Places
from distributary.content.tcp.subscription import ContentSubscription
from distributary.content.tcp.tickets import TicketFailedError, Tickets
from distributary.errors import InputError, LiveError
from distributary.machines.real import DirectDriver, TlsFiles, own_tasks, parse_address

__all__ = ["ContentClient"]

_LEAVE_WITHIN = 3.0  # seconds to write what is queued and close
_WARN = logging.getLogger("distributary.content").warning
_LOOK_AGAIN = 0.02  # seconds between looks at whether a move is over


class ContentClient:
    """Subscribes to events by SQL filters, and publishes events, at one broker of a network.

    `async with ContentClient("host:port", name="ann") as client:` opens the session of that name at
    the broker, or resumes it. Broken connections are re-established. What is published while the
    client is away waits for it, for as long as its lease says; with `ephemeral` nothing is kept. A
    name is used by one process at a time.

    `report` gets lines for people, which are logged otherwise: a broker refuses the client when it
    connects again, and for now. If it refuses the client's name or token, the client fails with a
    `BrokerRefusedError`.
    """

    def __init__(
        self,
        broker: str,
        *,
        name: str,
        ephemeral: bool = False,
        lease: float | None = None,
        token: str = "",
        tls: TlsFiles | None = None,
        insecure: bool = False,
        settings: ContentClientSettings | None = None,
        report: Callable[[str], None] = _WARN,
    ) -> None:
        parse_address(broker)
        self.settings = settings or ContentClientSettings()
        self.name = name
        self._credentials = Credentials(name, token, tls, insecure)
        session = self.settings.session
        params = replace(
            session,
            ephemeral=ephemeral or session.ephemeral,
            lease=session.lease if lease is None else lease,
        )
        self._machine = ClientMachine(broker, params)
        self._tickets = Tickets(self.settings.timeout)
        self._subscriptions: dict[int, ContentSubscription] = {}
        self._filters: set[str] = set()  # of the subscriptions
        self._advertised: dict[int, asyncio.Event] = {}
        self._publishing = asyncio.Lock()  # keeps the order of those who wait for room
        self._waiting = 0  # the number of them
        self._room = asyncio.Event()
        self._unstored_bytes = 0
        self._opened = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: LiveError | None = None
        self._form: EventForm | None = None
        self._connections = self._losses = 0
        self._session = SessionOpened(0, False, 0, 0)  # when the client was opened
        self._report = report
        self._reported = ""  # why a broker has refused the client since it was last connected
        self._is_open = False
        self._stack = AsyncExitStack()

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._driver = DirectDriver(
            self._machine.on_timer,
            {
                SendFrame: lambda frames: self._places.send(frames),
                Dial: lambda dials: self._places.dial(dials),
                HangUp: self._hang_up,
                HandEvent: self._hand_events,
                HandLoss: self._hand_losses,
                Complete: self._complete,
                Fail: self._fail,
                Settle: self._settle,
                Lapse: self._lapse,
                EndClient: self._end,
            },
            clock=time.time,
        )
        await check_address(self._machine.broker, self._credentials)
        async with AsyncExitStack() as stack:
            stack.callback(self._driver.close)
            start = await stack.enter_async_context(own_tasks())
            start(self._watch())
            events = PlaceEvents(self._on_open, self._on_message, self._on_close, self._on_refused)
            self._places = Places(self._credentials, events, start)
            self._perform(self._machine.start(time.time()))
            await self._open()
            self._is_open = True
            self._stack = stack.pop_all()
        return self

    async def _open(self) -> None:
        """Wait for the session, or raise why there is none."""
        within = self.settings.connect_within
        try:
            async with asyncio.timeout(within):
                await self._opened.wait()
        except TimeoutError:
            (place,) = self._places.all()
            raise BrokerAwayError(place.broker, place.trouble) from None
        if self._failure is not None:
            raise self._failure

    async def __aexit__(self, *raised: Any) -> None:
        if raised[0] is None:
            for subscription in self._subscriptions.values():
                subscription.acknowledge()
        await self.close()
        await self._stack.__aexit__(*raised)

    async def close(self) -> None:
        """Leave; the broker keeps the session for the next process of this name."""
        if not self._is_open:
            return
        self._is_open = False
        self._perform(self._machine.leave(time.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN):
                for place in self._places.all():
                    await place.closed.wait()
        self._fail_all(ContentClientClosedError())

    async def end_session(self) -> None:
        """End the session at the broker for good, and close: the broker keeps nothing."""
        await self._await_ticket(*self._machine.close_session(time.time()))
        await self.close()

    # --- events -----------------------------------------------------------------------------------

    async def subscribe(self, filter: str) -> ContentSubscription:
        """Subscribe to the events that match a filter, such as `symbol = 'IBM' AND price > 120`.

        Every event is delivered that is published after this returns, unless `is_settled` is False:
        then a broker is away that does not know the subscription yet. If an earlier process of this
        name has the same subscription, this one goes on with the first event that the other did not
        process. If cancelled, the client is not subscribed.
        """
        self._check()
        if filter in self._filters:
            raise ValueError(f"this client is subscribed to {filter!r} already")
        number, ticket, actions = self._machine.subscribe(filter, time.time())
        made = ContentSubscription(filter, number, self._finish)
        self._subscriptions[number] = made
        self._filters.add(filter)
        try:
            await self._await_ticket(ticket, actions)
        except BaseException as error:
            self._perform(self._drop_subscription(number)[1])
            if isinstance(error, TicketFailedError):
                raise FilterRefusedError(filter, error.reason) from None
            raise
        await self._wait_settled(made.settle())
        return made

    async def unsubscribe(self, subscription: ContentSubscription) -> None:
        """End a subscription; unread events of it are dropped."""
        self._check()
        if subscription.number not in self._subscriptions:
            return
        ticket, actions = self._drop_subscription(subscription.number)
        await self._await_ticket(ticket, actions)

    async def end_unclaimed(self) -> int:
        """End the subscriptions that an earlier process left and this one has not taken over.

        Returns how many there were. They end by themselves after a while.
        """
        self._check()
        unclaimed = len(self._machine.unclaimed)
        self._perform(self._machine.end_unclaimed(time.time()))
        return unclaimed

    async def advertise(self, filter: str) -> None:
        """Announce that all further events match a filter; without it they may be of any kind.

        The network then carries fewer subscriptions. Publications that do not match are refused.
        """
        self._check()
        number, ticket, actions = self._machine.advertise(filter, time.time())
        settled = self._advertised.setdefault(number, asyncio.Event())
        try:
            await self._await_ticket(ticket, actions)
        except TicketFailedError as failed:
            del self._advertised[number]
            raise FilterRefusedError(filter, failed.reason) from None
        await self._wait_settled(settled.wait())

    async def publish(self, attributes: Mapping[str, Any], payload: bytes = b"") -> None:
        """Return once the broker has stored the event: from then on nothing of it is lost.

        Events of one client keep their order. Raises an `EventNotStoredError` after the time-out.
        If cancelled, the event may or may not be published.
        """
        self._check()
        try:
            checked = self.form.check(attributes, payload)
        except InputError as error:
            raise EventRefusedError(error.reason) from None
        size = len(payload)
        if self._waiting or not self._has_room(size):
            await self._wait_for_room(size)
        ticket, actions = self._machine.publish(checked, bytes(payload), time.time())
        self._unstored_bytes += size
        try:
            await self._await_ticket(ticket, actions)
        except TicketFailedError as failed:
            if failed.is_unknown:
                raise EventNotStoredError(failed.reason, is_unknown=True) from None
            raise EventRefusedError(failed.reason) from None
        except TimeoutError:
            is_unknown = not self._machine.withdraw(ticket)
            reason = f"no answer within {self.settings.timeout:g} s"
            raise EventNotStoredError(reason, is_unknown=is_unknown) from None
        except asyncio.CancelledError:
            self._machine.withdraw(ticket)
            raise
        finally:
            self._unstored_bytes -= size
            self._room.set()

    def _has_room(self, size: int) -> bool:
        settings, unstored = self.settings, self._unstored_bytes
        return self._machine.unstored < settings.window and (
            not unstored or unstored + size <= settings.window_bytes
        )

    async def _wait_for_room(self, size: int) -> None:
        """Wait until an event fits, after those who have waited longer."""
        self._waiting += 1
        try:
            async with self._publishing:
                while not self._has_room(size):
                    self._check()
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._waiting -= 1
        self._check()

    @property
    def form(self) -> EventForm:
        """The attributes that events have, as the broker says."""
        if self._form is None:
            raise ContentClientClosedError
        return self._form

    @property
    def is_resumed(self) -> bool:
        """Whether there was a session of this name when the client was opened."""
        return self._session.resumed

    @property
    def waiting(self) -> int:
        """The number of events that the broker had for the client when it was opened."""
        return self._session.waiting

    # --- moving -----------------------------------------------------------------------------------

    async def move(self, broker: str, *, abandon: bool = False) -> None:
        """Move to another broker without losing, doubling or reordering events.

        The client first subscribes at the new broker and then leaves the old one. When this
        returns, it publishes at the new broker; events that are on their way to the old one are
        still taken from there, before those of the new one. `finish_move` waits for the end of
        that.

        If the old broker is gone for good, `abandon` leaves it at once: events that it has for the
        client are reported as missing. If this fails, the client stays where it is.
        """
        self._check()
        await check_address(broker, self._credentials)
        await self._wait_for_former_move(broker)
        ticket, actions = self._machine.move(broker, time.time(), abandon=abandon)
        place = next(each.place for each in actions if isinstance(each, Dial))
        try:
            await self._await_ticket(ticket, actions)
        except TicketFailedError as failed:
            raise MoveFailedError(broker, failed.reason) from None
        except TimeoutError:
            state, found = self._machine.moving, self._places.find(place)
            trouble = "" if found is None else found.trouble
            self._perform(self._machine.cancel_move(time.time()))
            if state is MoveState.MAKING:
                raise MoveFailedError(broker, f"{trouble}; check the address") from None
            reason = "the old broker does not answer; the move goes on when it does"
            raise MoveFailedError(broker, reason) from None
        except asyncio.CancelledError:
            self._perform(self._machine.cancel_move(time.time()))
            raise

    async def finish_move(self) -> None:
        """Wait until a move is over and the old broker has nothing more for this client.

        It is over once the application has processed what the old broker had, or the old broker has
        been away for a minute.
        """
        while self._machine.moving is not None:
            await asyncio.sleep(_LOOK_AGAIN)
            self._check()

    async def _wait_for_former_move(self, broker: str) -> None:
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self.finish_move()
        except TimeoutError:
            reason = "the former move is not over; read the events that the old broker has"
            raise MoveFailedError(broker, reason) from None

    @property
    def statistics(self) -> ContentClientStatistics:
        """A snapshot of the counts."""
        machine = self._machine
        return ContentClientStatistics(
            broker=machine.broker,
            is_connected=machine.is_open,
            moving="" if machine.moving is None else machine.moving.value,
            connections=self._connections,
            published=machine.published,
            unstored=machine.unstored,
            delivered=machine.deliveries.delivered,
            duplicates=machine.deliveries.duplicates,
            losses=self._losses,
            subscriptions=len(self._subscriptions),
        )

    # --- tickets ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._is_open:
            raise ContentClientClosedError
        self._driver.check()

    async def _await_ticket(self, ticket: int, actions: list[Any]) -> None:
        """Perform actions and wait until what the ticket was given for is done."""
        future = self._tickets.open(ticket)
        try:
            self._perform(actions)
            await future
        finally:
            self._tickets.forget(ticket)

    async def _wait_settled(self, settling: Coroutine[Any, Any, Any]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.settle_within):
                await settling

    def _drop_subscription(self, number: int) -> tuple[int, list[Any]]:
        dropped = self._subscriptions.pop(number, None)
        if dropped is not None:
            self._filters.discard(dropped.filter)
            dropped.close()
        return self._machine.unsubscribe(number, time.time())

    def _fail_all(self, error: LiveError) -> None:
        self._failure = self._failure or error
        self._tickets.close(error)
        for subscription in self._subscriptions.values():
            subscription.fail(error)
        self._opened.set()
        self._room.set()

    # --- actions of the machine -------------------------------------------------------------------

    def _perform(self, actions: list[Any]) -> None:
        if actions:
            self._driver.perform(actions)

    def _finish(self, taken: TakenFrom) -> None:
        self._perform(self._machine.finish(taken, time.time()))

    def _hang_up(self, actions: list[HangUp]) -> None:
        for each in actions:
            self._places.leave(each.place)

    def _hand_events(self, actions: list[HandEvent]) -> None:
        for each in actions:
            self._hand(each.subscriptions, each.event)

    def _hand_losses(self, actions: list[HandLoss]) -> None:
        self._losses += len(actions)
        for each in actions:
            self._hand(each.subscriptions, each.loss)

    def _hand(self, numbers: tuple[int, ...], item: ReceivedEvent | LostEvents) -> None:
        for number in numbers:
            if (subscription := self._subscriptions.get(number)) is None:
                self._finish(item.taken_from)
            else:
                subscription.put(item)

    def _complete(self, actions: list[Complete]) -> None:
        for each in actions:
            self._tickets.complete(each.ticket)

    def _fail(self, actions: list[Fail]) -> None:
        for each in actions:
            self._tickets.fail(each.ticket, TicketFailedError(each.reason, each.is_unknown))

    def _settle(self, actions: list[Settle]) -> None:
        for each in actions:
            self._note_settled(each.key)

    def _note_settled(self, key: RequestKey) -> None:
        if key.kind == "advertisement" and key.number in self._advertised:
            self._advertised[key.number].set()
        elif key.kind == "subscription" and key.number in self._subscriptions:
            self._subscriptions[key.number].note_settled()

    def _lapse(self, actions: list[Lapse]) -> None:
        for each in actions:
            if each.key.kind == "advertisement":
                del self._advertised[each.key.number]
                self._report(f"the broker refuses what this client advertised: {each.reason}")
            else:
                lapsed = self._subscriptions.pop(each.key.number)
                self._filters.discard(lapsed.filter)
                lapsed.fail(FilterRefusedError(lapsed.filter, each.reason))

    def _end(self, actions: list[EndClient]) -> None:
        broker = self._machine.broker
        for each in actions:
            self._fail_all(
                ClientDismissedError(self.name, broker, each.reason)
                if self._opened.is_set()
                else SessionRefusedError(broker, each.reason)
            )
        self._leave_all()

    def _leave_all(self) -> None:
        for place in self._places.all():
            place.left.set()

    async def _watch(self) -> None:
        """Raise what fails in a callback of the loop."""
        while True:
            await self._driver.wait()

    # --- connections ------------------------------------------------------------------------------

    def _on_open(self, place: int, welcome: Welcome) -> None:
        self._form = EventForm(welcome.attributes)
        self._connections += 1
        self._reported = ""
        self._perform(self._machine.on_open(place, time.time()))

    def _on_message(self, place: int, message: Any) -> None:
        self._perform(self._machine.on_message(place, message, time.time()))
        if isinstance(message, SessionOpened) and not self._opened.is_set():
            self._session = message
            self._opened.set()
        self._room.set()

    def _on_close(self, place: int) -> None:
        self._perform(self._machine.on_close(place, time.time()))

    def _on_refused(self, place: Place, refusal: Refusal) -> None:
        """A broker has refused the handshake, or the client the broker.

        When the client is opened, it fails; when it moves, the move does. Later it tries again,
        unless that is of no use.
        """
        reason, machine = refusal.reason, self._machine
        place.trouble = f"it refused the connection: {reason}"
        if not self._opened.is_set():
            self._fail_all(BrokerRefusedError(place.broker, reason))
        elif machine.moving is not None:
            if place.broker == machine.broker:
                self._perform(machine.fail_move(place.trouble, time.time()))
        elif refusal.is_final:
            self._fail_all(BrokerRefusedError(place.broker, reason))
            self._leave_all()
        elif reason != self._reported:
            self._reported = reason
            self._report(f"{place.broker}: the broker refuses the client: {reason}; trying again")
