"""Requests that wait for their answer, with one timer for all of them."""

from __future__ import annotations

import asyncio

import pytest

from distributary.content.tcp.tickets import TicketFailedError, Tickets


def test_each_ticket_that_nobody_answers_times_out() -> None:
    async def scenario() -> None:
        tickets = Tickets(0.01)
        first = tickets.open(1)
        await asyncio.sleep(0.005)
        second, answered = tickets.open(2), tickets.open(3)
        tickets.complete(3)
        for future in (first, second):
            with pytest.raises(TimeoutError):
                await future
        await answered
        for number in (1, 2, 3):
            tickets.forget(number)
        late = tickets.open(4)  # after the timer has rung for the last time, or before
        with pytest.raises(TimeoutError):
            await late

    asyncio.run(scenario())


def test_a_ticket_is_answered_once_and_a_forgotten_one_not_at_all() -> None:
    async def scenario() -> None:
        tickets = Tickets(600.0)
        done, failed, forgotten, left = map(tickets.open, range(4))
        tickets.complete(0)
        tickets.fail(0, TicketFailedError("too late", False))
        tickets.fail(1, TicketFailedError("refused", True))
        tickets.forget(2)
        tickets.complete(2)
        await done
        with pytest.raises(TicketFailedError, match="refused") as raised:
            await failed
        assert raised.value.is_unknown
        assert not forgotten.done()
        tickets.close(ConnectionError("closed"))
        with pytest.raises(ConnectionError):
            await left
        assert not forgotten.done()

    asyncio.run(scenario())
