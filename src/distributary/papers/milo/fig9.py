"""Fig. 9: who takes which packages, with maintenance every 2, 12 and 24 hours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf

import numpy as np

from distributary.cost.topics import unclustered_cost
from distributary.model import FloatArray
from distributary.model.topics import BoolArray, Clustering
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.algorithms import (
    PRICES,
    AlgorithmOutcome,
    Outcomes,
    Reading,
    RoundsPolicy,
    play,
    rounds_of,
    summarise,
)
from distributary.papers.milo.baselines import starting_clustering
from distributary.papers.milo.curves import (
    COLUMNS,
    Panel,
    compare_with_ours,
    panel_chart,
    panel_rows,
)
from distributary.papers.milo.package_data import (
    DATA,
    DAYS,
    FOLDER,
    HOSTS,
    LEAST_USERS,
    MOST_PACKAGES,
    Packages,
    hosts,
    packages,
)
from distributary.papers.milo.readings import LINUX_DECISIONS, LINUX_OURS
from distributary.papers.milo.runs import outcomes
from distributary.papers.milo.world import INTERVALS_PER_DAY, in_order
from distributary.papers.wording import join_words, percent, table
from distributary.planning import Progress, silent
from distributary.topics.improvement import ImprovedRounds

__all__ = ["PackageCase", "all_cases", "fig9", "least_cost"]

INTERVALS = (2, 12, 24)  # hours
USERS, QUICK_USERS = 1_000, 100
EARLY = 0.25  # the share of users from which on it should pay
LEAST_PACKAGES = (2, 5, 10)  # per user of the log: in the figure, and for comparison
PLANS = 8
MOMENTS = 40
ALL_AT_ONCE = "planned"  # our planner, with all interests known and moves for nothing
PLANNED = "our planner, all interests known and moves for nothing"
BOUND = "a bound that nothing can pass"
SECONDS_PER_HOUR = 3_600.0
OURS_HERE = Reading(prunes=False)


@dataclass(frozen=True, slots=True)
class PackageCase:
    """The year of one kind of users at one maintenance interval; longer ones are fewer.

    `least` is the least number of packages of a user of the log, or 0 for the model of hosts.
    """

    least: int
    hours: int
    users: int
    seed: int
    algorithms: tuple[str, ...]
    reading: Reading = OURS_HERE

    @property
    def is_large(self) -> bool:
        """Whether it is worth a process of its own."""
        return self.users >= USERS

    @property
    def per_day(self) -> float:
        """Intervals a day."""
        return 24.0 / self.hours

    def parts(self) -> list[PackageCase]:
        """The same case split into one per algorithm."""
        return [replace(self, algorithms=(name,)) for name in self.algorithms]

    def data(self) -> Packages:
        """The users and their packages."""
        return _load(self.least, self.users, self.seed, os.environ.get(DATA))

    def frequency(self) -> FloatArray:
        """Events per interval of each package."""
        return self.data().rate * self.hours * SECONDS_PER_HOUR

    def run(self) -> Outcomes:
        """Run all algorithms."""
        return {name: self._run(name) for name in self.algorithms}

    def _run(self, name: str) -> AlgorithmOutcome:
        found, frequency = self.data(), self.frequency()
        duration = DAYS * self.per_day
        if name == ALL_AT_ONCE:
            state = starting_clustering(found.wants, None, frequency, PRICES)
            _plan(state, frequency)
            return summarise((), state, frequency, 0.0, {})
        users, topics = np.nonzero(found.wants)
        time = duration * found.time[users, topics]
        requests = in_order(time, users, topics, np.ones(len(users), bool))
        state = Clustering(*found.wants.shape)
        span, policy = duration / INTERVALS_PER_DAY, RoundsPolicy(name, self.reading)
        rounds = rounds_of(policy, state, frequency, span, PLANS, self.seed)
        return play(rounds, requests, duration, MOMENTS)


@cache
def _load(least: int, users: int, seed: int, folder: str | None) -> Packages:
    del folder  # where the data comes from; part of the key
    return packages(users, seed, least) if least else hosts(users, seed)


def _plan(state: Clustering, frequency: FloatArray) -> None:
    """Let our planner improve a clustering until it finds nothing more, whatever moves cost."""
    settings = replace(RoundsPolicy("ours").settings, horizon=inf)
    rounds = ImprovedRounds(state, frequency, settings, np.random.default_rng(0))
    rounds.planner = replace(rounds.planner, horizon=inf, least_gain=0.0, sample=1_200, passes=12)
    for _ in range(PLANS):
        before = rounds.ledger.cost
        rounds.plan()
        if rounds.ledger.cost > before - 1e-6 * before:
            return


def all_cases(*, quick: bool = False, seed: int = DEFAULT_SEED) -> list[PackageCase]:
    """Every case of the figure: by interval for both kinds of users, then what goes beside."""
    users, names = QUICK_USERS if quick else USERS, ("Tamara", "ours")
    base = PackageCase(LEAST_PACKAGES[0], INTERVALS[-1], users, seed, names)
    by_interval = [
        replace(base, least=least, hours=hours)
        for least in (LEAST_PACKAGES[0], 0)
        for hours in INTERVALS
    ]
    everybody = [
        replace(each, reading=replace(OURS_HERE, announces_to_all=True)) for each in by_interval
    ]
    more = [replace(base, least=least) for least in LEAST_PACKAGES[1:]]
    planned = [replace(base, least=least, algorithms=(ALL_AT_ONCE,)) for least in (base.least, 0)]
    return [*by_interval, *everybody, *more, *planned]


def fig9(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Scribe, Tamara and ours while a thousand package users join, for three intervals."""
    cases = all_cases(quick=quick, seed=seed)
    found = dict(zip(cases, outcomes(cases, progress), strict=True))
    n = len(INTERVALS)
    log, model = (
        _panels(cases[at : at + n], found, name) for at, name in ((0, ""), (n, "hosts, "))
    )
    told = [found[case] for case in cases[2 * n : 4 * n]]
    first, second = cases[0].data(), cases[n].data()
    return Figure(
        name="milo-fig9",
        title="Updates of software packages, three maintenance intervals",
        source="Milo et al. (2007), Fig. 9 and section 5.3",
        shown=(
            "Messages per maintenance interval over a year in which users join. Dotted: including "
            f"all messages that clustering itself needs. Upper row: {_describe(first)} Lower row: "
            f"{_describe(second)}"
        ),
        columns=COLUMNS,
        rows=panel_rows((*log, *model)),
        chart=panel_chart("milo-fig9", "Updates of packages", (*log, *model), rows=2),
        comparison="\n\n".join(
            (
                _compare((*log, *model), told),
                _by_packages(cases, found),
                _arithmetic(cases, found),
            )
        ),
        claims=(*_claims(first, log, ""), *_claims(second, model, ", on the model of hosts")),
        notes=_notes(first, second),
        quick=quick,
        seed=seed,
        own=compare_with_ours((*log, *model)),
    )


