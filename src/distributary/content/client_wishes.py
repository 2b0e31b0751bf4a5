"""What a client wants, by numbers that the next process of the client recognizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from distributary.content.client_actions import LostEvents, ReceivedEvent
from distributary.content.client_session import RequestKey

__all__ = ["ClientWishes"]

_DIGEST_BYTES = 6
_SPAN = 1 << (8 * _DIGEST_BYTES)


class ClientWishes:
    """The filters that the application wants, and those that an earlier process has left.

    `texts` has the wanted ones. `unclaimed` has those that the broker holds for an earlier process
    and that nobody wants yet, with the events that came for them and reports of lost ones.

    A filter is numbered by a digest of its text and, above that, how often it was used before. A
    client that restarts thus recognizes its requests, and no number is used again: a late answer
    about an earlier request cannot be mistaken for one about the present one.
    """

    def __init__(self) -> None:
        self.texts: dict[RequestKey, str] = {}
        self.unclaimed: dict[RequestKey, list[ReceivedEvent | LostEvents]] = {}
        self._uses: Counter[RequestKey] = Counter()

    def choose_key(self, kind: str, text: str) -> RequestKey:
        """The number of a filter, the same if it is wanted or unclaimed already."""
        digest = int.from_bytes(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()) or 1
        for key in self.unclaimed:
            if key.kind == kind and key.number % _SPAN == digest:
                return key
        key = RequestKey(kind, digest)
        key = RequestKey(kind, digest + _SPAN * self._uses[key])
        while self.texts.get(key, text) != text:  # another filter has the same digest
            key = RequestKey(kind, key.number + _SPAN)
        return key

    def end(self, key: RequestKey) -> bool:
        """Forget a wanted filter, and never use its number again; False if it was not wanted."""
        if self.texts.pop(key, None) is None:
            return False
        self._uses[RequestKey(key.kind, key.number % _SPAN)] = key.number // _SPAN + 1
        return True

    def find_unclaimed(self, held: Iterable[RequestKey]) -> bool:
        """Note which of the requests that the broker holds nobody wants; whether there are any."""
        self.unclaimed.clear()
        self.unclaimed.update((key, []) for key in sorted(held) if key not in self.texts)
        return bool(self.unclaimed)
