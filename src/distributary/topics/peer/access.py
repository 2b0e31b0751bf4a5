"""The clients that are attached to a peer, and the channels whose events come to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distributary.topics.codec import SERVICE, Beat, Bye, Forgotten, Missed, Pulse
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Event, Join
from distributary.topics.names import LONGEST_TOPIC, is_channel, members_of
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer, identifier
from distributary.topics.overlay.messages import LostEvents, ReceivedEvent
from distributary.topics.overlay.scribe import Scribe
from distributary.topics.peer.messages import (
    Listen,
    Neighbours,
    ToChannel,
    ToClient,
    Unlisten,
    Vouch,
    Vouched,
)
from distributary.topics.peer.runs import join_events
from distributary.topics.policy import Policy

__all__ = ["Access"]

_MEMBERS = members_of("")
_MOST_KNOWN = 10_000  # roots that are remembered
_SILENT_VOUCHES = 2  # a root that leaves so many unanswered is looked for again


@dataclass(slots=True)
class _Client:
    """A client: the channels that it listens to, and those that it has written to."""

    channels: dict[str, None] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Heard:
    """The listeners to a channel, and joins that wait for this peer's place in its tree."""

    clients: dict[str, None] = field(default_factory=dict)
    joins: dict[str, Join] = field(default_factory=dict)
    confirmed: bool = False


