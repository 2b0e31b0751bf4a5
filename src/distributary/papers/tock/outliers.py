"""Section 5.3: what unicast saves beside multicast, for flows and receivers that fit nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from distributary.cost import Evaluation, FilteringPrices, evaluate
from distributary.model import Demand
from distributary.papers.drawing import COLOURS, INK, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import OURS, PATIENCE, READING, draw_floor
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Request, Step, UnicastLimits, plan, silent

__all__ = ["outliers"]

PRICES = FilteringPrices(1.0, 1.0)
GROUPS, SESSIONS = 50, 500
RECEIVERS, QUICK_RECEIVERS = (1, 5), (1,)  # of a flow by unicast, at most
EXTRA, QUICK_EXTRA = (0.01, 0.02, 0.05, 0.1, 0.2), (0.05,)  # of the rate of all flows, sent again
BUDGET_S, QUICK_BUDGET_S = 3.0, 0.2
SOURCE = "section 5.3"
LOOKS = {1: (COLOURS["GF"], "o"), 5: (COLOURS["SF"], "s")}


@dataclass(frozen=True, slots=True)
class Hybrid:
    """One plan: how it may use unicast, and what comes of it."""

    how: str
    receivers: int  # of a flow by unicast, at most
    extra: float  # allowed, as a share of the rate of all flows
    flows: int  # by unicast, to some receiver or all
    links: int
    sent: float  # what the sender sends, over each message once
    goodput: float
    excess: float  # Cx/Cf
    keeps: bool  # valid, and within the limits

    @classmethod
    def of(
        cls, how: str, found: Evaluation, total: float, limits: tuple[int, float] = (0, 0.0)
    ) -> Self:
        """Take the numbers of an evaluated plan."""
        extra = found.loads.unicast_extra_rate / total
        return cls(
            how,
            *limits,
            flows=found.unicast_flows,
            links=found.unicast_links,
            sent=1 + extra,
            goodput=found.goodput,
            excess=found.filtering.relative_excess,
            keeps=found.valid and extra <= limits[1] * (1 + 1e-9),
        )


def outliers(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """The filtering cost with some of the traffic by unicast, against what the sender sends."""
    interest, rates, start = draw_floor(seed, 0)
    demand = Demand.of(interest, rates)
    found = _measure(demand, start, quick, progress)
    alone = int((demand.interest.audience == 1).sum())
    return Figure(
        name="tock-outliers",
        title="A little unicast beside multicast",
        source="Tock et al. (2005), section 5.3",
        shown=(
            f"Relative filtering cost Cx/Cf of `{OURS}` at {GROUPS} groups, {SESSIONS} sessions "
            f"and α = β = {PRICES.alpha:g}, against the load of the sender, where 1 is each "
            "message once: flows with a single receiver may go by unicast, and receivers that fit "
            "no session well may get a flow by unicast besides. One floor; each plan with work "
            f"for about {QUICK_BUDGET_S if quick else BUDGET_S:g} s."
        ),
        columns=(
            "plan",
            "most_receivers",
            "extra_allowed",
            "unicast_flows",
            "unicast_links",
            "sent",
            "goodput_percent",
            "relative_cost",
        ),
        rows=tuple(
            (
                each.how,
                each.receivers,
                each.extra,
                each.flows,
                each.links,
                each.sent,
                100 * each.goodput,
                each.excess,
            )
            for each in found
        ),
        chart=_chart(found),
        comparison=_comparison(found, demand),
        claims=(_alone_claim(found, alone, len(demand.rate)), _outlier_claim(found)),
        notes=(
            READING,
            "The paper names both options in one paragraph and leaves them out of its scope, so "
            "there are no numbers to compare with. Its words are read as two claims: each "
            "option is possible within limits, and lowers the filtering cost.",
            "A flow with a single receiver costs the sender the same by unicast as by multicast, "
            "and its receiver nothing to filter. A flow that travels in a session and by unicast "
            "too costs the sender its rate once more for each such receiver; that extra load is "
            "what the limits bound.",
            "What arrives by unicast passes both filters and counts in full.",
        ),
        own=_own_words(found),
        quick=quick,
        seed=seed,
    )


def _measure(demand: Demand, start: int, quick: bool, progress: Progress) -> list[Hybrid]:
    total = float(demand.rate.sum())
    request = Request(
        GROUPS,
        SESSIONS,
        prices=PRICES,
        seed=start,
        budget_s=QUICK_BUDGET_S if quick else BUDGET_S,
        patience=PATIENCE,
    )
    cases = [(0, 0.0), (1, 0.0)]
    cases += [
        (k, extra)
        for k in (QUICK_RECEIVERS if quick else RECEIVERS)
        for extra in (QUICK_EXTRA if quick else EXTRA)
    ]
    found = []
    for done, (receivers, extra) in enumerate(cases):
        progress(Step("plans", done, len(cases)))
        limits = UnicastLimits(receivers, None, extra * total) if receivers else None
        made = plan(demand, request.replace(unicast=limits)).plan
        priced = evaluate(made, demand, PRICES)
        found.append(Hybrid.of(_name(receivers, extra), priced, total, (receivers, extra)))
    progress(Step("plans", len(cases), len(cases)))
    return found


def _name(receivers: int, extra: float) -> str:
    if not receivers:
        return "no unicast"
    if not extra:
        return "flows with one receiver"
    return f"{receivers} receiver{'s' if receivers > 1 else ''} of a flow, {percent(extra)} more"


# --- reporting -----------------------------------------------------------------------------------


def _comparison(found: Sequence[Hybrid], demand: Demand) -> str:
    wanted = float(demand.wanted_rate.sum() / demand.rate.sum())
    users = len(demand.interest.receivers)
    rows = [
        ("unicast alone", NOTHING, f"{wanted:.1f} times", "10.1 times", "10.0", "100.0 %", "0"),
        *(
            (
                each.how,
                f"{each.links:,} for {each.flows:,} flows" if each.links else NOTHING,
                f"{each.sent:.3f} times",
                NOTHING,
                NOTHING,
                percent(each.goodput, 1),
                f"{each.excess:.4f}",
            )
            for each in found
        ),
        ("flooding", NOTHING, "1 time", "1 time", NOTHING, percent(wanted / users, 1), "1"),
    ]
    return table(
        ("plan", "unicast links", "ours, sent", "paper, sent", "independent", "goodput", "Cx/Cf"),
        rows,
    )


def _alone_claim(found: Sequence[Hybrid], alone: int, flows: int) -> Claim:
    without, single = found[:2]
    return Claim(
        "flows that have only a single interested user could go by unicast",
        SOURCE,
        f"{single.flows:,} of the {alone:,} such flows, among {flows:,}, do; Cx/Cf falls from "
        f"{without.excess:.4f} to {single.excess:.4f} "
        f"({percent(single.excess / without.excess - 1, signed=True)}), and nothing is sent twice",
        single.keeps and single.excess < without.excess,
    )


def _outlier_claim(found: Sequence[Hybrid]) -> Claim:
    single, more = found[1], found[2:]
    words = [
        f"{percent(each.excess / single.excess - 1, signed=True)} with "
        f"{percent(each.sent - 1, 1)} more load"
        for each in (more[0], more[-1])
    ]
    kept = "every plan keeps its limit" if all(each.keeps for each in more) else "one breaks it"
    return Claim(
        "some flows could be duplicated on unicast links, within limits on links and load",
        SOURCE,
        f"Cx/Cf against that: {join_words(list(dict.fromkeys(words)))}; {kept}",
        all(each.keeps and each.excess < single.excess for each in more),
    )


def _own_words(found: Sequence[Hybrid]) -> str:
    without, single, *more = found
    best = min(more, key=lambda each: each.excess)
    return (
        "The paper's four algorithms know no unicast. Our planner decides flow by flow and "
        f"receiver by receiver (`plan --unicast-receivers`, `--unicast-rate`): at {GROUPS} groups "
        f"and {SESSIONS} sessions that saves {percent(1 - single.excess / without.excess)} of the "
        "filtering with nothing sent twice, and up to "
        f"{percent(1 - best.excess / without.excess)} with {percent(best.sent - 1)} more to send. "
        "Unicast alone would send ten times as much."
    )


def _chart(found: Sequence[Hybrid]) -> str:
    without, single, *more = found

    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        for k in sorted({each.receivers for each in more}):
            own = [single, *(each for each in more if each.receivers == k)]
            colour, mark = LOOKS[k]
            axes.plot(
                [each.sent for each in own],
                [each.excess for each in own],
                color=colour,
                marker=mark,
                label=f"up to {k} receiver{'s' if k > 1 else ''} of a flow by unicast",
            )
        axes.plot(single.sent, single.excess, "D", color=INK, label="only flows with one receiver")
        axes.axhline(without.excess, color=INK, dashes=(4, 2), linewidth=1.2, label="no unicast")
        axes.set(xlabel="messages sent, each once = 1", ylabel="Cx/Cf, relative filtering cost")
        axes.set(ylim=(0, 1.1 * without.excess))
        axes.legend(loc="lower left")

    return draw_chart("tock-outliers", "Filtering cost with some unicast", (7.5, 4.5), paint)
