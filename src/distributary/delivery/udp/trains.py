"""Prepared trains of packets, to measure receivers: much cheaper to send than a publisher's."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import numpy as np

from distributary.delivery._wire_kernels import ByteArray
from distributary.delivery.authentication import Authenticator
from distributary.delivery.directory_log import DirectoryLog
from distributary.delivery.routes import publisher_number
from distributary.delivery.udp.datagrams import Address, has_mmsg
from distributary.delivery.wire import (
    HEADER_SIZE,
    MESSAGE_HEADER_SIZE,
    Announcement,
    Header,
    PacketKind,
    encode_announcement,
    encode_header,
)
from distributary.model import Plan

__all__ = ["Train", "TrainSender", "build_directory"]

_SENT_AT_ONCE = 512
_NAME = "train"  # of the publisher
_ROOM = 1_300  # bytes of the directory in a packet


def build_directory(plan: Plan, incarnation: int, sequence: int) -> list[bytes]:
    """Packets that announce a publisher of that plan, and say where all its flows travel."""
    log = DirectoryLog(_ROOM)
    log.prepare(plan)
    log.switch(lambda stream: 0)
    announced = Announcement(
        1, 0, log.directory.fingerprint, 0, blocks=log.blocks, record=log.record, publisher=_NAME
    )
    bodies = [(PacketKind.ANNOUNCEMENT, 0, encode_announcement(announced))]
    for block in range(log.blocks):
        bodies += [(PacketKind.BLOCK, count, body) for count, body in log.bodies_of(block)]
    return [
        Authenticator().encode_packet(
            Header(
                kind,
                items=count,
                publisher=publisher_number(_NAME),
                incarnation=incarnation,
                sequence=sequence,
            ),
            body,
        )
        for kind, count, body in bodies
    ]


class Train:
    """The consecutive packets of one session of a plan; its flows take turns.

    Packets differ only in their numbers, which are written into a block of packets at once. A train
    continues the sequence numbers of the train `after` which it runs. It has the numbers of flows
    and streams that a directory gives them which has known this plan alone.
    """

    def __init__(
        self,
        session: int,
        flows: Sequence[int],
        incarnation: int,
        *,
        messages_per_packet: int,
        message_bytes: int,
        after: Train | None = None,
    ) -> None:
        h = messages_per_packet
        length = HEADER_SIZE + h * (MESSAGE_HEADER_SIZE + message_bytes)
        message = [
            ("flow", "<u4"), ("length", "<u4"), ("number", "<u8"), ("payload", f"V{message_bytes}"),
        ]  # fmt: skip
        layout = np.dtype(
            [("header", "V24"), ("sequence", "<u8"), ("sent", "<u8"), ("messages", message, (h,))]
        )
        self._rows = np.zeros((_SENT_AT_ONCE, length), np.uint8)
        publisher, stream = publisher_number(_NAME), 1 + session
        header = encode_header(Header(PacketKind.DATA, length, h, publisher, stream, incarnation))
        self._rows[:, :HEADER_SIZE] = np.frombuffer(header, np.uint8)
        self._fields = self._rows.view(layout)[:, 0]
        self._fields["messages"]["length"] = message_bytes
        self._flows = np.array(flows, np.uint32)
        self.messages_per_packet = h
        self.packets: int = 0 if after is None else after.packets
        self.messages: int = 0 if after is None else after.messages

    def take(self, n: int) -> ByteArray:
        """The next packets as rows, at most a block of them; the next call overwrites them."""
        n, h = min(n, _SENT_AT_ONCE), self.messages_per_packet
        fields = self._fields[:n]
        number = self.messages + np.arange(n * h).reshape(n, h)
        fields["sequence"] = self.packets + 1 + np.arange(n)
        fields["sent"] = time.time_ns()
        fields["messages"]["flow"] = self._flows[number % len(self._flows)]
        fields["messages"]["number"] = number // len(self._flows) + 1
        self.packets += n
        self.messages += n * h
        return self._rows[:n]


class TrainSender:
    """Sends trains through a socket; with `joined` the kernel takes many packets as one piece."""

    def __init__(self, through: socket.socket, *, joined: bool = True) -> None:
        self._through = through
        self._writer = None
        if has_mmsg():
            from distributary.delivery.udp.mmsg import MmsgWriter

            self._writer = MmsgWriter(_SENT_AT_ONCE, joins=joined)

    def send(self, train: Train, packets: int, to: Address) -> None:
        """Send the next packets of a train, waiting while the socket's buffer is full."""
        while packets > 0:
            rows = train.take(packets)
            packets -= len(rows)
            sent = 0
            while sent < len(rows):
                sent += self._send_some(rows[sent:], to)
                if sent < len(rows):
                    _wait_for_room(self._through)

    def _send_some(self, rows: ByteArray, to: Address) -> int:
        if self._writer is not None:
            return self._writer.write_rows(self._through, to, rows)
        try:
            self._through.sendto(rows[0].tobytes(), to)
        except BlockingIOError:
            return 0
        return 1


def _wait_for_room(through: socket.socket) -> None:
    import select

    select.select([], [through], [], 1.0)
