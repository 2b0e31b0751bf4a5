"""What each name may do on the NATS server of a control plane.

- An `operator` looks, and decides under its own name; a `viewer` looks.
- A `receiver` or `publisher` writes its own key and its own reports, answers for its own name, and
  reads settings and versions. It may look, too.

Only streams that the service alone writes may be read by consumers: a consumer delivers to a
subject of its owner's choice, and must not put a member's own words onto an operator's subject.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, get_args

from distributary.control.nats.layout import FORCE, Layout, MemberRole
from distributary.machines.nats.subjects import check_prefix
from distributary.machines.nats.users import SERVICE_USER, NatsUser
from distributary.machines.real.tokens import TokenFileError, Tokens, read_tokens

__all__ = ["ROLES", "ControlRole", "make_user", "read_users"]

ControlRole = Literal["operator", "publisher", "receiver", "viewer"]
ROLES: Final[tuple[str, ...]] = get_args(ControlRole)

_MEMBERS: Final[dict[str, MemberRole]] = {"publisher": "publisher", "receiver": "receiver"}
_API = "$JS.API"
_INBOXES = "_INBOX.>"


def make_user(name: str, password: str, roles: Collection[str], prefix: str) -> NatsUser:
    """The user of a name that may do what all of its roles may."""
    check_prefix(prefix)
    layout = Layout(prefix)
    publish, subscribe = {layout.look}, {_INBOXES}
    for role in roles:
        if role == "operator":
            publish.add(layout.order(name))
        elif member := _MEMBERS.get(role):
            own_publish, own_subscribe = _list_member_subjects(layout, member, name)
            publish |= own_publish
            subscribe |= own_subscribe
        elif role != "viewer":
            raise ValueError(f"{role!r} is not one of {', '.join(ROLES)}")
    return NatsUser(name, password, tuple(sorted(publish)), tuple(sorted(subscribe)))


def _list_member_subjects(layout: Layout, role: MemberRole, name: str) -> tuple[set[str], set[str]]:
    """What a member publishes, and what it subscribes to, besides its inbox."""
    key = f"$KV.{layout.members}.{layout.member_key(role, name)}"
    claim, force = layout.member(role, name), f"$KV.{layout.plan}.{FORCE}"
    publish = {key, claim, layout.report(role, name), f"{_API}.INFO"}
    for bucket in (layout.members, layout.settings, layout.plan):
        publish |= _list_reads(f"KV_{bucket}")
    publish |= _list_reads(f"OBJ_{layout.plans}") | {f"{_API}.STREAM.NAMES"}
    for stream in (f"OBJ_{layout.plans}", f"KV_{layout.plan}", f"KV_{layout.settings}"):
        publish |= _list_consumers(stream)
    return publish, {key, claim, force}


def _list_reads(stream: str) -> set[str]:
    """What one publishes to read single messages of a stream."""
    return {
        f"{_API}.STREAM.INFO.{stream}",
        f"{_API}.STREAM.MSG.GET.{stream}",
        f"{_API}.DIRECT.GET.{stream}",
        f"{_API}.DIRECT.GET.{stream}.>",
    }


def _list_consumers(stream: str) -> set[str]:
    """What one publishes to read a stream by consumers."""
    return {
        f"{_API}.CONSUMER.CREATE.{stream}",
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        f"{_API}.CONSUMER.DELETE.{stream}.*",
        f"{_API}.CONSUMER.INFO.{stream}.*",
    }


def read_users(path: Path, prefix: str) -> list[NatsUser]:
    """Read a file of names: JSON, `{"operator": {NAME: TOKEN}, "receiver": {NAME: TOKEN}, ...}`.

    A name may have several roles, with one token. The token is the user's password.
    """
    tokens = read_tokens(path, ROLES)
    roles: dict[str, list[str]] = {}
    passwords: dict[str, str] = {}
    for role in ROLES:
        for name in tokens.list_names(role):
            token = _find_token(tokens, role, name)
            if passwords.setdefault(name, token) != token or name == SERVICE_USER:
                raise _make_fault(path, name)
            roles.setdefault(name, []).append(role)
    return [make_user(name, passwords[name], roles[name], prefix) for name in roles]


def _find_token(tokens: Tokens, role: str, name: str) -> str:
    token = tokens.find(role, name)
    assert token is not None
    return token


def _make_fault(path: Path, name: str) -> TokenFileError:
    if name == SERVICE_USER:
        return TokenFileError(
            str(path), f"{name!r} is the name of the service itself", "choose another name"
        )
    return TokenFileError(
        str(path), f"{name!r} has two tokens", "give a name the same token in all of its roles"
    )
