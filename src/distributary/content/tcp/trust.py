"""Who may connect to a broker, and as whom: by certificate, by token, or freely.

A certificate proves its names (see `machines.real.tls`), and that its holder is a broker if its
subject has the organizational unit `broker`. A token proves the role and the name that it is listed
under. If a broker has neither an authority for certificates nor tokens, everybody who can reach it
is believed; by default these are the users of its own machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.content.protocol import Hello
from distributary.machines.real import Proof, Tokens

__all__ = ["BROKER_UNIT", "EVERYBODY", "ROLES", "Trust", "check_certificate"]

ROLES = ("broker", "client")
BROKER_UNIT = "broker"


@dataclass(frozen=True, slots=True)
class Trust:
    """What a broker asks for: certificates of its authority, tokens, either, or nothing."""

    certificates: bool = False
    tokens: Tokens | None = None

    def find_fault(self, hello: Hello, proof: Proof) -> str:
        """Why the peer is not who it says, or an empty text if it is."""
        who = f"{hello.role} {hello.name!r}"
        if hello.token and self.tokens is not None:
            known = self.tokens.check(hello.role, hello.name, hello.token)
            return "" if known else f"the token is not that of {who}"
        if proof.has_certificate:
            return check_certificate(proof, hello.role, hello.name)
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
    if role == "broker" and BROKER_UNIT not in proof.units:
        return (
            f"the certificate of {name!r} is not that of a broker: its subject lacks "
            f"OU={BROKER_UNIT}"
        )
    return ""
