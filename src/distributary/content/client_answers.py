"""The tickets of a client's requests, and when each of them is answered."""

from __future__ import annotations

from distributary.content.client_actions import ClientAction, Complete, Fail, Settle
from distributary.content.client_session import OpeningOutcome, RequestKey, RequestState

__all__ = ["ClientAnswers", "fail_publications", "fail_unknown"]


class ClientAnswers:
    """The subscriptions and advertisements, begun or ended, whose answers the application awaits.

    What begins is answered when a broker has saved it, what ends when the broker confirms that.
    """

    def __init__(self) -> None:
        self._beginning: dict[RequestKey, int] = {}
        self._ending: dict[RequestKey, int] = {}

    @property
    def awaited(self) -> list[RequestKey]:
        """The requests that are not answered."""
        return [*self._beginning, *self._ending]

    def begin(self, key: RequestKey, ticket: int) -> list[ClientAction]:
        """A request begins; if it is made again, the later ticket waits for the answer."""
        earlier = self._beginning.get(key)
        self._beginning[key] = ticket
        return [] if earlier is None else [Complete(earlier)]

    def end(self, key: RequestKey, ticket: int) -> list[ClientAction]:
        """A request ends, perhaps before its beginning was answered."""
        unanswered = self._beginning.pop(key, None)
        self._ending[key] = ticket
        if unanswered is None:
            return []
        return [Fail(unanswered, "it was ended before it was answered")]

    def answer(self, key: RequestKey, state: RequestState | None) -> list[ClientAction]:
        """Tell the application how far its request is."""
        actions: list[ClientAction] = []
        if state is None and key in self._ending:
            actions.append(Complete(self._ending.pop(key)))
        elif state in (RequestState.SAVED, RequestState.SETTLED) and key in self._beginning:
            actions.append(Complete(self._beginning.pop(key)))
        if state is RequestState.SETTLED:
            actions.append(Settle(key))
        return actions

    def confirm_end(self, key: RequestKey) -> list[ClientAction]:
        """The broker does not have what was to end."""
        ticket = self._ending.pop(key, None)
        return [] if ticket is None else [Complete(ticket)]

    def refuse(self, key: RequestKey, reason: str) -> list[ClientAction]:
        """The broker has refused a request; nothing if nobody waits for it."""
        ticket = self._beginning.pop(key, None)
        return [] if ticket is None else [Fail(ticket, reason)]


def fail_publications(outcome: OpeningOutcome) -> list[ClientAction]:
    """Answer for the publications that a broker has not stored when a session is open again."""
    reason = "the broker refused it, and the connection broke before it said why"
    refused = [Fail(ticket, reason) for ticket in outcome.refused]
    return [*refused, *fail_unknown(outcome.unknown, "the broker has lost the session")]


def fail_unknown(tickets: list[int], reason: str) -> list[ClientAction]:
    """Answer for publications that may or may not be stored."""
    return [Fail(ticket, reason, is_unknown=True) for ticket in tickets]
