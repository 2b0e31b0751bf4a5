"""Small machines for tests of the simulator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributary.machines import Action, Append, Deliver, Send, SetTimer, Work


class Source:
    """Passes what comes from outside on to one other node."""

    def __init__(self, to: str) -> None:
        self.to = to

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        return [Send(self.to, message)]

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        return []


class Sink:
    """Delivers each message, the number of which may be the units of its work."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, str, Any]] = []

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        self.heard.append((now, sender, message))
        return [Work("unit", 1), Deliver("client", message, now)]

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        self.heard.append((now, "timer", name))
        return []


class Alarm(Sink):
    """Sets timers as it is told to: name, time or None; and waits if it is not told."""

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        return [SetTimer(*message)] if message else [Work("unit", 1)]


class Chatter:
    """Answers everything with two messages: an avalanche."""

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        return [Send(sender, message), Send(sender, message)]

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        return []


class Muddled(Sink):
    """Asks for something that nobody can do."""

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Any]:
        return ["not an action"]


class Scribe(Sink):
    """Appends what it hears to its log, and one record more when it starts."""

    def start(self, now: float) -> list[Action]:
        return [Append(b"start")]

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        return [Append(message), Work("unit", 1)]