class Access:
    """One peer's clients. It asks `send` to bring messages to channels."""

    def __init__(self, own: Peer, policy: Policy, effects: Effects, scribe: Scribe) -> None:
        self.own = own
        self._policy = policy
        self._effects = effects
        self._scribe = scribe
        self._clients: dict[str, _Client] = {}
        self._heard: dict[str, _Heard] = {}  # by channel
        self._names: dict[int, str] = {}  # channels by group
        self._unconfirmed: dict[str, None] = {}
        self._roots: dict[str, Peer] = {}  # last known, by channel
        self._unanswered: dict[str, int] = {}  # vouches, by the name of the root
        self._fresh: dict[str, dict[str, None]] = {}  # new listeners by channel
        self._outside: list[ToChannel] = []

    # --- clients -------------------------------------------------------------------------------

    def on_client(self, client: str, message: Any, now: float) -> None:
        """Handle a message of a client."""
        if not _is_client(client):
            self._effects.count("refused")
            return
        held = self._clients.get(client)
        if held is None:
            held = self._clients[client] = _Client()
            self._tell_neighbours(client, now)
        match message:
            case Listen(channels):
                self._listen(client, held, channels, now)
            case Unlisten(channels):
                self._unlisten(client, held, channels)
            case ChannelMessage(channel, Beat()) if channel == SERVICE:
                policy = self._policy
                pulse = Pulse("", policy.tells, policy.obeys, policy.refresh)
                self._deliver(client, SERVICE, pulse, now)
            case ChannelMessage(channel, Bye()) if channel == SERVICE:
                for name in held.channels | held.used:
                    self._outside.append(ToChannel(name, client, Bye(), self.own))
                self.detach(client)
            case ChannelMessage(channel, said) if is_channel(channel):
                held.used[channel] = None
                if isinstance(said, Join) and self._must_wait(client, channel, said):
                    return
                self._outside.append(ToChannel(channel, client, said, self.own))
            case _:
                self._effects.count("refused")

    def detach(self, client: str) -> None:
        """The client is gone, for now or for good."""
        held = self._clients.pop(client, None)
        if held is not None:
            self._unlisten(client, held, tuple(held.channels))

    def _tell_neighbours(self, client: str, now: float) -> None:
        names = tuple(self._scribe.neighbours())
        self._effects.deliver(client, Neighbours(names), now)

    def tell_neighbours(self, now: float) -> None:
        """The neighbours have changed."""
        for client in self._clients:
            self._tell_neighbours(client, now)

    def _deliver(self, client: str, channel: str, message: Any, since: float) -> None:
        self._effects.deliver(client, ChannelMessage(channel, message), since)

    # --- channels ------------------------------------------------------------------------------

    def _listen(self, client: str, held: _Client, channels: Iterable[str], now: float) -> None:
        for channel in channels:
            if not is_channel(channel) or channel in held.channels:
                continue
            held.channels[channel] = None
            heard = self._heard.get(channel)
            if heard is None:
                heard = self._heard[channel] = _Heard()
                group = identifier(channel)
                self._names[group] = channel
                self._unconfirmed[channel] = None
                self._scribe.listen(group, now)
            heard.clients[client] = None
            self._fresh.setdefault(channel, {})[client] = None

    def _unlisten(self, client: str, held: _Client, channels: Iterable[str]) -> None:
        for channel in channels:
            if channel not in held.channels:
                continue
            del held.channels[channel]
            heard = self._heard[channel]
            heard.clients.pop(client, None)
            heard.joins.pop(client, None)
            if not heard.clients:
                group = identifier(channel)
                del self._heard[channel]
                self._names.pop(group, None)
                self._unconfirmed.pop(channel, None)
                self._scribe.silence(group, 0.0)

    def _must_wait(self, client: str, channel: str, join: Join) -> bool:
        """Whether a join waits until events come here: none may be missed once it is confirmed."""
        heard = self._heard.get(channel)
        if heard is None or heard.confirmed or client not in heard.clients:
            return False
        heard.joins[client] = join
        return True

    def confirm(self) -> None:
        """Send the joins that waited for a place in the tree."""
        for channel in [*self._unconfirmed]:
            if self._scribe.next_wanted(identifier(channel)) is None:
                continue
            del self._unconfirmed[channel]
            heard = self._heard[channel]
            heard.confirmed = True
            joins, heard.joins = heard.joins, {}
            for client, join in joins.items():
                self._outside.append(ToChannel(channel, client, join, self.own))

    def on_tree(self, group: int, messages: Iterable[ReceivedEvent | LostEvents]) -> None:
        """Events have come down a tree in one turn, or the tree has lost some."""
        channel = self._names.get(group)
        if channel is None:
            return
        received: list[Event | Missed] = []
        for message in messages:
            if isinstance(message, LostEvents):
                received.append(Missed())
            elif isinstance(message.publication.payload, Event):
                received.append(message.publication.payload)
            else:
                self._effects.count("refused")
        for said in join_events(received):
            all_the_same = ChannelMessage(channel, said)  # encoded once
            for client in self._heard[channel].clients:
                self._effects.deliver(client, all_the_same, 0.0)

    # --- roots ---------------------------------------------------------------------------------

    def root(self, channel: str) -> Peer | None:
        """The last known root of a channel."""
        return self._roots.get(channel)

    def note_root(self, channel: str, root: Peer) -> None:
        """A root has answered."""
        if self._roots.get(channel) == root:
            return
        self._roots.pop(channel, None)
        while len(self._roots) >= _MOST_KNOWN:
            del self._roots[next(iter(self._roots))]
        self._roots[channel] = root

    def on_answer(self, message: ToClient, now: float) -> None:
        """A channel answers a client, or tells it something."""
        self.note_root(message.channel, message.root)
        if message.client in self._clients:
            self._deliver(message.client, message.channel, message.message, now)

    def on_vouched(self, message: Vouched, now: float) -> None:
        """A root has heard of the clients here."""
        self._unanswered.pop(message.root.name, None)
        for channel in message.channels:
            self.note_root(channel, message.root)
        for channel in message.elsewhere:
            if self._roots.get(channel) == message.root:
                del self._roots[channel]
        for channel, clients in message.strangers.items():
            for client in clients:
                held = self._clients.get(client)
                if held is not None and channel in held.channels:
                    self._deliver(client, channel, Forgotten(0), now)

    def vouch(self, *, all_of_them: bool) -> Iterator[tuple[Peer | None, Vouch]]:
        """Vouch for all clients, or for new listeners only; with the root, if it is known."""
        fresh, self._fresh = self._fresh, {}
        due = {c: heard.clients for c, heard in self._heard.items()} if all_of_them else fresh
        by_root: dict[Peer, dict[str, tuple[str, ...]]] = {}
        for channel, clients in due.items():
            root = self._roots.get(channel)
            if root is not None and self._unanswered.get(root.name, 0) >= _SILENT_VOUCHES:
                root = self._roots.pop(channel, None) and None
            if root is None:
                yield None, Vouch({channel: tuple(clients)}, self.own)
            else:
                by_root.setdefault(root, {})[channel] = tuple(clients)
        if all_of_them:
            self._unanswered = {r.name: self._unanswered.get(r.name, 0) + 1 for r in by_root}
        for root, words in by_root.items():
            yield root, Vouch(words, self.own)

    @property
    def has_new_listeners(self) -> bool:
        """Whether some were not vouched for yet."""
        return bool(self._fresh)

    def take_outgoing(self) -> list[ToChannel]:
        """The messages of clients to channels since the last call."""
        outside, self._outside = self._outside, []
        return outside

    # --- inspection ----------------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        """The attached clients."""
        return tuple(self._clients)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels whose events come here for clients."""
        return tuple(self._heard)


def _is_client(name: str) -> bool:
    """Whether a client may use this name."""
    if not name or name == SERVICE or is_channel(name) or name.startswith(_MEMBERS):
        return False
    return len(name.encode()) <= LONGEST_TOPIC
