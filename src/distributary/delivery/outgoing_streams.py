"""The streams of a sender: which there are, where they go, and how long they are repaired."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from distributary.delivery.directory import StreamPlace
from distributary.delivery.outgoing import OutgoingStream
from distributary.delivery.packing import Packer
from distributary.delivery.routes import CONTROL_GROUP, group_name
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.window import RepairWindow
from distributary.delivery.wire import JOURNAL_STREAM

__all__ = ["OutgoingStreams"]

_NEVER = float("inf")
_MOST_EXPIRED = 10_000  # ended streams of which receivers can still learn where they ended
_JOURNAL_BYTES = 64 << 20  # of packets that can be repaired
_MOST_RECORDS = 0xFFFF  # in a packet


class OutgoingStreams:
    """The streams by number, and the addresses of receivers that get something by unicast.

    A stream that has ended is repaired for `linger` seconds after its last packet. After that the
    sender only knows where it ended.
    """

    def __init__(self, params: SenderParams, room: int, addresses: Mapping[str, str]) -> None:
        """Bodies of packets have at most `room` bytes; `addresses` are fixed ones of receivers."""
        self._params = params
        self._room = room
        self._fixed_addresses = frozenset(addresses)
        self.addresses = dict(addresses)
        self._unicast: Counter[str] = Counter()  # streams that go to each receiver alone
        self._ending: dict[OutgoingStream, None] = {}
        self._expired: deque[int] = deque()
        window = RepairWindow(params.journal_packets, _JOURNAL_BYTES)
        packer = Packer(room, _MOST_RECORDS)
        self.journal = OutgoingStream(JOURNAL_STREAM, CONTROL_GROUP, False, packer, window)
        self._streams = {JOURNAL_STREAM: self.journal}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[OutgoingStream]:
        return iter(self._streams.values())

    def __getitem__(self, number: int) -> OutgoingStream:
        return self._streams[number]

    def get(self, number: int) -> OutgoingStream | None:
        """The stream of that number, if there is one."""
        return self._streams.get(number)

    def begin(self, places: Mapping[int, StreamPlace]) -> list[OutgoingStream]:
        """Begin streams at these places."""
        params, begun = self._params, []
        for number, place in places.items():
            unicast = place.group is None
            to = place.receiver or "" if place.group is None else group_name(place.group)
            packer = Packer(self._room, params.messages_per_packet)
            window = RepairWindow(params.window_packets, params.window_bytes)
            self._streams[number] = OutgoingStream(number, to, unicast, packer, window)
            self._unicast[to] += unicast
            begun.append(self._streams[number])
        return begun

    def drop(self, numbers: Iterable[int]) -> set[OutgoingStream]:
        """Forget streams by which nothing was sent."""
        gone = {self._streams.pop(number) for number in numbers}
        self._forget_addresses(gone)
        return gone

    def end(self, number: int, now: float) -> OutgoingStream:
        """End a stream: nothing follows its last packet."""
        stream = self._streams[number]
        stream.ended = True
        self._ending[stream] = None
        self.note_sent(stream, now)
        return stream

    def note_sent(self, stream: OutgoingStream, now: float) -> None:
        """Note that a packet of a stream that has ended was sent."""
        stream.expires_at = now + self._params.linger

    def next_at(self) -> float:
        """When the next stream expires."""
        return min((stream.expires_at for stream in self._ending), default=_NEVER)

    def take_expired(self, now: float) -> set[OutgoingStream]:
        """Streams that are repaired no longer from now on."""
        gone = set()
        for stream in list(self._ending):
            if stream.expires_at > now:
                continue
            if not stream.finished:  # its last packets wait for the pacing
                self.note_sent(stream, now)
                continue
            del self._ending[stream]
            stream.window.clear()
            self._expired.append(stream.number)
            gone.add(stream)
        while len(self._expired) > _MOST_EXPIRED:
            del self._streams[self._expired.popleft()]
        self._forget_addresses(gone)
        return gone

    def learn_address(self, name: str, address: str) -> None:
        """Note where a receiver is, if it gets something by unicast and has no fixed address."""
        if name not in self._fixed_addresses and self._unicast[name] > 0:
            self.addresses[name] = address

    def _forget_addresses(self, streams: Iterable[OutgoingStream]) -> None:
        for stream in streams:
            self._unicast[stream.to] -= stream.unicast
            if not self._unicast[stream.to]:
                del self._unicast[stream.to]
                if stream.to not in self._fixed_addresses:
                    self.addresses.pop(stream.to, None)
