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
from distributary.papers.milo.readings import DECISIONS, OURS_NOTE
from distributary.papers.milo.runs import played, rounds_of
from distributary.papers.milo.world import INTERVALS_PER_DAY, growth
from distributary.papers.wording import listed, percent
from distributary.planning import Progress, Step, silent

__all__ = ["DATA", "fig9", "packages"]

DATA = "DISTRIBUTARY_DATA"  # the environment variable that names the folder with the data sets
FOLDER = "cran-mirror-log"
HOURS = (2, 12, 24)
USERS, QUICK_USERS = 1_000, 150
LEAST_USERS = 5  # of a package that is kept as a topic
MOST_PACKAGES = 1_000  # of a user who is not a mirror or a robot
DAYS = 60
SECONDS_PER_HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class Packages:
    """Users x packages, events per second of each package, and where both come from."""

    wants: BoolArray
    rate: FloatArray
    origin: str


def fig9(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Scribe, Tamara and ours as a thousand users of packages join, for three intervals."""
    found = packages(QUICK_USERS if quick else USERS, seed)
    panels = []
    for done, hours in enumerate(HOURS):
        progress(Step("intervals", done, len(HOURS)))
        panels.append(_panel(found, hours, seed))
    progress(Step("intervals", len(HOURS), len(HOURS)))
    shown = tuple(panels)
    return Figure(
        name="milo-fig9",
        title="Updates of software packages, three maintenance intervals",
        source="Milo et al. (2007), Fig. 9 and section 5.3",
        shown=(
            f"{found.wants.shape[0]:,} users join one after the other, "
            f"{found.wants.shape[1]:,} packages as topics. {found.origin}"
        ),
        columns=COLUMNS,
        rows=panel_rows(shown),
        chart=panel_chart(
            "milo-fig9", "Updates of packages", shown, x="time, in units of 240 intervals"
        ),
        comparison=comparison(shown),
        claims=(_sparse_claim(shown), _four_claim(shown), _early_claim(shown)),
        notes=_notes(found),
        quick=quick,
        seed=seed,
    )


def _notes(found: Packages) -> tuple[str, ...]:
    return (
        found.origin,
        f"Set the environment variable {DATA} to a folder with `{FOLDER}/interest.parquet` and "
        f"`{FOLDER}/rates.parquet` (receiver, flow; flow, rate) to run it on real downloads.",
        "The paper used a year of the log of a Debian mirror and update statistics of Mandriva, "
        f"neither of which can be had. Packages with fewer than {LEAST_USERS} users are left out, "
        f"and receivers with more than {MOST_PACKAGES:,} packages (mirrors, robots).",
        DECISIONS,
        OURS_NOTE,
    )


def packages(users: int, seed: int) -> Packages:
    """Real downloads where the data folder is known, or else a stand-in that says so."""
    folder = os.environ.get(DATA)
    path = Path(folder) / FOLDER if folder else None
    if path is not None and (path / "interest.parquet").is_file():
        return _real(path, users, seed)
    return _stand_in(users, seed)


def _real(path: Path, users: int, seed: int) -> Packages:
    import pyarrow.parquet as pq

    interest = pq.read_table(path / "interest.parquet", columns=["receiver", "flow"])
    rates = pq.read_table(path / "rates.parquet", columns=["flow", "rate"])
    rate_of = dict(zip(rates["flow"].to_pylist(), rates["rate"].to_pylist(), strict=True))
    receivers, rows = np.unique(interest["receiver"].to_pylist(), return_inverse=True)
    flows, columns = np.unique(interest["flow"].to_pylist(), return_inverse=True)
    wants = np.zeros((len(receivers), len(flows)), bool)
    wants[rows, columns] = True
    people = np.flatnonzero((wants.sum(axis=1) <= MOST_PACKAGES) & (wants.sum(axis=1) >= 2))
    rng = np.random.default_rng([seed, 9])
    chosen = np.sort(rng.choice(people, min(users, len(people)), replace=False))
    wants = wants[chosen]
    kept = wants.sum(axis=0) >= LEAST_USERS
    rate = np.array([rate_of[name] for name in flows[kept]], np.float64)
    origin = (
        "Interest: real downloads from a CRAN mirror, 2012-13, users with at least two packages; "
        "frequencies: real release histories."
    )
    return Packages(wants[:, kept], rate, origin)


def _stand_in(users: int, seed: int) -> Packages:
    """Users who take popular packages and whole families of packages that belong together."""
    rng = np.random.default_rng([seed, 9])
    topics = max(40, users // 2)
    popular = 0.6 / (1.0 + np.arange(topics)) ** 0.8
    family = np.arange(topics) * (topics // 8) // topics
    mine = rng.integers(topics // 8, size=(users, 2))
    odds = np.where((family == mine[:, :1]) | (family == mine[:, 1:]), 0.7, popular)
    wants = rng.random((users, topics)) < odds
    wants = wants[:, wants.sum(axis=0) >= LEAST_USERS]
    rate = np.exp(rng.normal(np.log(1 / (120 * 86_400)), 1.0, size=wants.shape[1]))
    origin = (
        "**A generated stand-in, not real data**: families of packages, popular ones on top, and "
        f"a release every four months or so. No data folder was named by {DATA}."
    )
    return Packages(wants, rate, origin)


def _panel(found: Packages, hours: int, seed: int) -> Panel:
    """Sixty days of arrivals at every interval, so fewer intervals where they are longer."""
    frequency = found.rate * hours * SECONDS_PER_HOUR
    duration = DAYS * 24.0 / hours
    requests = growth(found.wants, duration, 0.05, np.random.default_rng([seed, hours]))
    outcomes = {}
    for name in ("Tamara", "ours"):
        state = Clustering(*found.wants.shape)
        days = duration / INTERVALS_PER_DAY
        rounds = rounds_of(name, state, frequency, days, 4, seed)
        outcomes[name] = played(rounds, requests, duration, 20)
    return Panel(f"M = {hours} hours", outcomes)


def _sparse_claim(panels: tuple[Panel, ...]) -> Claim:
    finals = [panel.final("Tamara") for panel in panels]
    return Claim(
        "as maintenance gets sparser, Tamara saves less, but still much",
        "section 5.3",
        listed([f"{p.title} {percent(p.final('Tamara'), 1, signed=True)}" for p in panels]),
        finals == sorted(finals) and finals[-1] < -0.3,
    )


def _four_claim(panels: tuple[Panel, ...]) -> Claim:
    factors = [1 / (1 + panel.final("Tamara")) for panel in panels]
    return Claim(
        "with all users Tamara is more than four times better than Scribe",
        "section 5.3",
        listed([f"{p.title} {f:.1f} times" for p, f in zip(panels, factors, strict=True)]),
        min(factors) > 4,
    )


def _early_claim(panels: tuple[Panel, ...]) -> Claim:
    words, holds = [], True
    for panel in panels:
        moments = panel.outcomes["Tamara"].moments
        quarter = moments[len(moments) // 4 + 1 :]
        worst = max((m.cost + m.overhead) / m.scribe for m in quarter if m.scribe)
        words.append(f"{panel.title} at most {percent(worst)}")
        holds = holds and worst < 1
    return Claim(
        "it pays from 250 of 1,000 users on, with its own messages",
        "section 5.3",
        f"{listed(words)} of Scribe's cost from there on",
        holds,
    )
