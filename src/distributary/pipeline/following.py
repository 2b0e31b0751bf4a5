"""A plan that follows a changing demand with few moves.

All receivers must be served at once, so the running plan is first completed for new receivers and
flows, without moves. If its excess is then more than `drift` above the reference, some flows are
moved, at most `max_moves`. The reference is the excess after the last moves; it stays while a batch
used up all its moves, so that the next batch can continue. Flows that nobody wants any more leave
the plan.

`PlanFollower` keeps the plan in memory (`planning.RunningPlan`): to complete it and to know its
excess costs what the batch changed. A new version is described from its tallies (`TalliedPlan`).
Only to move flows does it go through the whole demand, which is in memory too.

A stream may also be given another plan to go on from, the base, because somebody else changed it.
It is completed like the running one. The reference never rises by that: it stays, or becomes the
base's excess if that is lower. So neither flows that somebody else placed nor a plan that was put
back make the stream content with more waste than it had reached. If there is no reference yet, it
is unknown how good the base is, and flows are moved until that gains nothing any more.

A plan must also keep its terms. If the running plan cannot be completed within them without moves,
flows are moved at once. If that is not enough, there is no plan for the demand: the running one
stays, and `find_unserved` lists who misses what. A request with terms is followed by `follow`,
through the whole demand in each batch: a tally of pairs knows no limits, no unicast, no copies of
flows, no weights of receivers and no prices of packets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distributary.cost import FilteringPrices
from distributary.errors import InfeasibleError
from distributary.model import Demand, Interest, Plan, Previous
from distributary.pipeline.live_demand import DemandChange, LiveDemand
from distributary.pipeline.tallied_plan import TalliedPlan
from distributary.planning import (
    MadePlan,
    PlanStep,
    Request,
    RunningCost,
    Solution,
    count_moved,
    has_terms,
    make_plan,
    moves_between,
)

__all__ = ["FollowedPlan", "PlanFollower", "budget_to_move", "find_unserved", "follow"]

MOVED_SHARE = 0.02
# The budget of the request is for the first plan; the next ones begin near their end.
SECONDS_TO_COMPLETE, SECONDS_TO_MOVE = 0.5, 5.0
_SHARE_TO_MOVE, _LEAST_TO_MOVE = 0.4, 0.25  # the clock ends a search after 2.5 times its budget


@dataclass(frozen=True, slots=True)
class FollowedPlan:
    """The plan for a demand, what it costs, and how it came about.

    `made` is None if the plan is the running one as it was. `drift` is the relative growth of the
    excess above the reference before anything was moved; `reference` is the one for the next batch,
    None if it is not known yet. `before` is the cost before flows were moved; None if none were.
    """

    made: MadePlan | None
    cost: RunningCost
    reference: float | None
    drift: float | None = None
    moves: int = 0
    new: int = 0
    before: RunningCost | None = None

    @property
    def excess(self) -> float:
        """The excess as a share of the excess of flooding."""
        return self.cost.relative_excess

    @property
    def drift_cost(self) -> float:
        """The work per second beyond that of a plan whose excess is still the reference."""
        if self.reference is None:
            return 0.0
        return self.cost.excess - self.reference * self.cost.flooding_excess

    @property
    def saved(self) -> float | None:
        """The work per second that moving flows saved; None if none were moved."""
        return None if self.before is None else self.before.excess - self.cost.excess


def budget_to_move(trigger_s: float) -> float:
    """How many seconds a search for moves may take if batches begin at this interval.

    Newcomers of the next batch wait for its end. Like every budget it is an amount of work, so the
    same interval gives the same moves; the clock ends a search about when the next batch is due.
    """
    return min(SECONDS_TO_MOVE, max(_LEAST_TO_MOVE, _SHARE_TO_MOVE * trigger_s))


def follow(
    demand: Demand,
    request: Request,
    previous: Previous | None,
    reference: float | None,
    drift: float,
    max_moves: int | None = None,
    *,
    is_base: bool = False,
    seconds_to_move: float = SECONDS_TO_MOVE,
) -> FollowedPlan:
    """The plan for a demand: a new one, or the running one completed, with moves if it drifted.

    `is_base` says that the previous plan is a base that was taken just now. `max_moves` is by
    default 2 % of the flows, and at least one; `seconds_to_move` is the budget to search for them.
    If no plan within these moves keeps the terms of the request, `InfeasibleError` says why.
    """
    flows = len(demand.interest.flows)
    if previous is None:
        made = make_plan(demand, request)
        cost = _cost_of(made)
        return FollowedPlan(made, cost, cost.relative_excess, new=flows)
    most = _most_moves(flows, max_moves)
    try:
        served = _place_flows(demand, request, previous, reference)
    except InfeasibleError:
        if not most:
            raise
        forced = _move_flows(demand, request, previous, reference, most, seconds_to_move)
        return replace(forced, reference=forced.excess)
    served = _measure_drift(served, is_base=is_base)
    if not most or not _is_worth_moving(served, drift):
        return _settle_unknown(served)
    better = _move_flows(demand, request, previous, served.reference, most, seconds_to_move)
    if better.excess >= served.excess:
        return replace(served, reference=served.excess)
    better = replace(better, drift=served.drift, before=served.cost)
    return _settle_reference(better, most)


class PlanFollower:
    """The running plan of a stream, kept up to date with its demand.

    It is made with the plan in force, if there is one, after the demand was loaded; then `follow`
    takes each batch's change once. It never reads a file.
    """

    def __init__(
        self,
        request: Request,
        demand: LiveDemand,
        running: Plan | None,
        drift: float,
        max_moves: int | None = None,
        seconds_to_move: float = SECONDS_TO_MOVE,
    ) -> None:
        self._request, self._demand = request, demand
        self._drift, self._max_moves, self._seconds_to_move = drift, max_moves, seconds_to_move
        self.restart(running)

    def restart(self, running: Plan | None) -> None:
        """Begin anew with the plan in force."""
        self._whole = None if running is None else Previous.of(running)
        self._running: TalliedPlan | None = None
        self._late = 0  # flows that the plan in force lacked, as it was made on other terms
        if running is not None and self._can_keep(running):
            self._running, step = self._load(running)
            self._late = len(step.placed)

    def follow_base(self, base: Plan, reference: float | None) -> FollowedPlan | None:
        """The plan after a batch that goes on from a base, instead of the running plan.

        The demand has taken the batch's change. `reference` is that of the batch before, None if
        there is no plan yet. Should the plan not be put in force, `restart` with the one that is.
        """
        self._running, self._whole, self._late = None, Previous.of(base), 0
        if not self._demand.pairs:
            return None
        if not self._can_keep(base):
            return self._follow_whole(reference, is_base=True)
        self._running, step = self._load(base)
        if len(step.placed) == self._running.n_flows:
            return self._follow_anew()
        return self._follow_step(self._running, step, reference, is_base=True)

    def follow(self, change: DemandChange, reference: float | None) -> FollowedPlan | None:
        """The plan after a batch; None if nobody wants anything.

        `reference` is that of the batch before, None if it is not known yet.
        """
        if self._running is None:
            return self._follow_whole(reference)
        step = self._running.change(
            change.wanted_receiver,
            change.wanted_flow,
            change.unwanted_receiver,
            change.unwanted_flow,
            change.flows,
            np.maximum(change.messages, 1),
        )
        if not self._demand.pairs:
            return None
        if len(step.placed) == self._running.n_flows:
            return self._follow_anew()
        return self._follow_step(self._running, step, reference)

    def _follow_anew(self) -> FollowedPlan | None:
        """A new plan, as there is nothing to keep: none of the plan's flows is wanted any more."""
        self._running = self._whole = None
        return self._follow_whole(None)

    def _follow_step(
        self,
        running: TalliedPlan,
        step: PlanStep,
        reference: float | None,
        *,
        is_base: bool = False,
    ) -> FollowedPlan:
        """The running plan, completed already, with moves if it drifted."""
        cost, late = self._cost(running), self._late
        self._late = 0
        served = FollowedPlan(None, cost, reference, new=len(step.placed) + late)
        served = _measure_drift(served, is_base=is_base)
        most = _most_moves(running.n_flows, self._max_moves)
        if most and _is_worth_moving(served, self._drift):
            demand = self._take_demand()
            previous = self._list_places(running, step)
            better = _move_flows(
                demand, self._request, previous, served.reference, most, self._seconds_to_move
            )
            assert better.made is not None
            moved, _ = self._load(better.made.solution.plan)
            if self._cost(moved).excess < cost.excess:
                self._running = moved
                drift, after = served.drift, self._cost(moved)
                better = replace(better, drift=drift, cost=after, before=cost)
                return _settle_reference(better, most)
            served = replace(served, reference=cost.relative_excess)
        served = _settle_unknown(served)
        if step.is_same and not late and not is_base:
            return served
        return replace(served, made=self._describe(running))

    def _follow_whole(
        self, reference: float | None, *, is_base: bool = False
    ) -> FollowedPlan | None:
        """Follow as `follow` does, from the whole demand."""
        if not self._demand.pairs:
            return None
        followed = follow(
            self._take_demand(),
            self._request,
            self._whole,
            reference,
            self._drift,
            self._max_moves,
            is_base=is_base,
            seconds_to_move=self._seconds_to_move,
        )
        assert followed.made is not None
        plan = followed.made.solution.plan
        self._whole = Previous.of(plan)
        if not self._can_keep(plan):
            return followed
        self._running, _ = self._load(plan)
        cost, settled = self._cost(self._running), followed.reference == followed.excess
        now = cost.relative_excess if settled else followed.reference
        return replace(followed, cost=cost, reference=now)

    def _can_keep(self, plan: Plan) -> bool:
        """Whether tallies of pairs say all about a plan: no terms, and each flow in one session."""
        plain = not plan.duplicated_flows and not len(plan.unicast_flow)
        linear = isinstance(self._request.prices, FilteringPrices)
        return plain and linear and not has_terms(self._request)

    def _load(self, plan: Plan) -> tuple[TalliedPlan, PlanStep]:
        """A plan as a running one, completed for the demand."""
        names, request = self._demand.flows, self._request
        running = TalliedPlan(request.size, names.listed, request.linear_prices)
        placed = Previous.of(plan).session_of
        session = np.array([placed.get(name, -1) for name in names.listed], np.int32)
        weights = self._demand.weights_of(np.arange(len(names), dtype=np.int32))
        pairs = self._demand.list_pairs()
        return running, running.adopt(session, plan.session_group, weights, *pairs)

    def _cost(self, running: TalliedPlan) -> RunningCost:
        prices = self._request.prices
        assert isinstance(prices, FilteringPrices)
        return running.cost(self._demand.seconds, prices)

    def _take_demand(self) -> Demand:
        demand = self._demand.demand()
        assert demand is not None
        return demand

    def _describe(self, running: TalliedPlan) -> MadePlan:
        """The running plan as one that was made, checked and evaluated by its tallies."""
        demand, prices = self._demand, self._request.prices
        assert isinstance(prices, FilteringPrices)
        receivers, flows = demand.wanting(), demand.wanted()
        plan = running.name_plan(
            receivers, demand.receivers.names_of(receivers), flows, demand.flows.names_of(flows)
        )
        evaluation = running.evaluate(demand.seconds, prices, self._request.channel)
        request = self._request.replace(previous=Previous({}, plan.session_group), max_moves=0)
        return MadePlan(request, Solution(plan), evaluation)

    def _list_places(self, running: TalliedPlan, step: PlanStep) -> Previous:
        """Where flows are that count as moved if they go elsewhere: not those new in this batch."""
        listed, new = self._demand.flows.listed, set(step.placed.tolist())
        session = running.sessions_of(np.arange(len(listed), dtype=np.int32)).tolist()
        places = {
            listed[flow]: at for flow, at in enumerate(session) if at >= 0 and flow not in new
        }
        return Previous(places, running.session_group)


