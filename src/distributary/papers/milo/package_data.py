"""Who takes which packages when, and how often they are released: real downloads, and a model.

Both are read from the folder that the environment variable names; without it, stand-ins are
generated that are marked as such.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distributary.model import FloatArray
from distributary.model.topics import BoolArray

__all__ = [
    "DATA",
    "FOLDER",
    "HOSTS",
    "LEAST_USERS",
    "MOST_PACKAGES",
    "SECONDS_PER_DAY",
    "Packages",
    "hosts",
    "packages",
]

DATA = "DISTRIBUTARY_DATA"  # the environment variable that names the folder with the data sets
FOLDER = "cran-mirror-log"
HOSTS = "debian"
LEAST_USERS = 5  # per package that is kept as a topic
MOST_PACKAGES = 1_000  # per user; those with more are mirrors or robots
LEAST_PEOPLE = 100  # per day of the log; days with fewer are left out
DAYS = 365  # the paper's log is of a year
SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Packages:
    """Who took which package when, how often packages are released, and the data's origin.

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

    @property
    def each(self) -> float:
        """The mean number of packages of a user."""
        return float(self.wants.sum(axis=1).mean())

    @property
    def daily(self) -> float:
        """Releases a day of all packages together."""
        return float(self.rate.sum() * SECONDS_PER_DAY)


def _find(folder: str, file: str) -> Path | None:
    """A data set's folder, if the environment names one that has the file."""
    base = os.environ.get(DATA)
    path = Path(base) / folder if base else None
    return path if path is not None and (path / file).is_file() else None


def packages(users: int, seed: int, least: int) -> Packages:
    """Real downloads if the data folder is known, else a stand-in that is marked as such.

    At most `users` users who downloaded at least `least` packages.
    """
    path = _find(FOLDER, "subscriptions.parquet")
    if path is None:
        return _families(users, seed, least, families=2, popular=0.6)
    return _downloads(path, users, seed, least)


def hosts(users: int, seed: int) -> Packages:
    """The model of Debian hosts if the data folder is known, else a stand-in, marked as such.

    The packages are those whose release history is known.
    """
    path = _find(HOSTS, "interest_hosts_model.parquet")
    if path is None:
        return _families(users, seed, 1, families=6, popular=1.0)
    return _hosts(path, users, seed)


def _downloads(path: Path, users: int, seed: int, least: int) -> Packages:
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
        "real downloads from a CRAN mirror, 2012-13, users with at least "
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


def _hosts(path: Path, users: int, seed: int) -> Packages:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rates = pq.read_table(path / "rates.parquet", columns=["flow", "rate", "rate_source"])
    known = rates.filter(pc.equal(rates["rate_source"], "changelog"))
    rate_of = dict(zip(known["flow"].to_pylist(), known["rate"].to_pylist(), strict=True))
    table = pq.read_table(path / "interest_hosts_model.parquet", columns=["receiver", "flow"])
    table = table.filter(pc.is_in(table["flow"], value_set=known["flow"].combine_chunks()))
    receivers, rows = np.unique(table["receiver"].to_numpy(), return_inverse=True)
    flows, columns = np.unique(table["flow"].to_numpy(), return_inverse=True)
    wants = np.zeros((len(receivers), len(flows)), bool)
    wants[rows, columns] = True
    rng = np.random.default_rng([seed, 9])
    chosen = np.sort(rng.permutation(len(receivers))[:users])
    kept = wants[chosen].sum(axis=0) >= LEAST_USERS
    wants = wants[np.ix_(chosen, kept)]
    time = _join_within_a_day(wants, rng)
    origin = (
        "**a model of hosts**, not real ones, over the real dependencies of Debian packages "
        "and their real popularity; frequencies: real uploads of three years."
    )
    rate = np.array([rate_of[name] for name in flows[kept]], np.float64)
    return Packages(wants, time, rate, origin)


def _join_within_a_day(wants: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Hosts join evenly over the year, each with all its packages within a day."""
    start = rng.random((len(wants), 1)) * (1.0 - 1.0 / DAYS)
    return start + rng.random(wants.shape) / DAYS


def _families(users: int, seed: int, least: int, *, families: int, popular: float) -> Packages:
    """Generated users who take popular packages and whole families of related packages."""
    rng = np.random.default_rng([seed, 9])
    topics = max(40, users // 2)
    odds = popular / (1.0 + np.arange(topics)) ** 0.8
    family = np.arange(topics) * (topics // 8) // topics
    mine = rng.integers(topics // 8, size=(users, families))
    at_home = (family == mine[:, :, None]).any(axis=1)
    wants = rng.random((users, topics)) < np.where(at_home, 0.7, odds)
    wants = wants[wants.sum(axis=1) >= least]
    wants = wants[:, wants.sum(axis=0) >= LEAST_USERS]
    rate = np.exp(rng.normal(np.log(1 / (120 * 86_400)), 1.0, size=wants.shape[1]))
    time = np.broadcast_to(rng.random((len(wants), 1)), wants.shape)
    origin = (
        "**a generated stand-in, not real data**: families of packages, popular ones on top, and "
        f"a release every four months or so. No data folder was named by {DATA}."
    )
    return Packages(wants, time, rate, origin)