def _describe(found: Packages) -> str:
    people, topics = found.wants.shape
    return (
        f"{people:,} users of {topics:,} packages as topics, {found.each:.1f} each; {found.origin}"
    )


def _panels(
    cases: list[PackageCase], found: Mapping[PackageCase, Outcomes], title: str
) -> tuple[Panel, ...]:
    return tuple(
        Panel(f"{title}M = {case.hours} hours", found[case], case.per_day) for case in cases
    )


def _notes(first: Packages, second: Packages) -> tuple[str, ...]:
    return (
        f"Set the environment variable {DATA} to a folder with `{FOLDER}/subscriptions.parquet` "
        f"(ts, receiver, flow), `{FOLDER}/rates.parquet` (flow, rate), "
        f"`{HOSTS}/interest_hosts_model.parquet` (receiver, flow) and `{HOSTS}/rates.parquet` "
        "(flow, rate, rate_source) to run it on real downloads and on the model of hosts.",
        "The paper used a year of the log of a Debian mirror and update statistics of Mandriva, "
        "neither of which is available. Our log covers eight days. Four of them are nearly empty "
        f"and left out, as are packages with fewer than {LEAST_USERS} users and users with more "
        f"than {MOST_PACKAGES:,} packages (mirrors, robots). The other days are joined and "
        "stretched to a year: users join in the order and at the relative pace of the log.",
        f"Users in the log have a new number every day, so we see a day of each: {first.each:.1f} "
        "packages on average, where a year of a Linux user's downloads should show many more. "
        "That bounds what can be saved; the table with users of more packages shows how far.",
        "The model of hosts is nearer to what the paper had, over three thousand packages that "
        "Linux users keep up to date. Real in it are the dependencies between packages, their "
        "popularity and their uploads; the hosts are drawn. Of its packages we take those with a "
        f"known history of uploads. A host joins at a random time, with {second.each:.0f} "
        "packages on average, all within a day.",
        "The paper's sentence on 250 and on all users is read of OC, which its figure draws; the "
        "messages of clustering stand beside it in brackets. It speaks of even sparse "
        "maintenance, so it must hold at every interval.",
        LINUX_DECISIONS,
        LINUX_OURS,
    )


