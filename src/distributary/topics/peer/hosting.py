"""The channels whose root is this peer: a host for each, whose sends wait for the replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distributary.machines.actions import Action, Append, Send, SetTimer
from distributary.topics.codec import Create, NoTopic, Remove, Removed
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import Carry, Drop, Dropped, Rarer, Repair
from distributary.topics.names import is_channel, is_topic, members_of, topic_of
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer, identifier
from distributary.topics.overlay.messages import Ballot, GroupPublication
from distributary.topics.overlay.scribe import Scribe
from distributary.topics.peer.codec import RING
from distributary.topics.peer.copies import ChannelLog, PeerState
from distributary.topics.peer.messages import ToChannel, ToClient, Vouch
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.peer.runs import join_events, split_run
from distributary.topics.policy import Policy

__all__ = ["ChannelHosting"]

_MEMBERS = members_of("")
_TIMER = "host"
_MOST_WAITING = 10_000  # messages to a channel whose root is not ready
_MOST_WAITING_BYTES = 1 << 26  # of these messages, to all channels
_WAITING_OVERHEAD = 512  # bytes of memory for a message, besides its content
_IDLE = 30.0  # seconds after which a root forgets a channel that does not exist
_ROUND_BITS = 32  # the numbers of a root's tree begin with the round of its ballot


@dataclass(slots=True)
class _Hosted:
    """A channel of this peer."""

    group: int
    ballot: Ballot
    opened_at: float
    used_at: float
    host: TopicHost | None = None
    channel: str = ""
    pending: deque[tuple[int, Send]] = field(default_factory=deque)  # by the log's end
    access: dict[str, Peer] = field(default_factory=dict)  # the peer of each client


@dataclass(slots=True)
class _Waiting:
    """Messages to a channel while this peer claims to be its root; with time and size."""

    ballot: Ballot
    messages: deque[tuple[float, int, ToChannel]] = field(default_factory=deque)


class ChannelHosting:
    """The `GroupApplication` of channels."""

    def __init__(
        self,
        policy: Policy,
        parameters: PeerParameters,
        effects: Effects,
        state: PeerState,
        own: Peer,
        *,
        seed: int,
    ) -> None:
        self.policy = policy
        self.scribe: Scribe  # set once it exists, since each knows the other
        self._parameters = parameters
        self._effects = effects
        self._state = state
        self._own = own
        self._seed = seed
        self._hosted: dict[int, _Hosted] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_bytes = 0
        self._outside: deque[ToChannel | ToClient] = deque()

    # --- the log of a group --------------------------------------------------------------------

    def new_log(self, group: int) -> ChannelLog:
        """An empty log."""
        return self._state.new_log(group)

    def drop_log(self, group: int) -> None:
        """The log is no longer needed here."""
        self._state.drop_log(group)

    def take_over(self, group: int, log: ChannelLog, now: float) -> int:
        """Continue from this log; the host starts once the replicas have it."""
        log.hosted = True
        return log.end

    def accept(self, group: int, first: int, end: int, now: float) -> None:
        """All replicas have the entries before `end`: send what follows from them."""
        log: ChannelLog = self.scribe.roots.log(group)
        log.trim(end)
        hosted = self._hosted.get(group)
        if hosted is None:
            return
        sends: list[Send] = []
        while hosted.pending and hosted.pending[0][0] <= end:
            sends.append(hosted.pending.popleft()[1])
        self._send_all(hosted, sends, now)

    def open(self, group: int, now: float) -> None:
        """Start the channel, and serve the tree and whoever waits."""
        roots = self.scribe.roots
        ballot = roots.ballot(group)
        hosted = self._hosted[group] = _Hosted(group, ballot, now, now)
        self.scribe.begin_stream(group, ballot[0] << _ROUND_BITS)
        self.scribe.open(group, now)
        for channel in roots.log(group).state.states:
            self._start_host(hosted, channel, now)
        for message in self._take_waiting(group, ballot):
            self._take(hosted, message, now)

    def close(self, group: int, now: float) -> None:
        """Another peer is the root; what was not accepted is dropped, and said again to it."""
        self.scribe.roots.log(group).hosted = False
        self._hosted.pop(group, None)

    def skip_to(self, group: int, number: int, now: float) -> None:
        """The numbers of the tree go on where a child is."""
        self.scribe.begin_stream(group, number)

    # --- inputs --------------------------------------------------------------------------------

    def arrive(self, payload: Any, now: float) -> None:
        """A routed message for a channel of this peer."""
        match payload:
            case ToChannel():
                self._on_message(payload, now)
            case Vouch(clients, via):
                for channel, names in clients.items():
                    self.vouch({channel: names}, via, now)
            case _:
                self._effects.count("refused")

    def _on_message(self, message: ToChannel, now: float) -> None:
        group = identifier(message.channel)
        if isinstance(message.message, Rarer) and group not in self.scribe.roots:
            return  # the cluster has ended, or its next survey finds out
        self.scribe.roots.claim(group, now)
        hosted = self._hosted.get(group)
        if hosted is not None:
            self._take(hosted, message, now)
            return
        self._keep_waiting(group, message, now)

    def _keep_waiting(self, group: int, message: ToChannel, now: float) -> None:
        """Keep a message until this peer is ready; whoever sent it repeats it if it is not kept."""
        roots = self.scribe.roots
        if group not in roots:
            return  # another peer is the root
        waiting = self._waiting.get(group)
        if waiting is None or waiting.ballot != roots.ballot(group):
            self._take_waiting(group)  # of a claim that was lost
            waiting = self._waiting[group] = _Waiting(roots.ballot(group))
        size = len(RING.encode(message)) + _WAITING_OVERHEAD
        within = self._waiting_bytes + size <= _MOST_WAITING_BYTES
        if len(waiting.messages) < _MOST_WAITING and within:
            waiting.messages.append((now, size, message))
            self._waiting_bytes += size
        else:
            self._effects.count("no room")

    def _take_waiting(self, group: int, ballot: Ballot | None = None) -> list[ToChannel]:
        """Stop keeping messages to a channel; returns those that came during this claim."""
        waiting = self._waiting.pop(group, None)
        if waiting is None:
            return []
        self._waiting_bytes -= sum(size for _, size, _ in waiting.messages)
        return [each for *_, each in waiting.messages] if waiting.ballot == ballot else []

    def _expire_waiting(self, now: float) -> None:
        """Drop what waits for claims that were lost, and what has been repeated since."""
        roots, oldest = self.scribe.roots, now - self._parameters.dead_after
        for group, waiting in [*self._waiting.items()]:
            if group not in roots or roots.ballot(group) != waiting.ballot:
                self._take_waiting(group)
                continue
            while waiting.messages and waiting.messages[0][0] < oldest:
                self._waiting_bytes -= waiting.messages.popleft()[1]

    def _take(self, hosted: _Hosted, message: ToChannel, now: float) -> None:
        channel, sender = message.channel, message.sender
        hosted.used_at = now
        if not is_channel(sender):
            hosted.access[sender] = message.via
        host = hosted.host
        if host is None or not self._exists(hosted):
            said = message.message
            if isinstance(said, Rarer):
                return
            if is_topic(channel) and not isinstance(said, Create):
                if self._is_settled(hosted):  # else it is asked again, when a removal is accepted
                    self._refuse_unknown_topic(channel, message)
                return
            host = host or self._start_host(hosted, channel, now)
        if hosted.channel != channel:
            self._effects.count("refused")  # another channel with the same key
            return
        if self._may_be_replaced(hosted, host, message.message, now):
            self.scribe.roots.give_up(hosted.group, now)
            self._keep_waiting(hosted.group, message, now)
            return
        actions: list[Action] = []
        for each in split_run(message.message):
            actions += host.on_message(sender, ChannelMessage(channel, each), now)
        self._perform(hosted, actions, now)

    def _may_be_replaced(self, hosted: _Hosted, host: TopicHost, said: Any, now: float) -> bool:
        """Whether a subscriber knows a later epoch: most likely, of a root that replaced this one.

        Nobody replaces a root before the others had patience with it. A root that has claimed the
        channel since then is right: events were given up, and the subscriber has to hear it.
        """
        if not isinstance(said, Repair) or said.epoch <= host.state.epoch:
            return False
        return now - hosted.opened_at >= self._parameters.overlay.patience

    def _exists(self, hosted: _Hosted) -> bool:
        host = hosted.host
        return host is not None and hosted.channel in host.state.states

    def _is_settled(self, hosted: _Hosted) -> bool:
        roots = self.scribe.roots
        return bool(roots.accepted(hosted.group) == roots.log(hosted.group).end)

    def _refuse_unknown_topic(self, channel: str, message: ToChannel) -> None:
        if self.scribe.roots.is_in_doubt(identifier(channel)):
            self._effects.count("in doubt")  # repeated until the others are back, or given up
            return
        sender, said = message.sender, message.message
        if not is_channel(sender):
            answer = Removed(False) if isinstance(said, Remove) else NoTopic(topic_of(channel))
            self._answer(message.via, ToClient(channel, sender, answer, self._own))
        elif isinstance(said, Carry | Drop):
            self._outside.append(ToChannel(sender, channel, Dropped(said.version), self._own))

    def _answer(self, via: Peer, answer: ToClient) -> None:
        if via == self._own:
            self._outside.append(answer)
        else:
            self._effects.send(via.name, answer)

    def on_timer(self, name: str, now: float) -> None:
        """Handle a timer of a host, unless this peer became root anew since it was set."""
        group, number, rest = name.split(" ", 2)
        hosted = self._hosted.get(int(group))
        if hosted is not None and hosted.host is not None and hosted.ballot[0] == int(number):
            self._perform(hosted, hosted.host.on_timer(rest, now), now)

    def vouch(
        self, clients: dict[str, tuple[str, ...]], via: Peer, now: float
    ) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """Clients of a peer are alive; returns strangers by channel, and channels not served here.

        A channel for which this peer is not ready yet belongs to the latter.
        """
        strangers: dict[str, tuple[str, ...]] = {}
        elsewhere: list[str] = []
        for channel, names in clients.items():
            hosted = self._hosted.get(identifier(channel))
            if hosted is None:
                elsewhere.append(channel)
                continue
            unknown = tuple(self._hear(hosted, names, via, now))
            if unknown:
                strangers[channel] = unknown
        return strangers, tuple(elsewhere)

    def _hear(
        self, hosted: _Hosted, names: tuple[str, ...], via: Peer, now: float
    ) -> Iterator[str]:
        machine = None if hosted.host is None else hosted.host.machine(hosted.channel)
        for name in names:
            hosted.access[name] = via
            if hosted.host is None or machine is None:
                yield name
                continue
            hosted.host.heard[name] = now
            if name not in machine.state.members:
                yield name

    # --- housekeeping --------------------------------------------------------------------------

    def keep_house(self, now: float) -> None:
        """Declare silent clients dead, and forget what has ended."""
        parameters = self._parameters
        self._expire_waiting(now)
        for hosted in [*self._hosted.values()]:
            host = hosted.host
            if host is not None:
                self._perform(hosted, host.bury(now, parameters.dead_after), now)
                self._perform(hosted, host.sweep(now, parameters.forget_after), now)
                for name in [name for name in hosted.access if name not in host.heard]:
                    del hosted.access[name]
            if self._is_idle(hosted, now) and not self.scribe.is_used(hosted.group):
                self.scribe.abandon(hosted.group, now)

    def _is_idle(self, hosted: _Hosted, now: float) -> bool:
        """Whether there is no such channel, and nobody has asked for it lately."""
        since = now - hosted.used_at
        if since <= _IDLE or hosted.pending or self._exists(hosted):
            return False
        return not self.scribe.roots.log(hosted.group).state.ended

    def excuse(self, now: float) -> None:
        """No client is dead because this peer could not receive."""
        for hosted in self._hosted.values():
            if hosted.host is not None:
                hosted.host.excuse(now)

    # --- hosts ---------------------------------------------------------------------------------

    def _start_host(self, hosted: _Hosted, channel: str, now: float) -> TopicHost:
        state = self.scribe.roots.log(hosted.group).state
        hosted.channel = channel
        hosted.host = TopicHost(self.policy, state, hosts=channel.__eq__, seed=self._seed)
        hosted.host.late_messages = True
        hosted.host.most_payload = self._parameters.longest_event
        self._perform(hosted, hosted.host.start(now), now)
        return hosted.host

    def _perform(self, hosted: _Hosted, actions: list[Action], now: float) -> None:
        """Write the records, and keep what is to be sent until the replicas have them."""
        roots, group = self.scribe.roots, hosted.group
        records = tuple(action.record for action in actions if isinstance(action, Append))
        if records:
            roots.append(group, records)
        end = roots.log(group).end
        sends = [action for action in actions if isinstance(action, Send)]
        if hosted.pending or not self._is_settled(hosted):
            hosted.pending.extend((end, send) for send in sends)
        else:
            self._send_all(hosted, sends, now)
        for action in actions:
            if isinstance(action, SetTimer):
                name = f"{_TIMER} {group} {hosted.ballot[0]} {action.name}"
                self._effects.set_timer(name, action.at)

    def _send_all(self, hosted: _Hosted, sends: Iterable[Send], now: float) -> None:
        """Send messages, events that follow each other together; each receiver's keep an order."""
        by_receiver: dict[str, list[Any]] = {}
        for send in sends:
            by_receiver.setdefault(send.to, []).append(send.message.message)
        for to, messages in by_receiver.items():
            if to.startswith(_MEMBERS):
                found = tuple(GroupPublication(self._own, 0, each, now) for each in messages)
                self.scribe.multicast(hosted.group, found)
                continue
            for message in join_events(messages):
                self._send_one(hosted, to, message)

    def _send_one(self, hosted: _Hosted, to: str, message: Any) -> None:
        if is_channel(to):
            self._outside.append(ToChannel(to, hosted.channel, message, self._own))
        elif (via := hosted.access.get(to)) is not None:
            self._answer(via, ToClient(hosted.channel, to, message, self._own))
        else:
            self._effects.count("unreachable")  # until a peer vouches for it; all is repeated

    def take_outgoing(self) -> Iterator[ToChannel | ToClient]:
        """What the hosts send to other channels, and to clients of this peer."""
        while self._outside:
            yield self._outside.popleft()

    # --- inspection ----------------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """Memory of the messages that wait until this peer is the root of their channels."""
        return self._waiting_bytes

    def hosts(self) -> dict[str, TopicHost]:
        """The hosts of the channels that this peer serves."""
        found = (hosted for hosted in self._hosted.values() if self._exists(hosted))
        return {hosted.channel: hosted.host for hosted in found if hosted.host is not None}
