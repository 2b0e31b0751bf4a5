"""What operators order: approve, reject, roll back, pin, limits and mode.

What cannot be done is refused in a sentence, and changes nothing.
"""

from __future__ import annotations

import msgspec

from distributary.control.audit import AuditLog
from distributary.control.deciding import Deciding
from distributary.control.interest import LiveInterest
from distributary.control.messages import (
    AnswerRequest,
    ControlAction,
    FetchPlan,
    PlanFetched,
    SettingsChanged,
)
from distributary.control.plan_keeper import PlanKeeper
from distributary.control.proposals import Proposals
from distributary.control.requests import (
    Approve,
    Done,
    OperatorRequest,
    Pin,
    Refusal,
    Reject,
    Rollback,
    SetLimits,
    SetMode,
)
from distributary.control.settings import ControlSettings
from distributary.control.status import Kind
from distributary.control.terms import read_terms
from distributary.errors import InfeasibleError, InputError
from distributary.model import Plan

__all__ = ["Orders"]

# What is to be done, and the answer; "" if it follows later.
_Outcome = tuple[list[ControlAction], str]

_UNCHANGED = "nothing was changed"


class _RefusedError(Exception):
    """An order that cannot be done: why, and what happens instead."""

    def __init__(self, says: str, *actions: ControlAction) -> None:
        self.says, self.actions = says, actions
        super().__init__(says)


