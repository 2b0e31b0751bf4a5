"""A client's connection to a broker: its handshake, and the attributes of the broker's events."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from distributary.content.codec import Codec, MessageError
from distributary.content.handshake import judge_welcome
from distributary.content.protocol import (
    WIRE_VERSIONS,
    AttributeValue,
    Goodbye,
    Hello,
    Identity,
    Refusal,
    Welcome,
)
from distributary.content.tcp.trust import BROKER_UNIT, check_certificate
from distributary.errors import InputError
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
from distributary.model import Attribute, AttributeKind, Schema

__all__ = ["CLIENT_LIMITS", "Credentials", "EventForm", "check_address", "make_dialer"]

LONGEST_FRAME = 64 << 20  # bytes, of brokers
# Brokers cut off clients whose frames have more than 2 MiB.
LONGEST_PAYLOAD = 1 << 20
LONGEST_TEXT = 1 << 17  # characters, of up to four bytes
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
    on_refused: Callable[[str], None],
    on_trouble: Callable[[str], None],
) -> Dialer:
    """Make the dialer for a broker's address; connections have its `Welcome` as their peer.

    `on_refused` hears why the broker or this client refused, `on_trouble` why there is no
    connection.
    """

    def greet(proof: Proof) -> bytes | Rejection:
        if credentials.has_authority and BROKER_UNIT not in proof.units:
            reason = f"its certificate is not that of a broker: it lacks OU={BROKER_UNIT}"
            on_refused(reason)  # before the token is sent
            return Rejection(reason)
        hello = Hello("client", credentials.name, WIRE_VERSIONS, token=credentials.token)
        return _CODEC.encode(hello)

    def judge(answer: bytes, proof: Proof) -> Admission | Rejection:
        verdict = _judge(answer, proof, credentials)
        if isinstance(verdict, Rejection):
            on_refused(verdict.reason)
        return verdict

    return Dialer(
        parse_address(broker),
        greet,
        judge,
        tls=credentials.make_context(),
        insecure=credentials.insecure,
        report=on_trouble,
    )


def _judge(answer: bytes, proof: Proof, credentials: Credentials) -> Admission | Rejection:
    try:
        welcome = _CODEC.decode(answer)
    except MessageError as error:
        return Rejection(f"it is not a broker ({error.reason})")
    if isinstance(welcome, Refusal):
        return Rejection(welcome.reason)
    if not isinstance(welcome, Welcome):
        return Rejection("it did not answer as a broker does")
    mine = Identity("client", credentials.name)
    refusal = judge_welcome(welcome, mine, expected=None)
    fault = "" if refusal is None else refusal.reason
    if not fault and credentials.has_authority:
        fault = check_certificate(proof, "broker", welcome.name)
    if fault:
        return Rejection(fault, _CODEC.encode(Goodbye(fault)))
    return Admission(welcome, _CODEC, LONGEST_FRAME)


class EventForm:
    """The attributes that events of a network have, as a broker says in its `Welcome`."""

    def __init__(self, attributes: tuple[tuple[str, str], ...]) -> None:
        kinds = AttributeKind.__members__
        self.schema = Schema(
            tuple(
                Attribute(name, kinds[kind.upper()])
                for name, kind in attributes
                if kind.upper() in kinds
            )
        )

    def check(
        self, attributes: Mapping[str, Any], payload: bytes = b""
    ) -> dict[str, AttributeValue]:
        """The attributes as they are sent; raises `InputError` for what a broker would refuse."""
        if len(payload) > LONGEST_PAYLOAD:
            raise InputError(
                f"its payload has {len(payload):,} bytes, and brokers take {LONGEST_PAYLOAD:,}"
            )
        checked: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            at = self.schema.place(name)
            if at is None:
                known = ", ".join(each.name for each in self.schema.attributes)
                raise InputError(f"there is no attribute {name!r}, only {known}", value=name)
            attribute = self.schema.attributes[at]
            if attribute.kind is not AttributeKind.DECIMAL:
                attribute.key(value)  # its scale is the broker's business
            if isinstance(value, datetime) and value.tzinfo is None:
                value = value.replace(tzinfo=UTC)
            checked[attribute.name] = value
        if len(checked) < len(attributes):
            raise InputError("two attributes have names that differ only in case")
        size = sum(len(value) for value in checked.values() if isinstance(value, str))
        if size > LONGEST_TEXT:
            raise InputError(f"its text has {size:,} characters, and brokers take {LONGEST_TEXT:,}")
        return checked
