"""The options that say what a plan must keep to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from distributary.cli.options import LIMITS, option, rate_option, reject_bad_values
from distributary.cli.quantities import Rate
from distributary.files import (
    ReceiverTable,
    list_profiles,
    read_flow_sets,
    read_limits,
    read_pins,
    read_receiver_caps,
    read_receivers,
)
from distributary.model import Constraints, Limits, Unit

__all__ = ["ConstraintOptions", "LimitOptions", "check_profile"]


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """What the network allows, and its receivers."""

    limits: Annotated[
        str | None,
        option(
            "What the network allows: a TOML file, or a profile of `distributary limits list`.",
            LIMITS,
            metavar="FILE|PROFILE",
        ),
    ] = None

    receivers: Annotated[
        Path | None,
        option(
            "Table with columns receiver and weight, what a message costs a receiver (1 for those "
            "not named), or rate, the most that may reach it, or both.",
            LIMITS,
        ),
    ] = None

    @property
    def are_given(self) -> bool:
        """Whether the network or its receivers have limits."""
        return self.limits is not None or self.receivers is not None

    def read_receivers(self, known: Collection[str] | None = None) -> ReceiverTable:
        """Read the table of receivers, if there is one."""
        return ReceiverTable() if self.receivers is None else read_receivers(self.receivers, known)

    def read_limits(self, receivers: Collection[str] | None, count: Unit) -> Limits:
        """Read the limits; a name that is neither a profile nor a file is wrong usage."""
        rates = self.read_receivers(receivers).rates
        if self.limits is None:
            return Limits(receiver_rates=rates)
        if not Path(self.limits).suffix and not Path(self.limits).exists():
            check_profile(self.limits, "'--limits'")
        limits = read_limits(self.limits, receivers, count)
        return replace(limits, receiver_rates={**limits.receiver_rates, **rates})


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions(LimitOptions):
    """What a plan must keep to."""

    group_cap: Annotated[
        Rate | None,
        rate_option(
            "Maximum rate that a group carries, in messages/s, or with --count bytes in bytes/s or "
            "such as 800Mbit; peak rates count where given.",
            LIMITS,
        ),
    ] = None
    receiver_cap: Annotated[
        Rate | None,
        rate_option("Maximum rate that any receiver receives, given as --group-cap.", LIMITS),
    ] = None
    receiver_caps: Annotated[
        Path | None,
        option("Table of caps for single receivers, with columns receiver, rate.", LIMITS),
    ] = None
    pins: Annotated[
        Path | None,
        option("Table of flows that must be in a given group, with columns flow, group.", LIMITS),
    ] = None
    together: Annotated[
        Path | None,
        option("Table with columns set, flow: the flows of a set must share a session.", LIMITS),
    ] = None
    apart: Annotated[
        Path | None,
        option("Table with columns set, flow: no two flows of a set may share a group.", LIMITS),
    ] = None

    def read_constraints(self, count: Unit) -> Constraints:
        """Read the tables and put the constraints together; options override the limits."""
        limits = self.read_limits(None, count)
        caps = dict(limits.receiver_rates)
        caps |= read_receiver_caps(self.receiver_caps) if self.receiver_caps else {}
        pinned = read_pins(self.pins) if self.pins else {}
        together = read_flow_sets(self.together) if self.together else ()
        apart = read_flow_sets(self.apart) if self.apart else ()
        with reject_bad_values("'--group-cap' / '--receiver-cap'"):
            limits = replace(
                limits,
                group_rate=(
                    limits.group_rate if self.group_cap is None else self.group_cap.count_in(count)
                ),
                receiver_rate=(
                    limits.receiver_rate
                    if self.receiver_cap is None
                    else self.receiver_cap.count_in(count)
                ),
                receiver_rates=caps,
            )
        return Constraints(limits, pinned, together, apart)


def check_profile(name: str, hint: str | None = None) -> None:
    """Refuse a name that no profile has."""
    profiles = list_profiles()
    if name not in profiles:
        raise typer.BadParameter(
            f"no profile and no file is called {name!r}; the profiles are {', '.join(profiles)}",
            param_hint=hint,
        )
