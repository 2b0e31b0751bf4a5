"""A client's connection to a broker: where it is, and the handshake."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from distributary.content.codec import Codec, MessageError
from distributary.content.handshake import judge_welcome
from distributary.content.protocol import (
    WIRE_VERSIONS,
    Goodbye,
    Hello,
    Identity,
    Refusal,
    Welcome,
)
from distributary.content.tcp.trust import BROKER_UNIT, check_certificate
from distributary.machines.real import (
    Admission,
    ConnectionLimits,
    Dialer,
    Proof,
    Rejection,
    TlsFiles,
    parse_address,
)
from distributary.machines.real.addresses import check_encryption, resolve
from distributary.model import Schema

__all__ = ["CLIENT_LIMITS", "Credentials", "check_address", "make_dialer"]

LONGEST_FRAME = 64 << 20  # bytes, of brokers
CLIENT_LIMITS = ConnectionLimits(queue=1 << 30)  # the client bounds what it sends by itself
_CODEC = Codec(Schema(()))  # filters of clients travel as text, so no schema is needed


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """How a client proves its name, and knows its broker.

    With TLS, the broker's certificate must have been signed by the authority `tls.ca`, name the
    broker and have the organizational unit `broker`; without `ca` it must name the host, and the
    system's authorities count. Without TLS only brokers on this machine are allowed, unless
    `insecure`.
    """

    name: str
    token: str = ""
    tls: TlsFiles | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"

    @property
    def has_authority(self) -> bool:
        """Whether an authority of the network signs the brokers' certificates."""
        return self.tls is not None and self.tls.ca is not None

    def make_context(self) -> ssl.SSLContext | None:
        """Make the TLS context, if there is TLS."""
        if self.tls is None:
            return None
        return self.tls.client_context(check_host=self.tls.ca is None)


async def check_address(broker: str, credentials: Credentials) -> None:
    """Raise an `AddressError` for a host that is unknown, or outside this machine without TLS."""
    address = parse_address(broker)
    hosts = [host for _, (host, _) in await resolve(address)]
    encrypted = credentials.tls is not None
    check_encryption(address, hosts, encrypted=encrypted, insecure=credentials.insecure)


def make_dialer(
    broker: str,
    credentials: Credentials,
    *,
    on_refused: Callable[[Refusal], None],
    on_trouble: Callable[[str], None],
) -> Dialer:
    """Make the dialer for a broker's address; connections have its `Welcome` as their peer.

    `on_refused` hears why the broker or this client refused, each time, and `on_trouble` why there
    is no connection.
    """

    def greet(proof: Proof) -> bytes | Rejection:
        if credentials.has_authority and BROKER_UNIT not in proof.units:
            reason = f"its certificate is not that of a broker: it lacks OU={BROKER_UNIT}"
            on_refused(Refusal(reason))  # before the token is sent
            return Rejection(reason)
        hello = Hello("client", credentials.name, WIRE_VERSIONS, token=credentials.token)
        return _CODEC.encode(hello)

    def judge(answer: bytes, proof: Proof) -> Admission | Rejection:
        welcome = _read_answer(answer)
        if isinstance(welcome, Refusal):
            on_refused(welcome)
            return Rejection(welcome.reason)
        fault = _find_fault(welcome, proof, credentials)
        if fault:
            on_refused(Refusal(fault))
            return Rejection(fault, _CODEC.encode(Goodbye(fault)))
        return Admission(welcome, _CODEC, LONGEST_FRAME)

    return Dialer(
        parse_address(broker),
        greet,
        judge,
        tls=credentials.make_context(),
        insecure=credentials.insecure,
        report=on_trouble,
    )


def _read_answer(answer: bytes) -> Welcome | Refusal:
    try:
        found = _CODEC.decode(answer)
    except MessageError as error:
        return Refusal(f"it is not a broker ({error.reason})")
    if isinstance(found, Welcome | Refusal):
        return found
    return Refusal("it did not answer as a broker does")


def _find_fault(welcome: Welcome, proof: Proof, credentials: Credentials) -> str:
    """Why the client does not accept a broker, or an empty text if it does."""
    mine = Identity("client", credentials.name)
    refusal = judge_welcome(welcome, mine, expected=None)
    if refusal is not None:
        return refusal.reason
    if credentials.has_authority:
        return check_certificate(proof, "broker", welcome.name)
    return ""
