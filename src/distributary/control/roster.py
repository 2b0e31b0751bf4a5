"""Who is there: publishers and receivers, with what they wrote and reported."""

from __future__ import annotations

from collections.abc import Iterator

from distributary.control.counts import CountRow
from distributary.control.members import Hearing, Member
from distributary.control.messages import (
    ControlAction,
    ForgetPublisher,
    ForgetReceiver,
    InterestChanged,
    PublisherChanged,
    PublisherReported,
    ReceiverReported,
)
from distributary.control.publishers import Publisher
from distributary.control.receivers import Receiver, add_wastes
from distributary.control.settings import ControlSettings
from distributary.control.status import PublisherStatus, ReceiverStatus, Waste

__all__ = ["Roster"]

_FORGET_AGAIN = 10.0  # seconds before a key that is still there is to be dropped again


class Roster:
    """All members by name. What takes as long as there are members is done once per tick."""

    def __init__(self, settings: ControlSettings) -> None:
        self.gone_after, self.forget_after = settings.gone_after, settings.forget_after
        self.publishers: dict[str, Publisher] = {}
        self.receivers: dict[str, Receiver] = {}
        self.hearing = Hearing(self.gone_after)
        self.lost = 0  # messages that receivers reported as missing, in all
        self._per_packet = 1.0
        self._forgotten_at: dict[tuple[str, str], float] = {}

    # --- what members write and report ------------------------------------------------------------

    def write_receiver(self, message: InterestChanged, now: float) -> None:
        """Take what a receiver wrote down."""
        name, record = message.receiver, message.record
        if record is None:
            self.receivers.pop(name, None)
            return
        receiver = self.receivers.setdefault(name, Receiver(name, now))
        if receiver.record is None or set(receiver.record.flows) != set(record.flows):
            receiver.leave_judging()
        receiver.record, receiver.heard_at = record, now

    def write_publisher(self, message: PublisherChanged, now: float) -> None:
        """Take what a publisher wrote down."""
        name, record = message.publisher, message.record
        if record is None:
            self.publishers.pop(name, None)
            return
        publisher = self.publishers.setdefault(name, Publisher(name, now))
        publisher.record, publisher.heard_at = record, now

    def take_publisher(self, message: PublisherReported, now: float) -> list[CountRow]:
        """Take a report of a publisher; returns its counts."""
        name = message.publisher
        publisher = self.publishers.setdefault(name, Publisher(name, now))
        return publisher.take(message.report, now)

    def take_receiver(self, message: ReceiverReported, now: float) -> None:
        """Take a report of a receiver."""
        name = message.receiver
        receiver = self.receivers.setdefault(name, Receiver(name, now))
        before = receiver.lost
        receiver.take(message.report, self._per_packet, now)
        self.lost += receiver.lost - before

    def note_connection(self, *, is_connected: bool, now: float) -> None:
        """Note that members cannot be heard, or can be again."""
        if is_connected:
            self.hearing.regain(self._list_members(), now)
        else:
            self.hearing.lose(now)

    # --- over time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Drop who reports without having written anything down, and is silent."""
        self.hearing.tick(now)
        self._per_packet = self._count_per_packet()
        for members in (self.publishers, self.receivers):
            ended = [
                member.name
                for member in members.values()
                if member.record is None and member.silence(now) > self.forget_after
            ]
            for name in ended:
                del members[name]

    def is_gone(self, member: Member, now: float) -> bool:
        """Whether a member has been silent for too long."""
        return not member.is_alive(self.hearing.limit(now), self.gone_after)

    def forget(self, now: float) -> Iterator[tuple[ControlAction, Member, bool]]:
        """Whose keys to drop, since they have been gone for long; and whether that is news."""
        if self.hearing.deaf_at is not None:
            return
        for member in self._list_members():
            if member.record is None or member.silence(now) < self.forget_after:
                continue
            action: ControlAction
            if isinstance(member, Receiver):
                action = ForgetReceiver(member.name, member.record.incarnation)
            else:
                action = ForgetPublisher(member.name, member.record.incarnation)
            key = type(member).__name__, member.name
            before = self._forgotten_at.get(key)
            if before is None or now - before >= _FORGET_AGAIN:
                self._forgotten_at[key] = now
                yield action, member, before is None or before < member.heard_at
        self._forgotten_at = {
            key: at for key, at in self._forgotten_at.items() if now - at <= self.forget_after
        }

    # --- looking ----------------------------------------------------------------------------------

    def list_publishers(self) -> list[Publisher]:
        """Those that wrote down that they are there, by name."""
        return [each for _, each in sorted(self.publishers.items()) if each.record is not None]

    def list_receivers(self) -> list[Receiver]:
        """Those that wrote down what they want, by name."""
        return [each for _, each in sorted(self.receivers.items()) if each.record is not None]

    def measure(self, now: float) -> Waste:
        """What all receivers that are there measured last."""
        return add_wastes(
            each.waste
            for each in self.receivers.values()
            if each.record is not None and not self.is_gone(each, now)
        )

    def describe_publishers(self, now: float, version: int) -> list[PublisherStatus]:
        """All publishers for a status; `version` is the one in force."""
        limit = self.hearing.limit(now)
        return [
            each.describe(now, each.is_alive(limit, self.gone_after), version)
            for each in self.list_publishers()
        ]

    def describe_receivers(self, now: float) -> list[ReceiverStatus]:
        """All receivers for a status."""
        limit = self.hearing.limit(now)
        return [
            each.describe(is_alive=each.is_alive(limit, self.gone_after))
            for each in self.list_receivers()
        ]

    def _list_members(self) -> Iterator[Publisher | Receiver]:
        yield from self.publishers.values()
        yield from self.receivers.values()

    def _count_per_packet(self) -> float:
        """The messages in a packet: the mean of all publishers, by what each sends."""
        weighed = [
            (last.messages_per_packet, sum(messages for _, _, messages in last.counts))
            for last in (publisher.last for publisher in self.publishers.values())
            if last is not None and last.messages_per_packet > 0
        ]
        messages = sum(weight for _, weight in weighed)
        packets = sum(weight / per_packet for per_packet, weight in weighed)
        return messages / packets if packets > 0 else 1.0
