"""A small floor whose plan is bad, and a plan that would be better."""

from __future__ import annotations

import msgspec

from distributary.control.settings import ControlSettings
from tests.control.plans import make_plan, make_system
from tests.control.system import System

SETTINGS = ControlSettings(groups=2, sessions=2, max_moves=10, rate_window=10.0)
WANTS = {
    "fx": frozenset({"EUR", "GBP"}),
    "fx-2": frozenset({"EUR", "GBP"}),
    "metals": frozenset({"AU", "AG"}),
}
RATES = {"EUR": 10.0, "GBP": 20.0, "AU": 30.0, "AG": 40.0}
BAD = {"EUR": 0, "AU": 0, "GBP": 1, "AG": 1}
GOOD = {"EUR": 0, "GBP": 0, "AU": 1, "AG": 1}
GROUPS = (0, 1)
# Everybody gets all four flows: the two of fx drop 30 + 40 each, metals 10 + 20.
BAD_DROPPED = 170.0

GOOD_PLAN = make_plan(WANTS, GOOD, GROUPS)


def make_desks(**changes: object) -> System:
    """The floor after 20 s with the bad plan."""
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return make_system(settings, WANTS, BAD, GROUPS, RATES)