# --- tables --------------------------------------------------------------------------------------


def _compare(panels: tuple[Panel, ...], told: list[Outcomes]) -> str:
    """The final OC, and the overhead if those concerned or all members hear of a change."""

    def line(panel: Panel, every: Outcomes, name: str) -> tuple[str, ...]:
        change = panel.outcomes[name].change
        return (
            f"{panel.title}, {'our policy' if name == 'ours' else name}",
            percent(change.cost, 1, signed=True),
            f"{1 / (1 + change.cost):.1f} times better",
            percent(change.overhead, 2),
            f"{percent(every[name].change.overhead, 2)} (OC "
            f"{percent(every[name].change.cost, 1, signed=True)})",
            "curve",
            "–",
        )

    return table(
        (
            "at the end",
            "ours, OC against Scribe",
            "ours, factor",
            "overhead of Scribe's cost",
            "overhead if all members hear of every change",
            "paper",
            "independent",
        ),
        (
            line(panel, every, name)
            for panel, every in zip(panels, told, strict=True)
            for name in panel.outcomes
        ),
    )


def _by_packages(cases: list[PackageCase], found: Mapping[PackageCase, Outcomes]) -> str:
    """The table that shows the effect of the number of packages per user."""
    longest = [
        case
        for case in cases
        if case.hours == INTERVALS[-1]
        and case.algorithms != (ALL_AT_ONCE,)
        and not case.reading.announces_to_all
    ]
    longest.sort(key=lambda case: case.least or 10**9)

    def row(case: PackageCase) -> tuple[str, ...]:
        data = case.data()
        factors = [f"{1 / (1 + found[case][name].change.cost):.1f}" for name in case.algorithms]
        who = f"users with at least {case.least} packages" if case.least else "model of hosts"
        return (who, f"{len(data.wants):,}", f"{data.each:.1f}", *factors)

    header = ("users", "packages of a user", "Tamara", "our policy")
    return table(
        (f"times better than Scribe, M = {INTERVALS[-1]} hours", *header), map(row, longest)
    )


def _arithmetic(cases: list[PackageCase], found: Mapping[PackageCase, Outcomes]) -> str:
    """What could be saved at the longest interval: simple clusters, and a bound."""
    columns = []
    for case in cases:
        if case.algorithms != (ALL_AT_ONCE,):
            continue
        same = replace(case, algorithms=("Tamara", "ours"))
        wants, frequency = case.data().wants, case.frequency()
        scribe = sum(unclustered_cost(wants.sum(axis=0), frequency, PRICES))
        some = wants @ (1.0 + frequency) > 1.0 + frequency.sum()  # whom one cluster saves something
        columns.append(
            {
                "plain Scribe": scribe,
                "one cluster of all packages, for everybody": _cost_of_one(
                    wants, frequency, np.ones(len(wants), bool)
                ),
                "the same for those who save by it": _cost_of_one(wants, frequency, some),
                "Tamara": scribe * (1 + found[same]["Tamara"].change.cost),
                "our policy": scribe * (1 + found[same]["ours"].change.cost),
                PLANNED: scribe * (1 + found[case][ALL_AT_ONCE].change.cost),
                BOUND: least_cost(wants, frequency),
            }
        )
    factors = [{name: c["plain Scribe"] / cost for name, cost in c.items()} for c in columns]
    lines = table(
        (f"messages per interval at the end, M = {INTERVALS[-1]} hours", "log", "model of hosts"),
        (
            (
                name,
                *(
                    f"{costs[name]:,.0f} ({factor[name]:.2f} times better)"
                    for costs, factor in zip(columns, factors, strict=True)
                ),
            )
            for name in columns[0]
        ),
    )
    known = max(factor for name, factor in factors[0].items() if name != BOUND)
    return (
        f"{lines}\n\nOn the log nothing that we know is more than {known:.2f} times better than "
        f"Scribe at this interval. It is proven only that nothing is more than "
        f"{factors[0][BOUND]:.2f} times better."
    )


