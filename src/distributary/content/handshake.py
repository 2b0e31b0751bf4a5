"""The decisions of a handshake: which connections are accepted, and why others are not."""

from __future__ import annotations

from hashlib import blake2b

from distributary.content.protocol import Hello, Identity, Refusal, Welcome
from distributary.model import Schema

__all__ = ["describe_schema", "find_name_fault", "fingerprint", "judge_hello", "judge_welcome"]

_LONGEST_NAME = 200


def describe_schema(schema: Schema) -> tuple[tuple[str, str], ...]:
    """The names and kinds of the attributes, in order; the kinds as in `AttributeKind`'s names."""
    return tuple((each.name, each.kind.name.lower()) for each in schema.attributes)


def fingerprint(schema: Schema) -> str:
    """A digest of all that gives filters and keys their meaning; the same on every machine."""
    parts = [
        (
            each.name.lower(),
            each.kind.name,
            each.scale,
            None if each.domain is None else sorted(map(repr, each.domain)),
        )
        for each in schema.attributes
    ]
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def judge_hello(
    hello: Hello, mine: Identity, schema: Schema, *, proven: str | None = None
) -> Welcome | Refusal:
    """Accept a connection or refuse it in words; the broker's side.

    `proven` is the name that the certificate or the token proved, None where names need no proof.
    The shell asks the host whether the link would close a cycle, by `BrokerHost.judge`.
    """
    if fault := _find_fault(hello.role, hello.name, mine, proven):
        return Refusal(fault, is_final=True)
    reason = ""
    version = _common_version(hello.versions, mine.versions)
    if version is None:
        reason = (
            f"wire versions {_show_versions(hello.versions)} of {hello.name!r} and "
            f"{_show_versions(mine.versions)} of {mine.name!r} have none in common: upgrade one"
        )
    must_agree = hello.role == "broker" or hello.schema
    if not reason and must_agree and hello.schema != mine.schema:
        reason = _differ(hello.name, hello.schema, mine)
    if not reason and hello.role == "broker" and hello.incarnation < 1:
        reason = f"the incarnation of a broker counts from 1, not {hello.incarnation}"
    if reason or version is None:
        return Refusal(reason)
    links = mine.links if hello.role == "broker" else ()
    return Welcome(
        mine.name, version, mine.schema, mine.incarnation, describe_schema(schema), links
    )


def judge_welcome(
    welcome: Welcome, mine: Identity, *, expected: str | None, proven: str | None = None
) -> Refusal | None:
    """Accept the broker that answered, or refuse it in words; the side that connected.

    `expected` is the name of the broker that this address should have, None if any will do.
    """
    if expected is not None and welcome.name != expected:
        return Refusal(f"the broker at this address is {welcome.name!r}, not {expected!r}")
    reason = _find_fault("broker", welcome.name, mine, proven)
    if not reason and not mine.versions[0] <= welcome.version <= mine.versions[1]:
        reason = f"wire version {welcome.version} is not one of {_show_versions(mine.versions)}"
    if not reason and mine.schema and welcome.schema != mine.schema:
        reason = _differ(welcome.name, welcome.schema, mine)
    return Refusal(reason) if reason else None


def find_name_fault(name: str) -> str:
    """Why a broker or client cannot have that name, or an empty text if it can."""
    if 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip():
        return ""
    return (
        f"a name has 1 to {_LONGEST_NAME} printable characters and no blanks around it, "
        f"not {name[:_LONGEST_NAME]!r}"
    )


def _find_fault(role: str, name: str, mine: Identity, proven: str | None) -> str:
    if role not in ("broker", "client"):
        return f"the role must be 'broker' or 'client', not {role!r}"
    if fault := find_name_fault(name):
        return fault
    if proven is not None and name != proven:
        return f"the certificate or token is of {proven!r}, not of {name!r}"
    if role == "broker" and name == mine.name:
        return f"{name!r} is the name of this broker too; each broker needs a name of its own"
    return ""


def _common_version(theirs: tuple[int, int], mine: tuple[int, int]) -> int | None:
    newest = min(theirs[1], mine[1])
    return newest if newest >= max(theirs[0], mine[0]) else None


def _show_versions(versions: tuple[int, int]) -> str:
    low, high = versions
    return str(low) if low == high else f"{low} to {high}"


def _differ(name: str, schema: str, mine: Identity) -> str:
    return (
        f"the schema of {name!r} ({schema[:8] or 'none'}) is not that of {mine.name!r} "
        f"({mine.schema[:8]}); give all brokers the same schema file"
    )
