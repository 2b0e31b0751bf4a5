"""All that `import distributary` offers."""

from distributary import __version__
from distributary.cost import (
    ChannelPrices,
    Evaluation,
    FilteringPrices,
    OperatingPrices,
    evaluate,
)
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
    read_plan,
    read_rates,
    write_interest,
    write_plan,
    write_rates,
)
from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Plan,
    Rates,
    broken_constraints,
    plan_problems,
)
from distributary.planning import ALGORITHMS, Request, Solution, Step, plan

__all__ = [
    "ALGORITHMS",
    "ChannelPrices",
    "Constraints",
    "Demand",
    "DistributaryError",
    "Evaluation",
    "FilteringPrices",
    "InfeasibleError",
    "InputError",
    "Interest",
    "MissingRateError",
    "OperatingPrices",
    "OutputError",
    "Plan",
    "PlanError",
    "Rates",
    "Request",
    "Solution",
    "Step",
    "__version__",
    "broken_constraints",
    "evaluate",
    "plan",
    "plan_problems",
    "read_demand",
    "read_interest",
    "read_plan",
    "read_rates",
    "write_interest",
    "write_plan",
    "write_rates",
]
