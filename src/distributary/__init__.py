"""Decides which message flows travel together, over which few channels, to which receivers.

Names load on first use, so that `import distributary` costs next to nothing and a command that is
interrupted while NumPy and Numba load can answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributary.content.tcp import ContentClient
    from distributary.control.nats import Control, ControlClient
    from distributary.cost import (
        ChannelPrices,
        Evaluation,
        FilteringPrices,
        OperatingPrices,
        PacketPrices,
        evaluate,
    )
    from distributary.delivery.udp import Publisher, Receiver
    from distributary.errors import (
        DistributaryError,
        InfeasibleError,
        InputError,
        MissingRateError,
        OutputError,
        PlanError,
    )
    from distributary.files import (
        read_demand,
        read_interest,
        read_limits,
        read_plan,
        read_previous,
        read_rates,
        write_interest,
        write_plan,
        write_rates,
    )
    from distributary.model import (
        Constraints,
        Demand,
        Interest,
        Limits,
        PacketStep,
        Packing,
        Plan,
        Rates,
        broken_constraints,
        plan_problems,
    )
    from distributary.planning import ALGORITHMS, Request, Solution, Step, UnicastLimits, plan

__version__ = "0.1.0"

_ROOM_OF = {
    name: room
    for room, names in {
        "content.tcp": "ContentClient",
        "control.nats": "Control ControlClient",
        "cost": "ChannelPrices Evaluation FilteringPrices OperatingPrices PacketPrices evaluate",
        "delivery.udp": "Publisher Receiver",
        "errors": "DistributaryError InfeasibleError InputError MissingRateError OutputError "
        "PlanError",
        "files": "read_demand read_interest read_limits read_plan read_previous read_rates "
        "write_interest write_plan write_rates",
        "model": "Constraints Demand Interest Limits PacketStep Packing Plan Rates "
        "broken_constraints plan_problems",
        "planning": "ALGORITHMS Request Solution Step UnicastLimits plan",
    }.items()
    for name in names.split()
}

__all__ = [
    "ALGORITHMS",
    "ChannelPrices",
    "Constraints",
    "ContentClient",
    "Control",
    "ControlClient",
    "Demand",
    "DistributaryError",
    "Evaluation",
    "FilteringPrices",
    "InfeasibleError",
    "InputError",
    "Interest",
    "Limits",
    "MissingRateError",
    "OperatingPrices",
    "OutputError",
    "PacketPrices",
    "PacketStep",
    "Packing",
    "Plan",
    "PlanError",
    "Publisher",
    "Rates",
    "Receiver",
    "Request",
    "Solution",
    "Step",
    "UnicastLimits",
    "__version__",
    "broken_constraints",
    "evaluate",
    "plan",
    "plan_problems",
    "read_demand",
    "read_interest",
    "read_limits",
    "read_plan",
    "read_previous",
    "read_rates",
    "write_interest",
    "write_plan",
    "write_rates",
]


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF.values():
        return import_module(f"distributary.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'distributary' has no attribute {name!r}")
    value = getattr(import_module(f"distributary.{_ROOM_OF[name]}"), name)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
