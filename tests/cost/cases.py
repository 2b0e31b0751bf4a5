"""Plans at the two ends: everything together, and everything apart."""

from __future__ import annotations

import numpy as np

from distributary.model import Demand, Plan
from distributary.planning import place_single


def flooding(demand: Demand) -> Plan:
    """One group with one session that carries everything to everybody."""
    return place_single(demand, np.zeros(len(demand.rate), np.int32), np.zeros(1, np.int32))


def apart(demand: Demand) -> Plan:
    """A group with one session for each flow."""
    each = np.arange(len(demand.rate), dtype=np.int32)
    return place_single(demand, each, each)
