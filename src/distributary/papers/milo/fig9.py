"""Fig. 9: who downloads which packages, with maintenance every 2, 12 and 24 hours."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distributary.model import FloatArray
from distributary.model.topics import BoolArray, Clustering
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.milo.curves import COLUMNS, Panel, comparison, panel_chart, panel_rows
from distributary.papers.milo.readings import LINUX_DECISIONS, LINUX_OURS
from distributary.papers.milo.runs import AlgorithmOutcome, RoundsPolicy, play, rounds_of
from distributary.papers.milo.world import INTERVALS_PER_DAY, in_order
from distributary.papers.wording import join_words, percent, table
from distributary.planning import Progress, Step, silent

__all__ = ["DATA", "fig9", "packages"]

DATA = "DISTRIBUTARY_DATA"  # the environment variable that names the folder with the data sets
FOLDER = "cran-mirror-log"
HOURS = (2, 12, 24)
USERS, QUICK_USERS = 1_000, 150
EARLY = 0.25  # the share of users from which on it should pay
LEAST_USERS = 5  # per package that is kept as a topic
LEAST_PACKAGES = (2, 5, 10)  # per user: in the figure, and for comparison
MOST_PACKAGES = 1_000  # per user; those with more are mirrors or robots
LEAST_PEOPLE = 100  # per day of the log; days with fewer are left out
DAYS = 365  # the paper's log is of a year
PLANS = 8
MOMENTS = 40
SECONDS_PER_HOUR, SECONDS_PER_DAY = 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Packages:
    """Who downloaded which package when, how often packages are released, and the data's origin.

    `wants` and `time` are users x packages; times are shares of the run, valid where wanted. `rate`
    is in events per second.
    """

    wants: BoolArray
    time: FloatArray
    rate: FloatArray
    origin: str

    @property
    def joined(self) -> FloatArray:
        """The time when each user joined, ascending."""
        return np.sort(np.where(self.wants, self.time, np.inf).min(axis=1))


def fig9(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Scribe, Tamara and ours while a thousand package users join, for three intervals."""
    users = QUICK_USERS if quick else USERS
    kinds = [packages(users, seed, least) for least in LEAST_PACKAGES]
    cases = [(0, hours) for hours in HOURS]
    cases += [(at, HOURS[-1]) for at in range(1, len(kinds))]
    found: dict[tuple[int, int], Panel] = {}
    for done, (at, hours) in enumerate(cases):
        progress(Step("intervals", done, len(cases)))
        found[at, hours] = _panel(kinds[at], hours, seed)
    progress(Step("intervals", len(cases), len(cases)))
    shown = tuple(found[0, hours] for hours in HOURS)
    people, topics = kinds[0].wants.shape
    return Figure(
        name="milo-fig9",
        title="Updates of software packages, three maintenance intervals",
        source="Milo et al. (2007), Fig. 9 and section 5.3",
        shown=(
            f"Messages per maintenance interval over a year in which {people:,} users join, with "
            f"{topics:,} packages as topics. Dotted: including all messages that clustering "
            f"itself needs. {kinds[0].origin}"
        ),
        columns=COLUMNS,
        rows=panel_rows(shown),
        chart=panel_chart("milo-fig9", "Updates of packages", shown),
        comparison="\n\n".join((comparison(shown), _by_packages(kinds, found))),
        claims=(_sparse_claim(shown), _four_claim(shown), _early_claim(kinds[0], shown)),
        notes=_notes(kinds[0]),
        quick=quick,
        seed=seed,
    )


