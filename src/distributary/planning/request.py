"""A request for a plan: one group of settings per concern, and the combinations allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack, get_args

from distributary.cost import ChannelPrices, FilteringPrices, Objective, PacketPrices, Prices
from distributary.model import (
    Constraints,
    FloatArray,
    Interest,
    Packing,
    Previous,
    weigh_receivers,
)
from distributary.planning.best import PATIENCE
from distributary.planning.terms import MOST_SENT, UnicastLimits

__all__ = [
    "ALGORITHMS",
    "DEFAULT_ALGORITHM",
    "Algorithm",
    "Change",
    "Request",
    "RequestSettings",
    "Search",
    "Size",
    "Terms",
]

DEFAULT_ALGORITHM = "best"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A planning algorithm: its name, and the paper's acronym for it."""

    name: str
    acronym: str = ""
    duplicates: bool = False
    """Whether it may put a flow in several sessions."""

    @property
    def label(self) -> str:
        """Name and acronym, for tables."""
        return f"{self.name} ({self.acronym})" if self.acronym else self.name


ALGORITHMS: Mapping[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("best"),
        # Common practice.
        Algorithm("hash"),
        Algorithm("by-name"),
        Algorithm("by-column"),
        # Adler et al., sections 4 and 5.2.1: one level, so one session per group.
        Algorithm("random", "RAN"),
        Algorithm("balanced-size", "RSE"),
        Algorithm("balanced-rate", "RRE"),
        Algorithm("flow-merge", "FBM"),
        Algorithm("user-merge", "UBM", duplicates=True),
        Algorithm("optimal", "OCC"),
        Algorithm("optimal-shared", "OCA", duplicates=True),
        # Tock et al., section 4: k-means alone, and on two levels.
        Algorithm("kmeans"),
        Algorithm("sessions-first", "SF"),
        Algorithm("groups-first", "GF"),
        Algorithm("iterative", "IT"),
        Algorithm("annealed", "RRA"),
    )
}
_BY_ANY_NAME = {
    **ALGORITHMS,
    **{known.acronym.lower(): known for known in ALGORITHMS.values() if known.acronym},
}


@dataclass(frozen=True, slots=True)
class Size:
    """The maximum numbers of groups and sessions; without `sessions` every group is one session."""

    groups: int
    sessions: int | None = None

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1, not {self.groups}")
        if self.sessions is not None and self.sessions < self.groups:
            raise ValueError(
                f"sessions ({self.sessions}) must be at least groups ({self.groups}): "
                "every group needs a session"
            )

    @property
    def most_sessions(self) -> int:
        """The maximum number of sessions."""
        return self.sessions or self.groups


