"""The shell of a service around a production host: it stands by, takes the lease, reads, serves.

It does what `distributary.topics.nats` does with `KeptLease`, `StateLog`, `Driver` and
`TopicService`, with the same times, in virtual time. It can be put to sleep at any moment, as by
SIGSTOP, also between two steps of one turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distributary.machines.actions import Action, Append, Send, SetTimer
from distributary.machines.nats.lease import GIVES_UP, LASTS, RENEW_EVERY
from distributary.topics import Policy
from distributary.topics.advice import Adviser
from distributary.topics.codec import SERVICE, Created
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.records import HostState
from distributary.topics.survey import survey
from tests.topics.take_over.server import (
    SERVER,
    AppendPiece,
    Ask,
    Claim,
    CountPieces,
    FindPiece,
    Heard,
    Holder,
    Listen,
    LookUp,
    Piece,
    Publish,
    Purge,
    Read,
    Release,
    Reply,
    Unlisten,
    replay,
)

LOOK_EVERY, HOUSEKEEPING, ATTEMPT, PAUSE = 0.5, 0.5, 2.0, 0.1  # seconds
DEAD_AFTER, FORGET_AFTER, PLAN_EVERY = 6.0, 600.0, 5.0  # seconds
BATCH = 64  # inputs of one turn
PIECE = 4  # records: batches of several pieces are frequent
SHORTENS = 0.02  # the chance of a turn that a snapshot follows it
LIFE, LEASE, HOUSE, PLAN, WAKE = "life", "lease", "house", "plan", "wake"  # tasks and timers


class ReplacedError(Exception):
    """Another service has taken over."""


class AwayError(Exception):
    """The server did not answer."""


class Nap(NamedTuple):
    """What a task yields to be put to sleep where it is."""

    seconds: float


# A task yields a request, seconds to wait, a `Nap`, or None to wait for an input; it gets the
# answer to its request, or None if there was none in time.
Task = Generator[Any, Any, Any]


class Service:
    """The `Machine` of one process. Without `leased` it sends without the lease: see the tests."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        rng: np.random.Generator,
        *,
        leased: bool = True,
        on_send: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name = name  # unique to the process
        self.policy = policy
        self.rng = rng
        self.leased = leased
        self.on_send = on_send  # called as it sends, after it has looked at its lease
        self.host: TopicHost | None = None  # while it serves
        self.terms = 0
        self.asleep = False
        self.nap_at: tuple[str, float] | None = None  # at which step of a turn, and for how long
        self._stopping = False
        self._now = 0.0
        self._held_until = 0.0
        self._revision = 0
        self._state = HostState()
        self._pieces = 0  # that our state follows
        self._writes = 0
        self._queue: deque[Callable[[float], Iterable[Action]]] = deque()
        self._idle = False
        self._tasks: dict[str, Task] = {}
        self._asked: dict[str, int] = {}  # by task
        self._asks = 0
        self._host_timers: dict[str, float] = {}
        self._napping = ""  # the task that put the process to sleep
        self._backlog: list[Callable[[], None]] = []
        self._actions: list[Action] = []

    # --- inputs ----------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        return self._handle(partial(self._begin, LIFE, self._live()), now)

    def stop(self, now: float) -> list[Action]:
        """Finish the turn, and give the lease back."""
        return self._handle(self._stop, now)

    def sleep(self, seconds: float, now: float) -> list[Action]:
        """Do nothing, as a stopped process; what comes meanwhile waits."""
        return self._handle(partial(self._fall_asleep, seconds), now)

    def disconnect(self, now: float) -> list[Action]:
        return self._handle(self._lose, now)

    def reconnect(self, now: float) -> list[Action]:
        return self._handle(self._on_reconnect, now)

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        del sender
        return self._handle(partial(self._take, message), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        if name != WAKE:
            return self._handle(partial(self._expire, name), now)
        self._now, self.asleep = now, False
        if self._napping:
            task, self._napping = self._napping, ""
            self._advance(task)
        while self._backlog and not self.asleep:
            self._backlog.pop(0)()
        return self._take_actions()

    @property
    def held(self) -> bool:
        return self._now < self._held_until

    @property
    def is_idle(self) -> bool:
        """Whether it serves, and all that it has heard is done."""
        return self._idle and self.held and not self.asleep

    def serves(self, now: float) -> bool:
        """Whether the process could send now."""
        return self.host is not None and not self.asleep and now < self._held_until

    def _handle(self, given: Callable[[], None], now: float) -> list[Action]:
        if self.asleep:
            self._backlog.append(given)
            return []
        self._now = now
        given()
        return self._take_actions()

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    def _take(self, message: Any) -> None:
        match message:
            case Reply(number, result):
                for task, asked in self._asked.items():
                    if asked == number:
                        self._advance(task, result)
                        return
            case Heard(_, sender, said, reply) if self.host is not None:
                self._call(partial(self._hear, sender, said, reply))

    def _hear(self, sender: str, said: ChannelMessage, reply: str, now: float) -> Iterable[Action]:
        assert self.host is not None
        for action in self.host.on_message(sender, said, now):
            if isinstance(action, Send) and isinstance(action.message.message, Created):
                yield Send(reply, action.message)  # who asks waits for the reply
            else:
                yield action

    def _expire(self, name: str) -> None:
        if name in self._tasks:
            self._advance(name)
            return
        if self.host is not None and name in self._host_timers:
            self._call(partial(self._on_host_timer, name, self._host_timers[name]))

    def _on_host_timer(self, name: str, at: float, now: float) -> Iterable[Action]:
        """Call the host, unless the timer was stopped or reset while it was queued."""
        if self.host is None or self._host_timers.get(name) != at:
            return ()
        del self._host_timers[name]
        return self.host.on_timer(name.partition(" ")[2], now)

    def _on_reconnect(self) -> None:
        if self.host is not None:
            self._say(Listen(SERVICE))
            self._call(self.host.repeat_last)

    def _stop(self) -> None:
        self._stopping = True
        self._kick()

    def _call(self, given: Callable[[float], Iterable[Action]]) -> None:
        self._queue.append(given)
        self._kick()

    def _kick(self) -> None:
        if self._idle:
            self._idle = False
            self._advance(LIFE)

    # --- tasks -----------------------------------------------------------------------------------

    def _begin(self, name: str, task: Task) -> None:
        self._tasks[name] = task
        self._advance(name)

    def _end(self, name: str) -> None:
        self._asked.pop(name, None)
        if self._tasks.pop(name, None) is not None:
            self._set_timer(name, None)

    def _advance(self, name: str, value: Any = None, error: Exception | None = None) -> None:
        task = self._tasks.get(name)
        if task is None:
            return
        self._asked.pop(name, None)
        try:
            wish = task.throw(error) if error is not None else task.send(value)
        except StopIteration:
            self._end(name)
            return
        except ReplacedError:
            self._idle = False
            self._advance(LIFE, error=ReplacedError())
            return
        match wish:
            case None:
                self._idle = True
                self._set_timer(name, None)
            case Nap(seconds):
                self._napping = name
                self._set_timer(name, None)
                self._fall_asleep(seconds)
            case float():
                self._set_timer(name, self._now + wish)
            case _:
                self._asks += 1
                self._asked[name] = self._asks
                self._say(Ask(self._asks, wish))
                self._set_timer(name, self._now + ATTEMPT)

    def _set_timer(self, name: str, at: float | None) -> None:
        self._actions.append(SetTimer(name, at))

    def _say(self, message: Any) -> None:
        self._actions.append(Send(SERVER, message))

    def _fall_asleep(self, seconds: float) -> None:
        self.asleep = True
        self._set_timer(WAKE, self._now + seconds)

    # --- the lease -------------------------------------------------------------------------------

    def _take_lease(self) -> Task:
        """Stand by until the lease is ours."""
        seen, since = -1, 0.0
        while not self._stopping:
            found: Holder | None = yield LookUp()
            if found is None:
                seen = -1
            else:
                if found.revision != seen:
                    seen, since = found.revision, self._now
                is_free = found.name in ("", self.name) or self._now - since > LASTS
                if is_free:
                    written = yield from self._claim(found.revision)
                    if written:
                        return
                    seen = seen if written is not None else -1
            yield LOOK_EVERY

    def _claim(self, last: int) -> Task:
        """Write the key; returns None if it is unknown whether that worked."""
        began = self._now
        revision = yield Claim(self.name, last)
        if revision:
            self._revision, self._held_until = revision, began + GIVES_UP
        return None if revision is None else revision > 0

    def _keep_lease(self) -> Task:
        while True:
            yield HOUSEKEEPING
            due = self._now >= self._held_until - GIVES_UP + RENEW_EVERY
            if due and (self.held or self.host is None):
                yield from self._renew()

    def _renew(self) -> Task:
        written = yield from self._claim(self._revision)
        if written is not False:
            return
        found: Holder | None = yield LookUp()
        if found is None:
            return
        if found.name != self.name:
            self._lose()
            raise ReplacedError
        self._revision = found.revision  # a write whose answer was lost

    def _prove_lease(self) -> Task:
        while self.leased and not (self.held or self._stopping):
            yield from self._renew()
            if not self.held:
                yield PAUSE

    def _lose(self) -> None:
        self._held_until = 0.0

    # --- a term ----------------------------------------------------------------------------------

    def _live(self) -> Task:
        while not self._stopping:
            yield from self._take_lease()
            if self._stopping:
                return
            self.terms += 1
            self._begin(LEASE, self._keep_lease())
            with suppress(ReplacedError, AwayError):
                yield from self._serve()
            self._end_term()
            if self.held:
                self._lose()
                yield Release(self._revision)
            yield HOUSEKEEPING

    def _end_term(self) -> None:
        for task in (LEASE, HOUSE, PLAN):
            self._end(task)
        for name in self._host_timers:
            self._set_timer(name, None)
        self._host_timers.clear()
        self._queue.clear()
        if self.host is not None:
            self._say(Unlisten(SERVICE))
        self.host = None

    def _serve(self) -> Task:
        yield from self._open_log()
        seed = int(self.rng.integers(1 << 30))
        host = self.host = TopicHost(self.policy, self._state, seed=seed)
        yield from self._prove_lease()
        self._queue.append(host.start)
        yield from self._turn(host)
        self._say(Listen(SERVICE))
        self._begin(HOUSE, self._keep_house(host))
        if self.policy.tells:
            self._begin(PLAN, self._plan_clusters(host))
        while not self._stopping:
            if not self._queue:
                yield None
                continue
            if self.leased and not self.held:
                yield from self._prove_lease()
                host.excuse(self._now)
            yield from self._turn(host)

    def _turn(self, host: TopicHost) -> Task:
        """Call the host with queued inputs, store its records, and send what follows from them."""
        records: list[bytes] = []
        sends: list[Send] = []
        for _ in range(min(len(self._queue), BATCH)):
            for action in self._queue.popleft()(self._now):
                match action:
                    case SetTimer(name, at):
                        self._set_host_timer(f"{self.terms} {name}", at)
                    case Append(record):
                        records.append(record)
                    case Send():
                        sends.append(action)
        yield from self._nap("write")
        if records:
            yield from self._append(records, fresh=False)
        if self.held or not self.leased:
            self.on_send(self.name)
            yield from self._nap("send")  # it looked at its lease, and has not sent yet
            for action in sends:
                self._say(Publish(action.to, action.message.channel, action.message.message))
        if self.rng.random() < SHORTENS:
            yield from self._shorten()

    def _nap(self, step: str) -> Task:
        if self.nap_at is not None and self.nap_at[0] == step:
            (_, seconds), self.nap_at = self.nap_at, None
            yield Nap(seconds)

    def _set_host_timer(self, name: str, at: float | None) -> None:
        self._set_timer(name, at)
        if at is None:
            self._host_timers.pop(name, None)
        else:
            self._host_timers[name] = at

    def _keep_house(self, host: TopicHost) -> Task:
        looked = self._now
        while True:
            yield HOUSEKEEPING
            slept = self._now - looked - HOUSEKEEPING > DEAD_AFTER / 2
            looked = self._now
            if self.leased and not self.held:
                self._call(lambda now: ())  # a turn begins with proving it
                continue
            self._call(host.excuse if slept else partial(host.bury, silent_for=DEAD_AFTER))
            self._call(partial(host.sweep, forget_after=FORGET_AFTER))

    def _plan_clusters(self, host: TopicHost) -> Task:
        adviser = Adviser(host, 10_000)
        while True:
            yield PLAN_EVERY
            for each in adviser.reminders():
                self._call(each)
            for each in adviser.hand_out(adviser.propose(survey([host], self._now))):
                self._call(each)

    # --- the log ---------------------------------------------------------------------------------

    def _open_log(self) -> Task:
        """Replay what is stored."""
        count = yield from self._ask(CountPieces())
        yield float(self.rng.choice([0.01, 1.0, 5.0]) * self.rng.random())  # it may be long
        pieces: list[Piece] = yield from self._ask(Read(count))
        self._state, self._pieces = replay(pieces, self.policy), count
        incomplete = bool(pieces) and not pieces[-1].last
        if incomplete or not self._state.identity:
            self._state.identity = self._state.identity or self.name
            yield from self._shorten()

    def _ask(self, request: Any) -> Task:
        answer = yield request
        if answer is None:
            raise AwayError
        return answer

    def _shorten(self) -> Task:
        """Let a snapshot take the place of what is stored."""
        before = self._pieces
        yield from self._append([*self._state.snapshot()], fresh=True)
        yield Purge(before)  # if the server is away, the next one does it

    def _append(self, records: list[bytes], *, fresh: bool) -> Task:
        for at in range(0, len(records), PIECE):
            self._writes += 1
            last = at + PIECE >= len(records)
            part = tuple(records[at : at + PIECE])
            yield from self._store(Piece(self._writer, self._writes, last, fresh, part))

    def _store(self, piece: Piece) -> Task:
        """Store one piece, again and again while the server is away."""
        while True:
            stored = yield AppendPiece(self._pieces, piece)
            if stored:
                break
            if stored is not None:
                found = None
                while found is None:
                    found = yield FindPiece(self._pieces)
                if found == piece:
                    break  # an earlier attempt, whose answer was lost
                raise ReplacedError
            yield PAUSE
        self._pieces += 1

    @property
    def _writer(self) -> str:
        return f"{self.name}/{self.terms}"