def _notes(found: Packages) -> tuple[str, ...]:
    mean, daily = found.wants.sum(axis=1).mean(), found.rate.sum() * SECONDS_PER_DAY
    return (
        f"Set the environment variable {DATA} to a folder with `{FOLDER}/subscriptions.parquet` "
        f"(ts, receiver, flow) and `{FOLDER}/rates.parquet` (flow, rate) to run it on real "
        "downloads.",
        "The paper used a year of the log of a Debian mirror and update statistics of Mandriva, "
        "neither of which is available. Our log covers eight days. Four of them are nearly empty "
        f"and left out, as are packages with fewer than {LEAST_USERS} users and users with more "
        f"than {MOST_PACKAGES:,} packages (mirrors, robots). The other days are joined and "
        "stretched to a year: users join in the order and at the relative pace of the log.",
        f"Users in the log have a new number every day, so we see a day of each: {mean:.1f} "
        "packages on average, where a year of a Linux user's downloads should show many more. That "
        "bounds what can be saved. All packages together are released "
        f"{daily:.1f} times a day, so with M = 24 hours a user on one cluster of everything costs "
        f"{1 + daily:.1f} messages an interval, in place of the about {mean:.0f} of Scribe. The "
        "last table has users with more packages.",
        LINUX_DECISIONS,
        LINUX_OURS,
    )


def packages(users: int, seed: int, least: int = LEAST_PACKAGES[0]) -> Packages:
    """Real downloads if the data folder is known, else a stand-in that is marked as such.

    At most `users` users who downloaded at least `least` packages.
    """
    folder = os.environ.get(DATA)
    path = Path(folder) / FOLDER if folder else None
    if path is not None and (path / "subscriptions.parquet").is_file():
        return _real(path, users, seed, least)
    return _stand_in(users, seed, least)


def _real(path: Path, users: int, seed: int, least: int) -> Packages:
    import pyarrow.parquet as pq

    log = pq.read_table(path / "subscriptions.parquet", columns=["ts", "receiver", "flow"])
    rates = pq.read_table(path / "rates.parquet", columns=["flow", "rate"])
    rate_of = dict(zip(rates["flow"].to_pylist(), rates["rate"].to_pylist(), strict=True))
    receivers, rows = np.unique(log["receiver"].to_pylist(), return_inverse=True)
    flows, columns = np.unique(log["flow"].to_pylist(), return_inverse=True)
    seconds = log["ts"].to_numpy().astype("datetime64[ms]").astype(np.int64) / 1_000.0
    wants = np.zeros((len(receivers), len(flows)), bool)
    time = np.full(wants.shape, np.inf)
    wants[rows, columns] = True
    time[rows, columns] = seconds
    day, busy = _days(time)
    n_wanted = wants.sum(axis=1)
    people = np.isin(day, busy) & (n_wanted <= MOST_PACKAGES) & (n_wanted >= least)
    rng = np.random.default_rng([seed, 9])
    chosen = np.sort(rng.permutation(np.flatnonzero(people))[:users])
    kept = wants[chosen].sum(axis=0) >= LEAST_USERS
    at = np.ix_(chosen, kept)
    shift = (np.searchsorted(busy, day[chosen]) - day[chosen])[:, None]
    origin = (
        "Interest: real downloads from a CRAN mirror, 2012-13, users with at least "
        f"{least} packages, by the time of their first download; frequencies: real release "
        "histories."
    )
    rate = np.array([rate_of[name] for name in flows[kept]], np.float64)
    return Packages(wants[at], (time[at] / SECONDS_PER_DAY + shift) / len(busy), rate, origin)


