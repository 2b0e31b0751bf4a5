"""The options of the planner: every command that plans takes the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Unpack

import typer

from distributary.cli.constraints import ConstraintOptions
from distributary.cli.options import (
    LIMITS,
    PRICES,
    SEARCH,
    Seed,
    duration_option,
    filtering_prices,
    option,
    rate_option,
    reject_bad_values,
)
from distributary.cli.price_options import ChannelOptions, PacketOptions
from distributary.cli.quantities import Rate, Seconds
from distributary.cost import Objective, PacketPrices
from distributary.model import Demand, Unit
from distributary.planning import ALGORITHMS, Request, RequestSettings, UnicastLimits

__all__ = [
    "BUDGET_HELP",
    "AlgorithmName",
    "Groups",
    "ObjectiveName",
    "PlannerOptions",
    "TermOptions",
]

BUDGET_HELP = (
    "How long to search for a plan, such as 30s or 2m. `best` turns it into a fixed amount of "
    "work, so the same seed and budget give the same plan on any machine; the clock stops it only "
    "after 2.5 times the budget, and it then reports that it was cut short. `optimal` and "
    "`optimal-shared` stop when the time is over. The other algorithms ignore it."
)
ALGORITHM_HELP = (
    "Planning algorithm: one of " + ", ".join(a.label for a in ALGORITHMS.values()) + "."
)

Groups = Annotated[int, option("Maximum number of multicast groups in the plan.", LIMITS, min=1)]
ObjectiveName = Annotated[
    Objective, option("Cost by which an algorithm chooses among the plans it tries.", SEARCH)
]
AlgorithmName = Annotated[str, option(ALGORITHM_HELP, SEARCH, "--algorithm")]


@dataclass(frozen=True, kw_only=True)
class TermOptions(ConstraintOptions):
    """What a plan must keep to, and what it may do besides placing each flow in one session."""

    unicast_receivers: Annotated[
        int | None,
        option("Allow unicast to at most this many receivers of each flow.", LIMITS, min=1),
    ] = None
    unicast_links: Annotated[
        int | None,
        option("Maximum number of (receiver, flow) pairs served by unicast.", LIMITS, min=0),
    ] = None
    unicast_rate: Annotated[
        Rate | None,
        rate_option(
            "Maximum rate sent by unicast beyond one copy of each flow, given as --group-cap.",
            LIMITS,
        ),
    ] = None
    max_sent: Annotated[
        float | None,
        option(
            "Allow flows in several sessions, sending at most this multiple of all rates.",
            LIMITS,
            min=1,
        ),
    ] = None

    def read_terms(self, count: Unit = "messages") -> RequestSettings:
        """Read the tables and put the terms together, as settings of a request.

        `count` is what the rates count.
        """
        return {
            "constraints": self.read_constraints(count),
            "receiver_weights": self.read_receivers().weights,
            "unicast": self._make_unicast(count),
            "max_sent": self.max_sent,
        }

    def check_receivers(self, demand: Demand) -> None:
        """Raise an error if a limit or a weight is of a receiver that wants nothing."""
        self.read_limits(demand.interest.receivers, demand.unit)

    def _make_unicast(self, count: Unit) -> UnicastLimits | None:
        """Make the limits of unicast, if any flow may go by unicast."""
        links = self.unicast_links
        rate = None if self.unicast_rate is None else self.unicast_rate.count_in(count)
        if self.unicast_receivers is not None:
            with reject_bad_values():
                return UnicastLimits(self.unicast_receivers, links, rate)
        if links is not None or rate is not None:
            raise typer.BadParameter("--unicast-links and --unicast-rate need --unicast-receivers")
        return None


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(TermOptions, PacketOptions, ChannelOptions):
    """Everything about a plan: its size and terms, the prices it is made for, and the search."""

    groups: Groups
    sessions: Annotated[
        int | None,
        option(
            "Maximum number of sessions in the plan.", LIMITS, min=1, show_default="one per group"
        ),
    ] = None
    alpha: Annotated[
        float, option("Cost of one message at the session filter (any unit).", PRICES)
    ] = 1.0
    beta: Annotated[
        float, option("Cost of one message at the flow filter (same unit).", PRICES)
    ] = 1.0
    objective: ObjectiveName = "filtering"
    budget: Annotated[Seconds, duration_option(BUDGET_HELP, SEARCH)] = Seconds("30s")
    seed: Seed = 0

    def read_request(
        self, count: Unit = "messages", **settings: Unpack[RequestSettings]
    ) -> Request:
        """Read all that the options name and make the request, with more settings.

        `count` is what the rates count. What the request refuses is wrong usage.
        """
        prices = self.choose(filtering_prices(self.alpha, self.beta))
        whole: RequestSettings = {
            "prices": prices,
            "channel": self.make_prices(),
            "packing": None if isinstance(prices, PacketPrices) else self.packing,
            "objective": self.objective,
            "seed": self.seed,
            "budget_s": float(self.budget),
            **self.read_terms(count),
            **settings,
        }
        with reject_bad_values():
            return Request(groups=self.groups, sessions=self.sessions, **whole)
