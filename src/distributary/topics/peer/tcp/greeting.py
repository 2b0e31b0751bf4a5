"""The handshake of a connection to a peer: who comes, what for, and who answers.

The side that connects sends `Hello`, the peer answers `Welcome` or `Refused`. A connection of
another peer then carries the messages of the ring, one of a client those between a client and its
peer (`topics/peer/codec.py`), and one that asks for the status a single answer.
"""

from __future__ import annotations

import msgspec

from distributary.machines.real import parse_address
from distributary.topics.numbers import Count

__all__ = [
    "ROLES",
    "WIRE_VERSIONS",
    "Hello",
    "Keeping",
    "Refused",
    "Welcome",
    "client_name",
    "find_difference",
    "find_fault",
    "find_version",
    "host_of",
    "read_answer",
    "read_hello",
    "write",
]

WIRE_VERSIONS = (1, 1)  # the oldest and the newest that this release speaks
ROLES = ("peer", "client")
_LONGEST_NAME = 100  # bytes; the name is part of many messages
_SESSION = 16  # digits

_HEX = frozenset("0123456789abcdef")


class Keeping(msgspec.Struct, frozen=True):
    """What a peer is told to keep of topics; it should be the same for all peers of a ring."""

    copies: Count
    history: Count
    history_bytes: Count


class Hello(msgspec.Struct, frozen=True, tag="topics-hello", repr_omit_defaults=True):
    """A peer, whose name is its address; or a client, which wants topics or the status.

    `session` is drawn at random when the process, or the client, starts. Fields travel with their
    names, and releases pass over those that they do not know.
    """

    role: str
    name: str
    session: str
    versions: tuple[int, int] = WIRE_VERSIONS
    token: str = ""
    wants_status: bool = False
    is_active: bool = False  # a peer that is part of a ring
    keeps: Keeping | None = None  # a peer; None for earlier releases

    def __repr__(self) -> str:
        return f"Hello({self.role!r}, {self.name!r})"


class Welcome(msgspec.Struct, frozen=True, tag="topics-welcome"):
    """The connection is accepted, by the peer of this name."""

    name: str
    session: str
    version: int
    is_active: bool = False
    keeps: Keeping | None = None


class Refused(msgspec.Struct, frozen=True, tag="topics-refused"):
    """The connection is refused; asking again does not help if `is_final`."""

    reason: str
    is_final: bool = False


_encoder = msgspec.msgpack.Encoder()
_hellos = msgspec.msgpack.Decoder(Hello)
_answers: msgspec.msgpack.Decoder[Welcome | Refused] = msgspec.msgpack.Decoder(Welcome | Refused)


def write(message: Hello | Welcome | Refused) -> bytes:
    """Encode a message of the handshake."""
    return _encoder.encode(message)


def read_hello(data: bytes) -> Hello | None:
    """Decode a greeting; None if it is none."""
    try:
        return _hellos.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read_answer(data: bytes) -> Welcome | Refused:
    """Decode the answer to a greeting; whatever else comes refuses it."""
    try:
        return _answers.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Refused("there is no peer of topics at this address, but something else")


def find_fault(hello: Hello) -> str:
    """Why nobody can come with this greeting, or an empty text."""
    if hello.role not in ROLES:
        return f"the role must be 'peer' or 'client', not {hello.role!r}"
    if len(hello.session) != _SESSION or not _HEX.issuperset(hello.session):
        return f"a session has {_SESSION} hexadecimal digits, not {hello.session[:40]!r}"
    if hello.role == "peer":
        try:
            parse_address(hello.name)
        except ValueError as error:
            return f"a peer's name is its address, and {error}"
    elif hello.name and not (hello.name.isprintable() and hello.name == hello.name.strip()):
        return f"a name has printable characters and no blanks around it, not {hello.name[:40]!r}"
    if len(hello.name.encode(errors="surrogatepass")) > _LONGEST_NAME:
        return f"a name has at most {_LONGEST_NAME} bytes, unlike {hello.name[:40]!r}"
    if find_version(hello.versions) is None:
        return (
            f"wire versions {hello.versions[0]} to {hello.versions[1]} and {WIRE_VERSIONS[0]} to "
            f"{WIRE_VERSIONS[1]} have none in common: upgrade one"
        )
    return ""


def find_difference(here: Keeping, there: Keeping | None) -> str:
    """Which options of two peers differ, with both values; an empty text if none does."""
    if there is None:
        return ""
    return ", ".join(
        f"--{name.replace('_', '-')} is {getattr(there, name):,} there and {value:,} here"
        for name, value in msgspec.structs.asdict(here).items()
        if getattr(there, name) != value
    )


def find_version(theirs: tuple[int, int]) -> int | None:
    """The newest version that both sides speak."""
    newest = min(theirs[1], WIRE_VERSIONS[1])
    return newest if newest >= max(theirs[0], WIRE_VERSIONS[0]) else None


def client_name(hello: Hello) -> str:
    """What channels call a client: nobody else can have that name where names are proven."""
    return f"client/{hello.name}/{hello.session}" if hello.name else f"client/{hello.session}"


def host_of(name: str) -> str:
    """The host of a peer, which its certificate names."""
    return parse_address(name).host
