"""The publications that a broker has routed and that somebody has not finished."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from distributary.content.messages import Name, Publication

__all__ = ["PublicationKey", "UnfinishedPublications", "key_of_publication"]

# A publication's advertisement, and its number under that advertisement.
PublicationKey = tuple[Name, int]


def key_of_publication(publication: Publication) -> PublicationKey:
    """What identifies a publication."""
    return publication.advertisement, publication.number


@dataclass(slots=True)
class _Unfinished:
    """Senders to acknowledge, with its number on their connection, and who has not finished it."""

    publication: Publication
    senders: list[tuple[str, int]]
    left: set[str]
    is_own: bool


class UnfinishedPublications:
    """Unfinished publications, and how many of them came from this broker's own clients."""

    def __init__(self) -> None:
        self._by_key: dict[PublicationKey, _Unfinished] = {}
        self._by_advertisement: Counter[Name] = Counter()
        self.own = 0
        self.own_bytes = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: PublicationKey) -> bool:
        return key in self._by_key

    def count_under(self, advertisement: Name) -> int:
        """The number of unfinished publications under an advertisement."""
        return self._by_advertisement[advertisement]

    def list_left(self, who: str) -> list[Publication]:
        """The publications that somebody has not finished."""
        return [each.publication for each in self._by_key.values() if who in each.left]

    def add(
        self, publication: Publication, sender: tuple[str, int], left: set[str], *, is_own: bool
    ) -> None:
        """Add a publication that those in `left` have to finish."""
        key = key_of_publication(publication)
        self._by_key[key] = _Unfinished(publication, [sender], left, is_own)
        self._by_advertisement[publication.advertisement] += 1
        if is_own:
            self.own += 1
            self.own_bytes += publication.event.size

    def add_sender(self, key: PublicationKey, sender: tuple[str, int]) -> None:
        """Somebody else has sent the same publication."""
        self._by_key[key].senders.append(sender)

    def finish(self, who: str, publication: Publication) -> list[tuple[str, int]] | None:
        """Note that somebody has finished a publication.

        Returns the senders to acknowledge if all have finished it now, else None.
        """
        key = key_of_publication(publication)
        found = self._by_key.get(key)
        if found is None:
            return None
        found.left.discard(who)
        if found.left:
            return None
        del self._by_key[key]
        self._by_advertisement[publication.advertisement] -= 1
        if not self._by_advertisement[publication.advertisement]:
            del self._by_advertisement[publication.advertisement]
        if found.is_own:
            self.own -= 1
            self.own_bytes -= publication.event.size
        return found.senders
