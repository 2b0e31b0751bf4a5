"""What the server says when its permissions forbid a subject.

It says so in an error of the connection, in lower case and without naming a request; whoever has
asked would wait in vain.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from distributary.topics.nats.subjects import Subjects, token_of

__all__ = ["REPLIES", "Refusal", "has_token", "read_refusal"]

REPLIES = "_INBOX."  # begins the subjects of answers to requests
_WORDS = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_FAMILIES = {"on": "on.>", "client": "client.*", "to": "to.*"}  # subjects of many names


class Refusal(NamedTuple):
    """A subject that these credentials may not use, in lower case."""

    subscribes: bool
    subject: str

    @property
    def action(self) -> str:
        """What the server refuses, in words."""
        return "subscribe to" if self.subscribes else "publish to"

    @property
    def token(self) -> str:
        """The last token."""
        return self.subject.rpartition(".")[2]

    def find_family(self, subjects: Subjects) -> str:
        """The subject with wildcards in the place of names: what an operator has to allow."""
        if self.subject.startswith(REPLIES.lower()):
            return f"{REPLIES}>"
        before, _, rest = self.subject.partition(f"{subjects.prefix.lower()}.")
        family = _FAMILIES.get(rest.partition(".")[0]) if not before else None
        return self.subject if family is None else f"{subjects.prefix}.{family}"


def read_refusal(error: Exception) -> Refusal | None:
    """The subject that the server refuses; None for an error of another kind."""
    found = _WORDS.search(str(error))
    if found is None:
        return None
    return Refusal(found[1].lower() == "subscription", found[2].lower())


def has_token(channel: str, token: str) -> bool:
    """Whether a channel is named by a token of a refusal, in which upper and lower case are one."""
    return token_of(channel).lower() == token
