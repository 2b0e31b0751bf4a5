"""Constraints in the form that solvers use: whole-number loads and caps, by bundle and group.

Flows that must stay together form one bundle, so that this constraint always holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distributary.model import Constraints, Demand, FloatArray, IndexArray, IntArray
from distributary.planning._guard_kernels import GuardState
from distributary.planning.things import Things, whole_rates

__all__ = ["Guard"]

_ROUNDING = 5e-10  # relative; smaller than the tolerance of the check of a finished plan


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """The constraints on bundles of flows, and the loads of an assignment.

    `load` is the load of each bundle, in the same whole-number units as the caps. The foes of
    bundle b, which must not share its group, are `foes[foe_offsets[b]:foe_offsets[b + 1]]`.
    """

    load: FloatArray
    group_cap: float
    receiver_cap: FloatArray
    pinned: IndexArray
    foe_offsets: IntArray
    foes: IndexArray
    group_load: FloatArray = field(default_factory=lambda: np.zeros(0))
    intake: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def state(self) -> GuardState:
        """The same as a named tuple for the kernels."""
        return GuardState(
            self.load,
            self.group_load,
            self.intake,
            self.group_cap,
            self.receiver_cap,
            self.pinned,
            self.needed,
            self.foe_offsets,
            self.foes,
        )

    @property
    def needed(self) -> int:
        """The number of groups that must not be empty, so that pinned groups keep their numbers."""
        return int(self.pinned.max()) + 1

    def with_loads(self, things: Things, group_of: IndexArray, n_groups: int) -> Guard:
        """The same constraints with the loads of an assignment to groups."""
        group_load = np.bincount(group_of, weights=self.load, minlength=n_groups)
        owner = np.repeat(group_of.astype(np.int64), np.diff(things.offsets))
        joined = np.zeros((things.n_receivers, n_groups), np.bool_)
        joined[things.members, owner] = True
        return Guard(
            self.load,
            self.group_cap,
            self.receiver_cap,
            self.pinned,
            self.foe_offsets,
            self.foes,
            group_load.astype(np.float64),
            (joined @ group_load).astype(np.float64),
        )

    def is_violated(self, group_of: IndexArray) -> bool:
        """Whether the assignment that made these loads breaks a constraint."""
        foe_of = np.repeat(np.arange(len(self.load)), np.diff(self.foe_offsets))
        return bool(
            (self.group_load > self.group_cap).any()
            or (self.intake > self.receiver_cap).any()
            or ((self.pinned >= 0) & (self.pinned != group_of)).any()
            or (group_of[foe_of] == group_of[self.foes]).any()
            or (self.group_load[: self.needed] == 0).any()
        )

    @classmethod
    def of(
        cls, demand: Demand, constraints: Constraints, bundle: IndexArray, n_bundles: int
    ) -> Guard:
        """The constraints for bundles of flows; `bundle` says which one each flow is in."""
        n_receivers = len(demand.interest.receivers)
        whole = whole_rates(demand.load, n_receivers, bits=52)
        # A power of two scales exactly, and keeps tiny loads from overflowing the quotient.
        lift = 2.0**600 if demand.load.sum() < 1e-280 else 1.0
        per_message = float(whole.sum() / (demand.load.sum() * lift)) * (1 + _ROUNDING)
        load = np.bincount(bundle, weights=whole, minlength=n_bundles).astype(np.float64)
        index = {name: k for k, name in enumerate(demand.interest.flows)}
        pinned = np.full(n_bundles, -1, np.int32)
        for name, group in constraints.pinned.items():
            if name in index:
                pinned[bundle[index[name]]] = group
        foes: list[set[int]] = [set() for _ in range(n_bundles)]
        for names in constraints.apart:
            apart = {int(bundle[index[name]]) for name in names if name in index}
            for b in apart:
                foes[b] |= apart - {b}
        cap = np.inf if constraints.limits.group_rate is None else constraints.limits.group_rate
        with np.errstate(over="ignore"):  # a cap far above all loads is none
            caps = constraints.limits.receiver_caps(demand.interest.receivers) * lift * per_message
        return cls(
            load=load,
            group_cap=cap * lift * per_message,
            receiver_cap=caps,
            pinned=pinned,
            foe_offsets=np.concatenate(([0], np.cumsum([len(f) for f in foes]))).astype(np.int64),
            foes=np.array([foe for f in foes for foe in sorted(f)], np.int32),
        )