def find_unserved(plan: Plan | None, interest: Interest) -> list[tuple[str, str]]:
    """The wanted (receiver, flow) pairs that a plan for another interest does not serve."""
    carried: dict[str, set[int]] = {}
    heard: dict[str, set[int]] = {}
    alone: set[tuple[str, str]] = set()
    if plan is not None:
        for flow, session in zip(plan.placement_flow, plan.placement_session, strict=True):
            carried.setdefault(plan.flows[flow], set()).add(session)
        subscriptions = zip(plan.subscription_receiver, plan.subscription_session, strict=True)
        for receiver, session in subscriptions:
            heard.setdefault(plan.receivers[receiver], set()).add(session)
        pairs = zip(plan.unicast_receiver, plan.unicast_flow, strict=True)
        alone = {(plan.receivers[receiver], plan.flows[flow]) for receiver, flow in pairs}
    none: set[int] = set()
    wanted = (
        (receiver, interest.flows[flow])
        for at, receiver in enumerate(interest.receivers)
        for flow in interest.flows_of(at)
    )
    return [
        (receiver, flow)
        for receiver, flow in wanted
        if carried.get(flow, none).isdisjoint(heard.get(receiver, none))
        and (receiver, flow) not in alone
    ]


def _place_flows(
    demand: Demand, request: Request, previous: Previous, reference: float | None
) -> FollowedPlan:
    """The running plan completed for a demand, without moves."""
    return _move_flows(demand, request, previous, reference, 0, SECONDS_TO_COMPLETE)