class Orders:
    """Carries out the orders of operators."""

    def __init__(
        self,
        keeper: PlanKeeper,
        deciding: Deciding,
        proposals: Proposals,
        audit: AuditLog,
        interest: LiveInterest,
        most_bytes: int,
    ) -> None:
        """Settings may have `most_bytes`, as JSON."""
        self._keeper, self._deciding, self._proposals = keeper, deciding, proposals
        self._audit, self._interest, self._most_bytes = audit, interest, most_bytes
        self._waiting: list[tuple[int, Rollback, str]] = []  # for a plan to be fetched

    def carry_out(self, ticket: int, order: OperatorRequest, now: float) -> list[ControlAction]:
        """Do what an operator asks for, and answer."""
        actions = self._keeper.place(now)
        try:
            match order:
                case Approve():
                    done = self._approve(order, now)
                case Reject():
                    done = self._reject(order, now)
                case Rollback():
                    done = self._roll_back(ticket, order, now)
                case Pin():
                    done = self._pin(order, now)
                case SetLimits():
                    done = self._set_limits(order, now)
                case SetMode():
                    done = self._set_mode(order, now)
        except _RefusedError as refusal:
            return [*actions, *refusal.actions, AnswerRequest(ticket, Refusal(refusal.says))]
        return [*actions, *self._answer(ticket, done)]

    def take_fetched(self, message: PlanFetched, now: float) -> list[ControlAction]:
        """Go on with the roll-backs that waited for a plan."""
        waiting = [each for each in self._waiting if each[2] == message.name]
        self._waiting = [each for each in self._waiting if each[2] != message.name]
        actions = self._keeper.place(now) if waiting else []
        if message.plan is not None:
            self._keeper.versions.keep(message.name, message.plan)
        for ticket, order, _ in waiting:
            try:
                done = self._go_back(order, message.plan, now)
            except _RefusedError as refusal:
                actions.append(AnswerRequest(ticket, Refusal(refusal.says)))
            else:
                actions += self._answer(ticket, done)
        return actions

    def _answer(self, ticket: int, outcome: _Outcome) -> list[ControlAction]:
        actions, says = outcome
        if not says:
            return actions
        return [*actions, AnswerRequest(ticket, Done(says, self._keeper.version))]

    # --- proposals --------------------------------------------------------------------------------

    def _approve(self, order: Approve, now: float) -> _Outcome:
        self._check_number(order.number)
        actions = self._deciding.approve(order.by, now)
        if actions is None:
            raise _RefusedError(
                f"proposal {order.number} saves nothing any more, so it is withdrawn",
                *self._proposals.withdraw(now),
            )
        return actions, f"version {self._keeper.version} is in force"

    def _reject(self, order: Reject, now: float) -> _Outcome:
        self._check_number(order.number)
        why = f"proposal {order.number}" + (f": {order.why}" if order.why else "")
        audit = self._audit.write(now, order.by, "rejected", why)
        return [*self._proposals.drop(), audit], f"proposal {order.number} is rejected"

    def _check_number(self, number: int) -> None:
        waits = self._proposals.number
        if waits != number:
            other = "no proposal waits" if waits is None else f"proposal {waits} waits now"
            raise _RefusedError(f"proposal {number} is gone; {other}")

    # --- versions ---------------------------------------------------------------------------------

    def _roll_back(self, ticket: int, order: Rollback, now: float) -> _Outcome:
        versions = self._keeper.versions
        version = versions.find_earlier() if order.version is None else order.version
        if self._keeper.decision is None:
            raise _RefusedError("no plan is in force yet, so there is none to roll back")
        if version is None:
            raise _RefusedError("there is no version before the one in force")
        if version == self._keeper.version:
            raise _RefusedError(f"version {version} is in force already")
        if version > self._keeper.version or version < 1:
            raise _RefusedError(
                f"there is no version {version}; the one in force is {self._keeper.version}"
            )
        if not self._interest.receivers:
            raise _RefusedError("nobody wants any flow now; the plan in force stays as it is")
        name = versions.name_of(version)
        if name is None:
            raise _RefusedError(f"version {version} is gone: {versions.describe()}")
        order = msgspec.structs.replace(order, version=version)
        plan = versions.plan_of(version)
        if plan is not None:
            return self._go_back(order, plan, now)
        self._waiting.append((ticket, order, name))
        return [FetchPlan(name)], ""

    def _go_back(self, order: Rollback, plan: Plan | None, now: float) -> _Outcome:
        version = order.version
        assert version is not None
        if plan is None:
            raise _RefusedError(
                f"the plan of version {version} is gone from the store, or damaged; "
                "choose another version"
            )
        try:
            why = "an operator asked for it"
            actions = self._deciding.roll_back(version, plan, order.by, why, now)
        except InfeasibleError as error:
            raise _RefusedError(
                f"version {version} breaks what holds now: {error}; {_UNCHANGED}"
            ) from None
        if actions is None:
            raise _RefusedError(
                f"all flows are where version {version} has them already; {_UNCHANGED}"
            )
        return actions, f"version {self._keeper.version} has the places of version {version}"

    # --- terms ------------------------------------------------------------------------------------

    def _pin(self, order: Pin, now: float) -> _Outcome:
        pins = dict(self._keeper.settings.pins)
        if order.group is None:
            if pins.pop(order.flow, None) is None:
                raise _RefusedError(f"flow {order.flow!r} is not pinned")
            what, says = "unpinned", f"flow {order.flow!r} may move again"
        else:
            pins[order.flow] = order.group
            what, says = "pinned", f"flow {order.flow!r} stays in group {order.group}"
            if not self._interest.receivers_of(order.flow):
                says += ", once somebody wants it"
        settings = msgspec.structs.replace(self._keeper.settings, pins=pins)
        return self._change_terms(settings, "pinned", order.by, what, says, now)

    def _set_limits(self, order: SetLimits, now: float) -> _Outcome:
        settings = msgspec.structs.replace(self._keeper.settings, limits=order.text)
        if settings == self._keeper.settings:
            raise _RefusedError(f"these are the limits already; {_UNCHANGED}")
        says = "the limits hold" if order.text else "there are no limits any more"
        return self._change_terms(settings, "limited", order.by, "limits", says, now)

    def _change_terms(
        self, settings: ControlSettings, kind: Kind, by: str, what: str, says: str, now: float
    ) -> _Outcome:
        size = len(msgspec.json.encode(settings))
        if size > self._most_bytes:
            raise _RefusedError(
                f"all settings with pins and limits would take {size:,} bytes, and the NATS server "
                f"stores {self._most_bytes:,}; unpin other flows, or raise its max_payload; "
                f"{_UNCHANGED}"
            )
        try:
            terms = read_terms(settings)
            candidate = self._keeper.fit_terms(terms, now)
        except InfeasibleError as error:
            raise _RefusedError(f"{error}; {_UNCHANGED}") from None
        except (InputError, ValueError) as error:
            raise _RefusedError(f"{error}; {_UNCHANGED}") from None
        self._keeper.change_terms(settings, terms)
        actions: list[ControlAction] = [
            SettingsChanged(settings, restart_stream=True),
            self._audit.write(now, by, what, says),
        ]
        if candidate is not None:
            actions += self._deciding.decide(candidate, kind, by, says, now)
            says += f" as of version {self._keeper.version}"
        return actions, says

    def _set_mode(self, order: SetMode, now: float) -> _Outcome:
        if order.mode not in ("auto", "manual"):
            raise _RefusedError(f"there is no mode {order.mode!r}; choose auto or manual")
        settings = msgspec.structs.replace(self._keeper.settings, mode=order.mode)
        self._keeper.change_terms(settings, self._keeper.terms)
        wait = "take effect by themselves" if order.mode == "auto" else "wait for approval"
        says = f"proposals {wait}"
        actions: list[ControlAction] = [
            SettingsChanged(settings, restart_stream=False),
            self._audit.write(now, order.by, "mode", says),
            *self._deciding.look_after_pending(now),
        ]
        return actions, says