@dataclass(frozen=True, slots=True)
class Search:
    """How to search for a plan: with which algorithm, for how long, and by which cost.

    `budget_s` is how long to search. `best` converts it into an amount of work (see
    `planning.best`), and the clock stops it after `patience` times the budget. The exact
    algorithms, which prove their plan if they finish in time, go by the clock; the others run to
    their own end. `objective` is the cost by which an algorithm compares plans. `labels` has one
    label for each wanted flow: `by-column` puts flows with the same label together.
    """

    algorithm: str = DEFAULT_ALGORITHM
    seed: int = 0
    budget_s: float = 30.0
    patience: float = PATIENCE
    objective: Objective = "filtering"
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.algorithm.lower() not in _BY_ANY_NAME:
            raise ValueError(
                f"no algorithm is called {self.algorithm!r}; there are {', '.join(ALGORITHMS)}"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")
        if not self.budget_s > 0:
            raise ValueError(f"budget must be more than 0 seconds, not {self.budget_s}")
        if self.objective not in get_args(Objective):
            raise ValueError(f"objective must be filtering or channel, not {self.objective!r}")

    @property
    def solver(self) -> Algorithm:
        """The algorithm, which may be named by its acronym and in any case."""
        return _BY_ANY_NAME[self.algorithm.lower()]


@dataclass(frozen=True, slots=True)
class Change:
    """A plan to improve, and the maximum number of flows that may move (None: any number)."""

    previous: Previous | None = None
    max_moves: int | None = None

    def __post_init__(self) -> None:
        if self.max_moves is None:
            return
        if self.max_moves < 0:
            raise ValueError(f"max_moves must be at least 0, not {self.max_moves}")
        if self.previous is None:
            raise ValueError("max_moves needs a plan to start from")


@dataclass(frozen=True, slots=True)
class Terms:
    """Constraints on the plan, and what it may do besides placing each flow in one session.

    With `unicast`, flows may be sent by unicast, to all or some of their receivers. With
    `max_sent`, flows may be in several sessions as long as the sender sends at most `max_sent`
    times the rate of all flows. Only `best` knows these terms, and any combination of them.
    `receiver_weights` says by name how much the work of a receiver counts, 1 unless named.
    `packing` says how the sender fills its packets, if not as by default.
    """

    constraints: Constraints = field(default_factory=Constraints)
    unicast: UnicastLimits | None = None
    max_sent: float | None = None
    receiver_weights: Mapping[str, float] = field(default_factory=dict)
    packing: Packing | None = None

    def __post_init__(self) -> None:
        for receiver, weight in self.receiver_weights.items():
            if not 0 < weight < float("inf"):
                raise ValueError(
                    f"the weight of receiver {receiver!r} must be a finite number above 0, "
                    f"not {weight:g}"
                )
        if self.max_sent is not None and not 1 <= self.max_sent <= MOST_SENT:
            raise ValueError(
                f"max_sent must be a number from 1 to {MOST_SENT:g}, not {self.max_sent:g}"
            )


class RequestSettings(TypedDict, total=False):
    """Every setting of a request except its size, as keywords."""

    prices: Prices
    channel: ChannelPrices
    algorithm: str
    seed: int
    budget_s: float
    patience: float
    objective: Objective
    labels: Sequence[str] | None
    previous: Previous | None
    max_moves: int | None
    constraints: Constraints
    unicast: UnicastLimits | None
    max_sent: float | None
    receiver_weights: Mapping[str, float]
    packing: Packing | None


@dataclass(frozen=True, slots=True, init=False)
class Request:
    """Everything that a planner needs to know besides the demand.

    It is created from keywords, `Request(groups=2, algorithm="optimal")`, and stores them by
    concern: `size`, `prices`, `channel`, `search`, `change` and `terms`, whose classes
    document each setting.
    """

    size: Size
    prices: Prices
    channel: ChannelPrices
    search: Search
    change: Change
    terms: Terms

    def __init__(
        self, groups: int, sessions: int | None = None, **settings: Unpack[RequestSettings]
    ) -> None:
        given: dict[str, Any] = dict(settings)
        parts = {
            "size": Size(groups, sessions),
            "prices": given.pop("prices", None) or FilteringPrices(),
            "channel": given.pop("channel", None) or ChannelPrices(),
            "search": _take(Search, given),
            "change": _take(Change, given),
            "terms": _take(Terms, given),
        }
        if given:
            raise TypeError(f"a request has no setting {min(given)!r}")
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        _check_together(self)

    def replace(self, **changes: Any) -> Request:
        """The same request with some settings changed, by the same keywords."""
        parts = (self.size, self.search, self.change, self.terms)
        settings = {own.name: getattr(part, own.name) for part in parts for own in fields(part)}
        own_prices = {"prices": self.prices, "channel": self.channel}
        return Request(**{**settings, **own_prices, **changes})

    @property
    def solver(self) -> Algorithm:
        """The algorithm requested."""
        return self.search.solver

    @property
    def weights(self) -> Prices:
        """The prices to search by. The channel objective counts only what groups bring."""
        by_filtering = self.search.objective == "filtering"
        return self.prices if by_filtering else FilteringPrices(self.channel.received or 1.0, 0.0)

    @property
    def linear_prices(self) -> FilteringPrices:
        """The prices to search by, for algorithms that know one number of messages per packet."""
        prices = self.weights
        return prices.linear if isinstance(prices, PacketPrices) else prices

    @property
    def sent_price(self) -> float:
        """What a message sent costs, in the objective to search by."""
        return 0.0 if self.search.objective == "filtering" else self.channel.sent

    @property
    def packing(self) -> Packing:
        """How the sender fills its packets."""
        own = self.prices.packing if isinstance(self.prices, PacketPrices) else self.terms.packing
        return own or Packing()

    def weigh(self, interest: Interest) -> FloatArray | None:
        """How much the work of each receiver counts; None if all count the same."""
        return weigh_receivers(interest, self.terms.receiver_weights)


def _take(part: type[Any], given: dict[str, Any]) -> Any:
    """Create one part of a request from the settings that belong to it."""
    return part(**{own.name: given.pop(own.name) for own in fields(part) if own.name in given})


def _check_together(request: Request) -> None:
    """Refuse terms that the algorithm does not know: only `best` knows any."""
    terms, solver = request.terms, request.solver
    if terms.packing not in (None, request.packing):
        raise ValueError("the prices have a packing of their own: give one or the other")
    asked = {
        "a plan to improve": request.change.previous is not None,
        "constraints": bool(terms.constraints),
        "max_sent": terms.max_sent is not None,
        "unicast": terms.unicast is not None,
    }
    unknown = [term for term, is_asked in asked.items() if is_asked]
    if unknown and solver.name != "best":
        raise ValueError(f"only best supports {unknown[0]}, not {solver.name}")
