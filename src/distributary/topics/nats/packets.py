"""The short forms in which the most frequent messages travel on a NATS server.

Numbers are in base 128, low digits first; a set high bit says that another follows.

What members of a channel get is events of one topic, named by the subject, and nothing else: two
bytes, of which the lowest bit says whether there are several and the others are the mark of their
epoch, which tells it from the few that a subscriber knows of; the number of the first; and the
payload, or each payload after its length.

Other messages begin with a tag, or are MessagePack arrays of three (see `codec.py`), whose first
byte is none of the tags.

| tag | what | then |
| --- | --- | --- |
| 1 | an event of a client without a name of its own | the eight bytes of its name, stream, |
|   | | number, payload |
| 2 | published events of one stream | the client, stream, number of the first, and each payload |
|   | | after its length |
| 3 | confirmations | pairs of stream and last number taken |
| 4 | a piece of a long message | its number from 0, how many there are, and the piece |
| 5 | published events of several topics | the client, and for each topic its length and name, |
|   | | stream, number of the first, how many, and each payload after its length |
| 6 | a heartbeat | the client, generation, 1 if it is on channels, digest, pulse |

A client is the length of its name and the name; one without a name of its own is a zero and the
eight bytes of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from distributary.topics.codec import Beat, Put, Taken, mark_of
from distributary.topics.messages import Event
from distributary.topics.numbers import MOST

__all__ = [
    "BEAT",
    "JOINT_PUTS",
    "PACKETS",
    "TAKEN",
    "EventPacket",
    "PieceCollector",
    "decode_beat",
    "decode_joint_puts",
    "decode_puts",
    "decode_taken",
    "encode_beat",
    "encode_events",
    "encode_joint_puts",
    "encode_puts",
    "encode_taken",
    "split_pieces",
]

_PUT, _PUTS, _TAKEN, _PIECE, _JOINT, _BEAT = range(1, 7)
PACKETS = range(_PUT, _BEAT + 1)  # the tags
_MARK = 2  # bytes
_UNNAMED = re.compile(r"client/([0-9a-f]{16})")
_NAME = 8  # bytes
_AROUND_PIECE = 32  # bytes
_MOST_PIECES = 4_096
# How these begin.
TAKEN, JOINT_PUTS, BEAT = bytes((_TAKEN,)), bytes((_JOINT,)), bytes((_BEAT,))


class EventPacket:
    """Consecutive events of one topic, as they arrived: the `mark` of their epoch, and payloads."""

    __slots__ = ("first", "mark", "payloads")

    def __init__(self, data: bytes) -> None:
        mark, several = divmod(int.from_bytes(data[:_MARK], "little"), 2)
        self.mark = mark
        self.first, at = _read_number(data, _MARK)
        self.payloads = [*_read_items(data, at)] if several else [data[at:]]
        if self.first + len(self.payloads) - 1 > MOST:
            raise ValueError("the numbers of events are too large")

    def events(self, topic: str, epoch: int) -> Iterator[Event]:
        """The events, now that topic and epoch are known."""
        for number, payload in enumerate(self.payloads, self.first):
            yield Event(topic, number, payload, epoch)


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode events of one topic and epoch with consecutive numbers."""
    first = events[0]
    several = len(events) > 1
    out = bytearray((2 * mark_of(first.epoch) + several).to_bytes(_MARK, "little"))
    _add_number(out, first.number)
    if not several:
        return bytes(out + first.payload)
    _add_items(out, (event.payload for event in events))
    return bytes(out)


def encode_taken(found: Iterable[Taken]) -> bytes:
    """Encode the confirmations for one client."""
    out = bytearray((_TAKEN,))
    for taken in found:
        _add_number(out, taken.stream)
        _add_number(out, taken.upto)
    return bytes(out)


