"""The versions that came into force: why, and the plans that can be rolled back to."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.control.messages import Decision
from distributary.control.status import AuditEntry, Kind
from distributary.model import Plan

__all__ = ["MOVING", "KeptVersions"]

# Kinds of versions that move flows, where others only place them.
MOVING: frozenset[Kind] = frozenset({"planned", "pinned", "limited", "rolled back"})


class KeptVersions:
    """The names of the plans of versions, and the plans that are in memory.

    Kept are the last `most` versions of all, and the last `most` that moved flows with the one
    before the last of these, however many flows were placed since. So is the one before the first
    that is not judged yet. Versions with equal plans share one name.
    """

    def __init__(self, most: int, entries: Iterable[AuditEntry]) -> None:
        self._most = max(2, most)
        self._names: dict[int, str] = {}
        self._kinds: dict[int, Kind] = {}
        self._plans: dict[str, Plan] = {}
        self._judged = 0  # up to which version all are judged
        for entry in entries:
            if entry.what == "judged" and entry.version is not None:
                self.note_judged(entry.version)
            if entry.what == "in force" and entry.version is not None and entry.kind is not None:
                self._note(entry.version, entry.plan, entry.kind)

    def add(self, decision: Decision, plan: Plan | None) -> list[str]:
        """Take a version that came into force; returns the names of plans to drop."""
        if plan is not None:
            self._plans[decision.plan] = plan
        return self._note(decision.version, decision.plan, decision.kind)

    def has(self, name: str) -> bool:
        """Whether a version that is kept has the plan of this name."""
        return name in self._names.values()

    def name_of(self, version: int) -> str | None:
        """The name of a version's plan; None if the version is gone."""
        return self._names.get(version)

    def plan_of(self, version: int) -> Plan | None:
        """The plan of a version, if it is in memory."""
        return self._plans.get(self._names.get(version, ""))

    def keep(self, name: str, plan: Plan) -> None:
        """Take a plan that was fetched."""
        if name in self._names.values():
            self._plans[name] = plan

    def note_judged(self, version: int) -> None:
        """Note that all versions up to this one are judged."""
        self._judged = max(self._judged, version)

    @property
    def latest(self) -> int:
        """The latest version; 0 if there is none."""
        return max(self._names, default=0)

    def list_earlier(self) -> list[int]:
        """The versions that can be rolled back to, in order."""
        return sorted(self._names.keys() - {self.latest})

    def describe(self) -> str:
        """Which versions there are to roll back to."""
        earlier = self.list_earlier()
        if not earlier:
            return "there is no version before the one in force"
        runs: list[list[int]] = []
        for version in earlier:
            if runs and version == runs[-1][-1] + 1:
                runs[-1].append(version)
            else:
                runs.append([version])
        said = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
        return f"it is not kept any more; choose one of {', '.join(said)}"

    def find_earlier(self) -> int | None:
        """The version before the last one that moved flows, or else the one before the latest."""
        for version in sorted(self._names, reverse=True):
            if self._kinds[version] in MOVING and version - 1 in self._names:
                return version - 1
        return self.latest - 1 if self.latest - 1 in self._names else None

    def _note(self, version: int, name: str, kind: Kind) -> list[str]:
        self._names[version], self._kinds[version] = name, kind
        moving = sorted(old for old, kind in self._kinds.items() if kind in MOVING)
        unjudged = [old for old in moving if old > self._judged][:1]
        kept = {*moving[-self._most :], *unjudged}
        kept.update(old - 1 for old in (*moving[-1:], *unjudged))
        gone = [old for old in self._names if old <= version - self._most and old not in kept]
        dropped = {self._names.pop(old) for old in gone}
        for old in gone:
            del self._kinds[old]
        dropped -= set(self._names.values())
        for old_name in dropped:
            self._plans.pop(old_name, None)
        return sorted(dropped)
