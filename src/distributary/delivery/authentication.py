"""Packet tags: with the key a receiver can tell whether a packet is genuine.

A tag is BLAKE2b with a key, 16 bytes, over everything before it. It does not protect from replays;
incarnations and sequence numbers do, as `docs/wire.md` explains.
"""

from __future__ import annotations

import hashlib
import hmac

from distributary.delivery.wire import HEADER_SIZE, Header, encode_header

__all__ = ["LONGEST_KEY", "SHORTEST_KEY", "TAG_SIZE", "Authenticator"]

TAG_SIZE = 16
SHORTEST_KEY, LONGEST_KEY = 16, 64


class Authenticator:
    """Tags packets and checks tags; without a key it adds no tag and accepts every packet."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
            raise ValueError(
                f"a key has {SHORTEST_KEY} to {LONGEST_KEY} bytes, this one has {len(key)}"
            )
        self._keyed = None if key is None else hashlib.blake2b(key=key, digest_size=TAG_SIZE)

    @property
    def size(self) -> int:
        """How many bytes a tag takes: 0 without a key."""
        return 0 if self._keyed is None else TAG_SIZE

    def tag(self, packet: bytes | bytearray | memoryview) -> bytes:
        """The tag to append to a packet."""
        if self._keyed is None:
            return b""
        digest = self._keyed.copy()  # the key is hashed in already
        digest.update(packet)
        return digest.digest()

    def encode_packet(self, header: Header, body: bytes) -> bytes:
        """A whole packet: the header with the right length, the body, and the tag."""
        length = HEADER_SIZE + len(body) + self.size
        packet = encode_header(header._replace(length=length)) + body
        return packet + self.tag(packet)

    def accepts(self, packet: bytes | memoryview) -> bool:
        """Whether the packet ends in the right tag."""
        if self._keyed is None:
            return True
        end = len(packet) - TAG_SIZE
        return end >= 0 and hmac.compare_digest(self.tag(packet[:end]), bytes(packet[end:]))
