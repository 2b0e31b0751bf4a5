"""Each rule of a broker process matters: without it, some schedule fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from distributary.content import link_queue, protocol
from distributary.content.barriers import Barriers
from distributary.content.client_requests import ClientRequests
from distributary.content.client_session import BrokerSession
from distributary.content.client_wishes import ClientWishes
from distributary.content.durable import DurableBroker
from distributary.content.host import BrokerHost
from distributary.content.laggards import Laggards
from distributary.content.neighbour_links import NeighbourLinks
from distributary.content.outbox import Outbox
from distributary.content.sessions import Sessions
from distributary.content.settling import Settling
from distributary.machines.actions import Save
from tests.content.test_host_schedules import run_schedule

MOST_SEEDS = 600


def forget_saves(*kinds: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The host does not save anything of these kinds."""

    def patch(monkey: pytest.MonkeyPatch) -> None:
        rest = BrokerHost._translate

        def translate(self: BrokerHost, actions: Any) -> Any:
            return [
                each
                for each in rest(self, actions)
                if not (isinstance(each, Save) and each.key[0] in kinds)  # type: ignore[index]
            ]

        monkey.setattr(BrokerHost, "_translate", translate)

    return patch


def replace(of: type, name: str, by: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkey: monkey.setattr(of, name, by)


def _answer_at_once(self: ClientRequests, session: Any, message: Any, now: float) -> Any:
    session.drains = True
    self._draining[session.client] = None
    return self.on_drained(session, now)


def _restart_with_barriers_last(self: Any, barriers: Any, kept: Any) -> None:
    original(self, (), kept)
    for each in barriers:
        self.add(each)


original = link_queue.LinkQueue.restart

BROKEN_RULES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an outbox is saved": forget_saves("outbox"),
    "what was served is saved": forget_saves("served"),
    "who lags behind is saved": forget_saves("behind"),
    "publications are saved": forget_saves("publication"),
    "publications' numbers are saved": forget_saves("published"),
    "clients' requests are saved": forget_saves("own"),
    "sessions are saved": forget_saves("session"),
    "neighbours are saved": forget_saves("neighbour"),
    "publications follow a new advertisement's barrier": replace(
        Barriers, "find_unheard", lambda self, name: set()
    ),
    "barriers come first after a restart": replace(
        link_queue.LinkQueue, "restart", _restart_with_barriers_last
    ),
    "nothing is sent on incomplete tables": replace(
        DurableBroker, "incomplete", property(lambda self: set())
    ),
    "an advertisement outlives its publications": replace(
        DurableBroker, "is_unfinished", lambda self, name: False
    ),
    "what is not acknowledged is sent again": replace(Outbox, "forget_sent", lambda self: None),
    "a full outbox makes publications wait": replace(
        Laggards, "must_wait", lambda self, client: False
    ),
    "room is offered to those who wait": replace(
        DurableBroker, "on_room", lambda self, client, now: []
    ),
    "a neighbour gets no more than it finishes": replace(
        link_queue.LinkQueue, "_has_room", lambda self, message: True
    ),
    "statements for an absent neighbour are bounded": replace(
        NeighbourLinks, "bound_statements", lambda self, neighbour: None
    ),
    "publishers are refused or wait": replace(ClientRequests, "_is_full", lambda self: False),
    "those who waited are told of room": replace(ClientRequests, "grant_again", lambda self: []),
    "marks of ended advertisements are forgotten": replace(
        DurableBroker, "_forget_marks", lambda self, name: []
    ),
    "advertisements that end have a barrier after a restart": replace(
        ClientRequests, "restart_ending", lambda self: None
    ),
    "a session drains before it closes": replace(ClientRequests, "close", _answer_at_once),
    "dropped events are reported": replace(
        Sessions, "take_frames", lambda self, session: _hide_gaps(self, session)
    ),
    "a subscription settles by a barrier": lambda monkey: _settle_at_once(monkey),
    "events wait for a process that asks for them later": replace(
        ClientWishes, "find_unclaimed", lambda self, held: False
    ),
    "an event is acknowledged once it is processed": replace(
        BrokerSession, "is_new_delivery", lambda self, last: _finish_at_once(self, last)
    ),
    "a new process goes on with the numbers of the former one": lambda monkey: (
        _open_with_number_one(monkey)
    ),
}

take_frames = Sessions.take_frames


def _hide_gaps(sessions: Sessions, session: Any) -> Any:
    found = take_frames(sessions, session)
    return [each for each in found if not isinstance(each, protocol.Dropped)]


is_new_delivery = BrokerSession.is_new_delivery


def _finish_at_once(session: BrokerSession, last: int) -> bool:
    is_new = is_new_delivery(session, last)
    session._processed = max(session._processed, last)
    return is_new


def _open_with_number_one(monkey: pytest.MonkeyPatch) -> None:
    rest = BrokerSession.on_session_opened

    def on_session_opened(self: BrokerSession, message: Any, unclaimed: Any) -> Any:
        known = message.published if self._published else 0
        return rest(self, dataclasses.replace(message, published=known), unclaimed)

    monkey.setattr(BrokerSession, "on_session_opened", on_session_opened)


def _settle_at_once(monkey: pytest.MonkeyPatch) -> None:
    def take_settled(self: Settling) -> Any:
        found = [each for waiting in self._under_way.values() for each in waiting]
        self._under_way.clear()
        self._broker.passed.clear()
        return found

    monkey.setattr(Settling, "take_settled", take_settled)


@pytest.mark.parametrize("rule", BROKEN_RULES)
def test_without_a_rule_some_schedule_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN_RULES[rule](monkeypatch)
    for seed in range(MOST_SEEDS):
        try:
            run_schedule(seed)
        except Exception:
            return
    raise AssertionError(f"{MOST_SEEDS} schedules do without the rule that {rule}")
