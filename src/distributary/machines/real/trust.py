"""Who may connect to a process, and as whom: by certificate, by token, or freely.

A certificate proves its names (see `tls.py`). For any role but that of a client, it proves the role
if its subject has an organizational unit of the role's name. A token proves the role and the name
that it is listed under. If a process has neither an authority for certificates nor tokens,
everybody who can reach it is believed; by default these are the users of its own machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from distributary.machines.real.tls import Proof
from distributary.machines.real.tokens import Tokens

__all__ = ["EVERYBODY", "Claim", "Trust", "check_certificate"]

_CLIENT = "client"


class Claim(Protocol):
    """Who a peer says it is, in its greeting."""

    @property
    def role(self) -> str:
        """The role."""
        ...

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def token(self) -> str:
        """The token; empty if it has none."""
        ...


@dataclass(frozen=True, slots=True)
class Trust:
    """What a process asks for: certificates of its authority, tokens, either, or nothing."""

    certificates: bool = False
    tokens: Tokens | None = None

    def find_fault(self, claim: Claim, proof: Proof) -> str:
        """Why the peer is not who it says, or an empty text if it is."""
        who = f"{claim.role} {claim.name!r}"
        if claim.token and self.tokens is not None:
            known = self.tokens.check(claim.role, claim.name, claim.token)
            return "" if known else f"the token is not that of {who}"
        if proof.has_certificate:
            return check_certificate(proof, claim.role, claim.name)
        if self.certificates or self.tokens is not None:
            wanted = [
                *(["a certificate"] if self.certificates else []),
                *(["a token"] if self.tokens is not None else []),
            ]
            return f"{who} must prove its name by {' or '.join(wanted)}"
        return ""

    @property
    def proves(self) -> bool:
        """Whether names are proven."""
        return self.certificates or self.tokens is not None


EVERYBODY = Trust()


def check_certificate(proof: Proof, role: str, name: str) -> str:
    """Why a certificate does not prove a role and a name, or an empty text if it does."""
    if name not in proof.names:
        names = ", ".join(map(repr, sorted(proof.names))) or "nobody"
        return f"the certificate is of {names}, not of {name!r}"
    if role != _CLIENT and role not in proof.units:
        return f"the certificate of {name!r} is not that of a {role}: its subject lacks OU={role}"
    return ""
