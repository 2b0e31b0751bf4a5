"""A client's connection to a peer: where it is, how both prove who they are, and the handshake."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from distributary.machines.real import (
    Admission,
    Codec,
    ConnectionLimits,
    Dialer,
    Proof,
    Rejection,
    TlsFiles,
    parse_address,
)
from distributary.machines.real.addresses import check_encryption, resolve
from distributary.machines.real.trust import check_certificate
from distributary.topics.peer.tcp.errors import PeerRefusedError
from distributary.topics.peer.tcp.greeting import Hello, Refused, read_answer, write

__all__ = ["CLIENT_LIMITS", "Attachment", "PeerOptions", "make_client_dialer"]

LONGEST_FRAME = 64 << 20  # bytes, of peers
CLIENT_LIMITS = ConnectionLimits(queue=1 << 30)  # the client bounds what it sends by itself
_PEER = "peer"


@dataclass(frozen=True, slots=True, repr=False)
class PeerOptions:
    """The address of a peer, or several separated by commas, and how names are proven.

    A client learns of further peers from its own. With TLS, a peer's certificate must have been
    signed by the authority `tls.ca`, name its host and have the organizational unit `peer`; without
    `ca` the system's authorities count. Without TLS only peers on this machine are allowed, unless
    `insecure`. `name` is needed where peers want names to be proved, by a certificate or a token.
    """

    url: str
    name: str = ""
    token: str = ""
    tls: TlsFiles | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("give the address of at least one peer, as HOST:PORT")
        for address in self.addresses:
            parse_address(address)

    def __repr__(self) -> str:
        return f"PeerOptions({self.url!r})"

    def __str__(self) -> str:
        return ", ".join(self.addresses)

    @property
    def addresses(self) -> list[str]:
        """The list of addresses."""
        return [one.strip() for one in self.url.split(",") if one.strip()]

    @property
    def has_authority(self) -> bool:
        """Whether an authority of the network signs the peers' certificates."""
        return self.tls is not None and self.tls.ca is not None

    def make_context(self) -> ssl.SSLContext | None:
        """Make the TLS context, if there is TLS."""
        return None if self.tls is None else self.tls.client_context(check_host=self.tls.ca is None)

    async def check_addresses(self) -> None:
        """Raise an `AddressError` for an unknown host, or one outside this machine without TLS."""
        for each in self.addresses:
            address = parse_address(each)
            hosts = [host for _, (host, _) in await resolve(address)]
            encrypted = self.tls is not None
            check_encryption(address, hosts, encrypted=encrypted, insecure=self.insecure)


class Attachment(NamedTuple):
    """The peer at the other end of a client's connection."""

    dialled: str  # the address that was dialled, which may be another name of the peer
    name: str


def make_client_dialer(
    peer: str,
    options: PeerOptions,
    *,
    hello: Hello,
    codec: Codec,
    on_refused: Callable[[PeerRefusedError], None],
    on_trouble: Callable[[str], None] = lambda reason: None,
) -> Dialer:
    """Make the dialer to a peer; its connections have an `Attachment` as their peer.

    `on_refused` hears why the peer or this client refuses for good.
    """
    address = parse_address(peer)
    greeting = write(msgspec.structs.replace(hello, token=options.token))

    def greet(proof: Proof) -> bytes | Rejection:
        if options.has_authority and (fault := check_certificate(proof, _PEER, address.host)):
            on_refused(PeerRefusedError(peer, fault))  # before the token is sent
            return Rejection(fault)
        return greeting

    def judge(answer: bytes, proof: Proof) -> Admission | Rejection:
        del proof
        found = read_answer(answer)
        if isinstance(found, Refused):
            if found.is_final:
                on_refused(PeerRefusedError(peer, found.reason))
            return Rejection(found.reason)
        return Admission(Attachment(peer, found.name), codec, LONGEST_FRAME)

    return Dialer(
        address,
        greet,
        judge,
        tls=options.make_context(),
        insecure=options.insecure,
        report=on_trouble,
    )
