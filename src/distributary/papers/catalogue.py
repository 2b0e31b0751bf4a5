"""The reproducible figures by name, and how to run one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from distributary.papers.figure import DEFAULT_SEED, Figure
from distributary.planning import Progress, silent

__all__ = ["FIGURES", "Recipe", "run_figure"]


class RunFigure(Protocol):
    """Measures, draws and describes one figure."""

    def __call__(self, *, quick: bool, seed: int, progress: Progress) -> Figure: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """A reproducible figure: its name and a one-line summary.

    The name is that of the paper's package and of the function in it: `tock-fig4` is `tock.fig4`.
    """

    name: str
    summary: str

    def load(self) -> RunFigure:
        """Import the function that runs the figure; some need more than the core's packages."""
        paper, _, figure = self.name.partition("-")
        package = import_module(f"distributary.papers.{paper}")
        run: RunFigure = getattr(package, figure.replace("-", "_"))
        return run


_ALL = (
    Recipe("adler-fig2", "seven algorithms against the optimum, on small instances"),
    Recipe("adler-fig3", "overhead against the number of groups, in four settings"),
    Recipe("adler-fig4", "cost as flows, users and groups grow together"),
    Recipe("adler-asymmetric", "many flows for few users, and few flows for many"),
    Recipe("adler-weights", "what receiving and sending cost, weighed differently"),
    Recipe("banavar-steps", "steps of link matching against one centralised match"),
    Recipe("banavar-load", "the publish rate that overloads a network of brokers"),
    Recipe("banavar-queues", "the busiest broker's queue around overload"),
    Recipe("banavar-drops", "what is lost where overloaded brokers drop messages"),
    Recipe("banavar-lateral", "lateral links in the network of brokers"),
    Recipe("banavar-batches", "changes of subscriptions, one by one and in batches"),
    Recipe("chen-fig1", "queues after unsubscriptions under active covering"),
    Recipe("chen-fig7", "six covering policies after unsubscriptions"),
    Recipe("chen-fig8", "more and more unsubscriptions"),
    Recipe("chen-fig9", "roots that cover more and more"),
    Recipe("chen-fig10", "subscriptions that cover one another are neighbours"),
    Recipe("chen-fig12", "monitors and subscribers that move"),
    Recipe("chen-readings", "how the paper was read, and what other readings give"),
    Recipe("milo-table2", "clusters of a growing system against plain Scribe"),
    Recipe("milo-table3", "clusters after all interests have changed"),
    Recipe("milo-fig5", "cost while users come, for three models of events"),
    Recipe("milo-fig6", "cost while users come within two weeks or one day"),
    Recipe("milo-fig7", "cost where interests have no clusters"),
    Recipe("milo-fig8", "cost while interests shift"),
    Recipe("milo-fig9", "updates of packages, three maintenance intervals"),
    Recipe("milo-overlay", "clusters of a growing system on the trees of an overlay"),
    Recipe("milo-scales", "fewer and more topics and users"),
    Recipe("tock-fig4", "who follows what on a trading floor, and how fast it ticks"),
    Recipe("tock-fig5", "what the two filters cost a receiver, measured here"),
    Recipe("tock-fig6", "what more sessions save, and what more groups save"),
    Recipe("tock-fig7", "SF, GF, IT and RRA against one another"),
    Recipe("tock-unicast-flooding", "unicast and flooding on many floors"),
    Recipe("tock-outliers", "what a little unicast saves beside multicast"),
)

FIGURES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _ALL}


def run_figure(
    name: str, *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """Run a figure, in full or quickly with few repetitions for a first look."""
    if name not in FIGURES:
        raise ValueError(f"no figure is called {name!r}; there are {', '.join(FIGURES)}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, not {seed}")
    return FIGURES[name].load()(quick=quick, seed=seed, progress=progress)