def decode_taken(data: bytes) -> list[Taken]:
    """Decode confirmations; raises `ValueError` for anything else."""
    if data[:1] != TAKEN:
        raise ValueError("not a packet of confirmations")
    numbers, at = [], 1
    while at < len(data):
        number, at = _read_number(data, at)
        numbers.append(number)
    if len(numbers) % 2:
        raise ValueError("a confirmation without a number")
    return [Taken(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def encode_puts(client: str, puts: Sequence[Put]) -> bytes:
    """Encode events of one stream with consecutive numbers."""
    unnamed = _UNNAMED.fullmatch(client)
    if unnamed and len(puts) == 1:
        out = bytearray((_PUT,)) + bytes.fromhex(unnamed[1])
        _add_number(out, puts[0].stream)
        _add_number(out, puts[0].number)
        return bytes(out + puts[0].payload)
    out = bytearray((_PUTS,))
    _add_client(out, client)
    _add_number(out, puts[0].stream)
    _add_number(out, puts[0].number)
    _add_items(out, (put.payload for put in puts))
    return bytes(out)


def decode_puts(data: bytes) -> tuple[str, list[Put]]:
    """Decode a client's name and its events; raises `ValueError` for anything else."""
    if data[:1] == bytes((_PUT,)):
        return _decode_put(data)
    if data[:1] != bytes((_PUTS,)):
        raise ValueError("not a packet of published events")
    client, at = _read_client(data, 1)
    stream, at = _read_number(data, at)
    number, at = _read_number(data, at)
    return client, _number_puts(stream, number, [*_read_items(data, at)])


def _decode_put(data: bytes) -> tuple[str, list[Put]]:
    stream, at = _read_number(data, 1 + _NAME)
    number, at = _read_number(data, at)
    return f"client/{data[1 : 1 + _NAME].hex()}", [Put(stream, number, data[at:])]


def encode_joint_puts(client: str, puts: Mapping[str, Sequence[Put]]) -> bytes:
    """Encode events by topic; those of a topic are of one stream, with consecutive numbers."""
    out = bytearray(JOINT_PUTS)
    _add_client(out, client)
    for topic, found in puts.items():
        _add_items(out, [topic.encode()])
        for number in (found[0].stream, found[0].number, len(found)):
            _add_number(out, number)
        _add_items(out, (put.payload for put in found))
    return bytes(out)


def decode_joint_puts(data: bytes) -> tuple[str, list[tuple[str, list[Put]]]]:
    """Decode a client's name and its events by topic; raises `ValueError` for anything else."""
    if data[:1] != JOINT_PUTS:
        raise ValueError("not a packet of published events of several topics")
    client, at = _read_client(data, 1)
    found: list[tuple[str, list[Put]]] = []
    while at < len(data):
        topic, at = _read_item(data, at)
        stream, at = _read_number(data, at)
        number, at = _read_number(data, at)
        count, at = _read_number(data, at)
        payloads: list[bytes] = []
        for _ in range(count):  # ends with the data, however many they are said to be
            payload, at = _read_item(data, at)
            payloads.append(payload)
        found.append((topic.decode(), _number_puts(stream, number, payloads)))
    return client, found


def _number_puts(stream: int, first: int, payloads: Sequence[bytes]) -> list[Put]:
    if first + len(payloads) - 1 > MOST:
        raise ValueError("the numbers of events are too large")
    return [Put(stream, number, payload) for number, payload in enumerate(payloads, first)]


# --- heartbeats ----------------------------------------------------------------------------------


def encode_beat(client: str, beat: Beat) -> bytes:
    """Encode a heartbeat."""
    out = bytearray(BEAT)
    _add_client(out, client)
    for number in (beat.generation, beat.joined, beat.digest, beat.pulse):
        _add_number(out, number)
    return bytes(out)


def decode_beat(data: bytes) -> tuple[str, Beat]:
    """Decode a client's name and its heartbeat; raises `ValueError` for anything else."""
    if data[:1] != BEAT:
        raise ValueError("not a heartbeat")
    client, at = _read_client(data, 1)
    numbers = []
    while at < len(data):
        number, at = _read_number(data, at)
        numbers.append(number)
    if len(numbers) != 4:
        raise ValueError("a heartbeat has four numbers")
    generation, joined, digest, pulse = numbers
    return client, Beat(generation, bool(joined), digest, pulse)


# --- long messages -------------------------------------------------------------------------------


def split_pieces(data: bytes, most: int) -> list[bytes]:
    """Cut an encoded message that is longer than `most` bytes into pieces that are not."""
    if len(data) <= most:
        return [data]
    room = most - _AROUND_PIECE
    parts = [data[at : at + room] for at in range(0, len(data), room)]
    pieces = []
    for number, part in enumerate(parts):
        out = bytearray((_PIECE,))
        _add_number(out, number)
        _add_number(out, len(parts))
        pieces.append(bytes(out + part))
    return pieces


class PieceCollector:
    """Puts pieces of messages together that arrive one after the other from one sender.

    A message of which a piece is missing is dropped; its sender says it again.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def take(self, data: bytes) -> bytes | None:
        """The whole message; None if there is more to come. Raises `ValueError` for nonsense."""
        if data[:1] != bytes((_PIECE,)):
            return data
        number, at = _read_number(data, 1)
        count, at = _read_number(data, at)
        if number == 0:
            self._parts, self._count = [], count
        if count > _MOST_PIECES or (number, count) != (len(self._parts), self._count):
            self._parts, self._count = [], 0
            raise ValueError("a piece of a message whose other pieces are missing")
        self._parts.append(data[at:])
        if len(self._parts) < count:
            return None
        whole, self._parts, self._count = b"".join(self._parts), [], 0
        return whole


# --- clients, numbers and items ------------------------------------------------------------------


def _add_client(out: bytearray, client: str) -> None:
    unnamed = _UNNAMED.fullmatch(client)
    if unnamed:
        out.append(0)
        out += bytes.fromhex(unnamed[1])
    else:
        _add_items(out, [client.encode()])


def _read_client(data: bytes, at: int) -> tuple[str, int]:
    name, at = _read_item(data, at)
    if name:
        return name.decode(), at
    end = at + _NAME
    if end > len(data):
        raise ValueError("the name of a client is cut short")
    return f"client/{data[at:end].hex()}", end


def _add_number(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is cut short or too long")
        digit = data[at]
        at += 1
        number |= (digit & 127) << shift
        if digit < 128:
            break
        shift += 7
    if number > MOST:
        raise ValueError(f"{number} is too large")
    return number, at


def _add_items(out: bytearray, items: Iterable[bytes]) -> None:
    for item in items:
        _add_number(out, len(item))
        out += item


def _read_item(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_number(data, at)
    if at + length > len(data):
        raise ValueError("an item is cut short")
    return data[at : at + length], at + length


def _read_items(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        item, at = _read_item(data, at)
        yield item