def _cost_of_one(wants: BoolArray, frequency: FloatArray, joins: BoolArray) -> float:
    """OC if some users are on one cluster of all packages, and the others on own channels."""
    flow = float(frequency.sum())
    n = int(joins.sum())
    one = PRICES.maintain(n) + PRICES.associate(len(frequency))
    one += flow * (PRICES.notify + PRICES.disseminate(n))
    return one + sum(unclustered_cost(wants[~joins].sum(axis=0), frequency, PRICES))


def least_cost(wants: BoolArray, frequency: FloatArray) -> float:
    """A lower bound on OC with the paper's prices, whatever the clusters.

    Each user is on some channel, gets every event that it wants, and each topic's own channel is
    notified of its events. Beyond that, a cluster with a topic costs an association and a notice
    per event, and without a cluster each user pays 1 for the topic's own channel, at most half of
    which is what it pays to be on some channel if it wants two topics or more.
    """
    n_wanted = wants.sum(axis=1)
    received = float((wants.sum(axis=0) * frequency).sum())
    beyond = np.minimum(1.0 + frequency, wants[n_wanted >= 2].sum(axis=0) / 2.0)
    return float((n_wanted > 0).sum() + received + frequency.sum() + beyond.sum())


# --- claims --------------------------------------------------------------------------------------


def _claims(found: Packages, panels: tuple[Panel, ...], where: str) -> tuple[Claim, ...]:
    return (
        _sparse_claim(panels, where),
        _four_claim(panels, where),
        _early_claim(found, panels, where),
    )


def _hours(panel: Panel) -> str:
    return panel.title.removeprefix("hosts, ")


def _sparse_claim(panels: tuple[Panel, ...], where: str) -> Claim:
    finals = [panel.final("Tamara") for panel in panels]
    return Claim(
        f"as maintenance gets sparser, Tamara saves less, but still much{where}",
        "section 5.3",
        join_words([f"{_hours(p)} {percent(p.final('Tamara'), 1, signed=True)}" for p in panels]),
        finals == sorted(finals) and finals[-1] < -0.3,
    )


def _four_claim(panels: tuple[Panel, ...], where: str) -> Claim:
    factors = [1 / (1 + panel.final("Tamara")) for panel in panels]
    return Claim(
        f"with all users Tamara is more than four times better than Scribe{where}",
        "section 5.3",
        join_words([f"{_hours(p)} {f:.1f} times" for p, f in zip(panels, factors, strict=True)]),
        min(factors) > 4,
    )


def _early_claim(found: Packages, panels: tuple[Panel, ...], where: str) -> Claim:
    joined, words, holds = found.joined, [], True
    start = joined[round(EARLY * len(joined)) - 1]  # when this share of users has joined
    for panel in panels:
        moments = panel.outcomes["Tamara"].moments
        end = moments[-1].time
        late = [m for m in moments if m.time >= start * end]
        alone = max(m.cost / m.scribe for m in late)
        total = max((m.cost + m.overhead) / m.scribe for m in late)
        above = sum(m.cost + m.overhead > m.scribe for m in late)
        words.append(
            f"{_hours(panel)} at most {percent(alone)} (with overhead {percent(total)}, above "
            f"Scribe at {above} of {len(late)} points)"
        )
        holds = holds and alone < 1
    return Claim(
        f"even with sparse maintenance it pays from 250 of 1,000 users on{where}",
        "section 5.3",
        f"{join_words(words)} of Scribe's cost from there on",
        holds,
    )