def _move_flows(
    demand: Demand,
    request: Request,
    previous: Previous,
    reference: float | None,
    most: int,
    seconds: float,
) -> FollowedPlan:
    """The running plan completed for a demand, with at most `most` moves."""
    budget_s = min(request.search.budget_s, seconds)
    request = request.replace(previous=previous, max_moves=most, budget_s=budget_s)
    made = make_plan(demand, request)
    moves = moves_between(previous, made.solution.plan, made.solution.session_origin)
    new = {move.flow for move in moves if move.before is None}
    cost = _cost_of(made)
    return FollowedPlan(made, cost, reference, moves=count_moved(moves), new=len(new))


def _measure_drift(served: FollowedPlan, *, is_base: bool) -> FollowedPlan:
    """The running plan, completed, with its drift; a base may lower the reference."""
    reference = served.reference
    if reference is None:
        return served
    if is_base:
        reference = min(reference, served.excess)
    return replace(served, reference=reference, drift=_growth(served.excess, reference))


def _is_worth_moving(served: FollowedPlan, drift: float) -> bool:
    return served.drift is None or served.drift > drift


def _settle_unknown(served: FollowedPlan) -> FollowedPlan:
    """Without a reference, and with nothing to gain by moves, the excess is the reference."""
    return served if served.reference is not None else replace(served, reference=served.excess)


def _settle_reference(better: FollowedPlan, most: int) -> FollowedPlan:
    """With moves left over there is nothing more to gain, so this is the new reference."""
    return replace(better, reference=better.excess) if better.moves < most else better


def _most_moves(flows: int, max_moves: int | None) -> int:
    return max(1, int(MOVED_SHARE * flows)) if max_moves is None else max_moves


def _growth(excess: float, reference: float) -> float:
    return excess / reference - 1 if reference else float(excess > 0)


def _cost_of(made: MadePlan) -> RunningCost:
    cost = made.evaluation.filtering
    return RunningCost(cost.work, cost.excess, cost.flooding_excess)