def _days(time: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The day of each user's first download, and the days with many users."""
    day = np.floor(time.min(axis=1) / SECONDS_PER_DAY)
    days, people = np.unique(day, return_counts=True)
    return day, days[people >= LEAST_PEOPLE]


def _stand_in(users: int, seed: int, least: int) -> Packages:
    """Generated users who take popular packages and whole families of related packages."""
    rng = np.random.default_rng([seed, 9])
    topics = max(40, users // 2)
    popular = 0.6 / (1.0 + np.arange(topics)) ** 0.8
    family = np.arange(topics) * (topics // 8) // topics
    mine = rng.integers(topics // 8, size=(users, 2))
    odds = np.where((family == mine[:, :1]) | (family == mine[:, 1:]), 0.7, popular)
    wants = rng.random((users, topics)) < odds
    wants = wants[wants.sum(axis=1) >= least]
    wants = wants[:, wants.sum(axis=0) >= LEAST_USERS]
    rate = np.exp(rng.normal(np.log(1 / (120 * 86_400)), 1.0, size=wants.shape[1]))
    time = np.broadcast_to(rng.random((len(wants), 1)), wants.shape)
    origin = (
        "**A generated stand-in, not real data**: families of packages, popular ones on top, and "
        f"a release every four months or so. No data folder was named by {DATA}."
    )
    return Packages(wants, time, rate, origin)


def _panel(found: Packages, hours: int, seed: int) -> Panel:
    """The year at one interval length; longer intervals are fewer."""
    frequency = found.rate * hours * SECONDS_PER_HOUR
    per_day = 24.0 / hours
    duration = DAYS * per_day
    users, topics = np.nonzero(found.wants)
    requests = in_order(
        duration * found.time[users, topics], users, topics, np.ones(len(users), bool)
    )
    outcomes: dict[str, AlgorithmOutcome] = {}
    for name in ("Tamara", "ours"):
        state = Clustering(*found.wants.shape)
        span = duration / INTERVALS_PER_DAY
        rounds = rounds_of(RoundsPolicy(name, prunes=False), state, frequency, span, PLANS, seed)
        outcomes[name] = play(rounds, requests, duration, MOMENTS)
    return Panel(f"M = {hours} hours", outcomes, per_day)


def _by_packages(kinds: list[Packages], found: dict[tuple[int, int], Panel]) -> str:
    """The table that shows the effect of the number of packages per user."""

    def factor(at: int, name: str) -> str:
        return f"{_factor(found[at, HOURS[-1]], name):.1f}"

    return table(
        (
            f"times better than Scribe, M = {HOURS[-1]} hours",
            "users",
            "packages of a user",
            "Tamara",
            "our policy",
        ),
        (
            (
                f"users with at least {least} packages",
                f"{len(kind.wants):,}",
                f"{kind.wants.sum(axis=1).mean():.1f}",
                factor(at, "Tamara"),
                factor(at, "ours"),
            )
            for at, (least, kind) in enumerate(zip(LEAST_PACKAGES, kinds, strict=True))
        ),
    )


def _factor(panel: Panel, name: str) -> float:
    return 1 / (1 + panel.final(name))


def _sparse_claim(panels: tuple[Panel, ...]) -> Claim:
    finals = [panel.final("Tamara") for panel in panels]
    return Claim(
        "as maintenance gets sparser, Tamara saves less, but still much",
        "section 5.3",
        join_words([f"{p.title} {percent(p.final('Tamara'), 1, signed=True)}" for p in panels]),
        finals == sorted(finals) and finals[-1] < -0.3,
    )


def _four_claim(panels: tuple[Panel, ...]) -> Claim:
    factors = [_factor(panel, "Tamara") for panel in panels]
    return Claim(
        "with all users Tamara is more than four times better than Scribe",
        "section 5.3",
        join_words([f"{p.title} {f:.1f} times" for p, f in zip(panels, factors, strict=True)]),
        min(factors) > 4,
    )


def _early_claim(found: Packages, panels: tuple[Panel, ...]) -> Claim:
    joined, words, holds = found.joined, [], True
    start = joined[round(EARLY * len(joined)) - 1]  # when this share of users has joined
    for panel in panels:
        moments = panel.outcomes["Tamara"].moments
        end = moments[-1].time
        late = [m for m in moments if m.time >= start * end]
        worst = max((m.cost + m.overhead) / m.scribe for m in late)
        above = sum(m.cost + m.overhead > m.scribe for m in late)
        alone = max(m.cost / m.scribe for m in late)
        words.append(
            f"{panel.title} at most {percent(worst)} (OC alone {percent(alone)}; above Scribe at "
            f"{above} of {len(late)} points)"
        )
        holds = holds and worst < 1
    return Claim(
        "it pays from 250 of 1,000 users on, with its own messages",
        "section 5.3",
        f"{join_words(words)} of Scribe's cost from there on",
        holds,
    )
