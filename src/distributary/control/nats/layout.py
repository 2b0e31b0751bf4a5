"""Where a control plane keeps what on a NATS server: buckets, streams, subjects and keys.

Names of members become tokens of subjects and keys of buckets (`machines.nats.subjects`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from distributary.machines.nats.subjects import (
    check_prefix,
    key_of,
    name_of,
    name_of_key,
    name_stream,
    token_of,
)

__all__ = ["FORCE", "PROPOSAL", "SETTINGS", "Layout", "MemberRole"]

MemberRole = Literal["publisher", "receiver"]

# Keys: of the bucket `plan` the first two, of the bucket `settings` the third.
FORCE: Final = "force"  # -> Decision
PROPOSAL: Final = "proposal"  # -> Proposal
SETTINGS: Final = "settings"  # -> ControlSettings


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one control plane; several on a server use different prefixes."""

    prefix: str = "distributary"

    def __post_init__(self) -> None:
        check_prefix(self.prefix)

    # --- buckets and streams ---------------------------------------------------------------------

    @property
    def lease(self) -> str:
        """The bucket of the lease: which service serves."""
        return self._name("lease")

    @property
    def members(self) -> str:
        """The bucket with a key for each member: InterestRecord, PublisherRecord in MessagePack."""
        return self._name("members")

    @property
    def settings(self) -> str:
        """The bucket of the key `SETTINGS`, in JSON."""
        return self._name("settings")

    @property
    def plan(self) -> str:
        """The bucket of the keys `FORCE` and `PROPOSAL`, in JSON."""
        return self._name("plan")

    @property
    def plans(self) -> str:
        """The object store of plans, by the name that a decision or a proposal gives."""
        return self._name("plans")

    @property
    def audit(self) -> str:
        """The stream of `audit_subject`."""
        return self._name("audit")

    @property
    def reports(self) -> str:
        """The stream of all members' reports, in MessagePack."""
        return self._name("reports")

    def _name(self, what: str) -> str:
        return name_stream(self.prefix, f"control_{what}")

    # --- subjects --------------------------------------------------------------------------------

    @property
    def audit_subject(self) -> str:
        """The subject of AuditEntry, in JSON."""
        return f"{self.prefix}.control.audit"

    @property
    def look(self) -> str:
        """The subject of LookRequest, in JSON."""
        return f"{self.prefix}.control.look"

    @property
    def all_orders(self) -> str:
        """The subjects of the orders of all operators."""
        return f"{self.prefix}.control.operate.*"

    def order(self, name: str) -> str:
        """The subject of an operator's OperatorRequest, in JSON: it proves the name."""
        return f"{self.prefix}.control.operate.{token_of(name)}"

    def read_order(self, subject: str) -> str:
        """Whose order this is; raises `ValueError` if it is nobody's."""
        return name_of(subject.removeprefix(f"{self.prefix}.control.operate."))

    @property
    def stand_bys(self) -> str:
        """The subject that services answer which stand by, so that they can be counted."""
        return f"{self.prefix}.control.stand_bys"

    @property
    def all_reports(self) -> str:
        """The subjects of the reports of all members."""
        return f"{self.prefix}.control.report.*.*"

    @property
    def probe(self) -> str:
        """The subject of the service's own empty reports, which show that reports are stored."""
        return f"{self.prefix}.control.report.service.probe"

    def report(self, role: MemberRole, name: str) -> str:
        """The subject of a member's reports."""
        return f"{self.prefix}.control.report.{role}.{token_of(name)}"

    def read_report(self, subject: str) -> tuple[MemberRole, str]:
        """Whose report this is; raises `ValueError` if it is nobody's."""
        role, _, token = subject.removeprefix(f"{self.prefix}.control.report.").partition(".")
        return _check_role(role), name_of(token)

    def member(self, role: MemberRole, name: str) -> str:
        """The subject that a member answers itself, so that its name is known to be taken."""
        return f"{self.prefix}.control.member.{role}.{token_of(name)}"

    # --- keys ------------------------------------------------------------------------------------

    def member_key(self, role: MemberRole, name: str) -> str:
        """The key of a member."""
        return f"{role}.{key_of(name)}"

    def read_member_key(self, key: str) -> tuple[MemberRole, str]:
        """Whose key this is; raises `ValueError` if it is nobody's."""
        role, _, rest = key.partition(".")
        return _check_role(role), name_of_key(rest)


def _check_role(role: str) -> MemberRole:
    if role == "publisher":
        return "publisher"
    if role == "receiver":
        return "receiver"
    raise ValueError(f"{role!r} is not the role of a member")
