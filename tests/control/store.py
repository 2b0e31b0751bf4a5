"""The store of a control plane in virtual time, with the fence of the real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from distributary.control.messages import (
    Audit,
    Decide,
    Decision,
    DropPlan,
    ForgetPublisher,
    ForgetReceiver,
    KeepProposal,
    Restored,
    SettingsChanged,
)
from distributary.control.messages import InterestChanged as Interest
from distributary.control.messages import PublisherChanged as Publishing
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.control.settings import ControlSettings
from distributary.control.status import AuditEntry
from distributary.model import Plan

FORCE, PROPOSAL, SETTINGS = "force", "proposal", "settings"


class ReplacedError(Exception):
    """Another service has written since."""


class Accepted(NamedTuple):
    """A decision that came into force."""

    at: float
    by: str  # the service
    decision: Decision
    plan: Plan
    before: Plan | None
    settings: ControlSettings


class Store:
    """Keys with revisions, plans by name, the log of changes, and what members wrote."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.audit: list[AuditEntry] = []
        self.accepted: list[Accepted] = []
        self.takeovers: list[str] = []
        self._writers: dict[str, str] = {}  # of each key, last
        self.members: dict[tuple[str, str], InterestRecord | PublisherRecord] = {}
        self.reports: list[tuple[float, Any]] = []
        self.listeners: list[Callable[[Any], None]] = []
        self._values: dict[str, tuple[int, Any]] = {}
        self._revision = 0
        self.most_bytes = 1 << 20

    def read(self, key: str) -> Any:
        return self._values.get(key, (0, None))[1]

    @property
    def plan(self) -> Plan | None:
        """The plan in force."""
        decision = self.read(FORCE)
        return None if decision is None else self.plans.get(decision.plan)

    def write_member(self, role: str, name: str, record: Any) -> None:
        """What a member writes, or None for the end of it; everybody hears of it."""
        if record is None:
            self.members.pop((role, name), None)
        else:
            self.members[role, name] = record
        self._tell(Interest(name, record) if role == "receiver" else Publishing(name, record))

    def add_report(self, at: float, message: Any) -> None:
        self.reports.append((at, message))
        self._tell(message)

    def _tell(self, message: Any) -> None:
        for listener in self.listeners:
            listener(message)

    def write(self, key: str, value: Any, last: int, writer: str) -> int:
        if self._values.get(key, (0, None))[0] != last:
            raise ReplacedError(key)
        self._revision += 1
        self._values[key] = self._revision, value
        self._writers[key] = writer
        if self.takeovers:
            assert key == PROPOSAL or writer == self.takeovers[-1], f"{writer} was replaced"
        return self._revision

    def last_writer(self, key: str) -> str:
        return self._writers.get(key, "")

    def revision(self, key: str) -> int:
        return self._values.get(key, (0, None))[0]


class StoreClient:
    """What one service knows of the store; each write follows the one that it knows."""

    def __init__(self, store: Store, service: str) -> None:
        self._store, self._service = store, service
        self._known: dict[str, int] = {}
        self._entries = 0

    def restore(self, given: ControlSettings) -> tuple[ControlSettings, Restored]:
        """Read what there is, and take over from the service before."""
        store = self._store
        store.takeovers.append(self._service)
        for key in (FORCE, PROPOSAL, SETTINGS):
            self._known[key] = store.revision(key)
        decision, proposal = store.read(FORCE), store.read(PROPOSAL)
        settings = store.read(SETTINGS) or given
        self._write(SETTINGS, settings)
        names = {found.plan for found in (decision, proposal) if found is not None}
        plans = {name: store.plans[name] for name in names if name in store.plans}
        if proposal is not None and proposal.plan not in plans:
            proposal = None
        self._entries = len(store.audit)
        restored = Restored(decision, proposal, plans, tuple(store.audit), self._service)
        restored = replace(restored, most_bytes=store.most_bytes)
        for key, value in ((FORCE, decision), (PROPOSAL, proposal)):
            if self._known[key]:
                self._write(key, value)
        return settings, restored

    def decide(self, action: Decide, now: float) -> None:
        store, decision = self._store, action.decision
        before, settings = store.plan, store.read(SETTINGS)
        self._write(FORCE, decision)
        plan = store.plans[decision.plan]
        store.accepted.append(Accepted(now, self._service, decision, plan, before, settings))

    def put(self, action: Decide | KeepProposal) -> None:
        """Store a plan; nothing depends on it yet."""
        named = action.decision if isinstance(action, Decide) else action.proposal
        if action.plan is not None and named is not None:
            self._store.plans[named.plan] = action.plan

    def keep_proposal(self, action: KeepProposal) -> None:
        self._write(PROPOSAL, action.proposal)

    def change_settings(self, action: SettingsChanged) -> None:
        self._write(SETTINGS, action.settings)

    def append(self, action: Audit) -> None:
        if len(self._store.audit) != self._entries:
            raise ReplacedError("audit")
        self._store.audit.append(action.entry)
        self._entries += 1

    def drop(self, action: DropPlan) -> None:
        if self._store.revision(FORCE) != self._known[FORCE]:
            raise ReplacedError(FORCE)
        self._store.plans.pop(action.name, None)

    def forget(self, action: ForgetReceiver | ForgetPublisher) -> None:
        role = "receiver" if isinstance(action, ForgetReceiver) else "publisher"
        name = action.receiver if isinstance(action, ForgetReceiver) else action.publisher
        record = self._store.members.get((role, name))
        if record is not None and record.incarnation == action.incarnation:
            self._store.write_member(role, name, None)

    def _write(self, key: str, value: Any) -> None:
        self._known[key] = self._store.write(key, value, self._known[key], self._service)
