"""The reproducible figures by name, and how to run one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from distributary.papers import adler, banavar, chen, milo, tock
from distributary.papers.figure import DEFAULT_SEED, Figure
from distributary.planning import Progress, silent

__all__ = ["FIGURES", "Recipe", "run_figure"]


class RunFigure(Protocol):
    """Measures, draws and describes one figure."""

    def __call__(self, *, quick: bool, seed: int, progress: Progress) -> Figure: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """A reproducible figure: its name, a one-line summary, and the function that runs it."""

    name: str
    summary: str
    run: RunFigure


_ALL = (
    Recipe("adler-fig2", "seven algorithms against the optimum, on small instances", adler.fig2),
    Recipe("adler-fig3", "overhead against the number of groups, in four settings", adler.fig3),
    Recipe("adler-fig4", "cost as flows, users and groups grow together", adler.fig4),
    Recipe("banavar-steps", "steps of link matching against one centralised match", banavar.steps),
    Recipe("banavar-load", "the publish rate that overloads a network of brokers", banavar.load),
    Recipe("banavar-queues", "the busiest broker's queue around overload", banavar.queues),
    Recipe("chen-fig1", "queues after unsubscriptions under active covering", chen.fig1),
    Recipe("chen-fig7", "six covering policies after unsubscriptions", chen.fig7),
    Recipe("chen-fig8", "more and more unsubscriptions", chen.fig8),
    Recipe("chen-fig9", "roots that cover more and more", chen.fig9),
    Recipe("chen-fig10", "subscriptions that cover one another are neighbours", chen.fig10),
    Recipe("chen-fig12", "monitors and subscribers that move", chen.fig12),
    Recipe("milo-table2", "clusters of a growing system against plain Scribe", milo.table2),
    Recipe("milo-table3", "clusters after all interests have changed", milo.table3),
    Recipe("milo-fig5", "cost while users come, for three models of events", milo.fig5),
    Recipe("milo-fig6", "cost while users come within two weeks or one day", milo.fig6),
    Recipe("milo-fig7", "cost where interests have no clusters", milo.fig7),
    Recipe("milo-fig8", "cost while interests shift", milo.fig8),
    Recipe("milo-fig9", "updates of packages, three maintenance intervals", milo.fig9),
    Recipe("tock-fig4", "who follows what on a trading floor, and how fast it ticks", tock.fig4),
    Recipe("tock-fig5", "what the two filters cost a receiver, measured here", tock.fig5),
    Recipe("tock-fig6", "what more sessions save, and what more groups save", tock.fig6),
    Recipe("tock-fig7", "SF, GF, IT and RRA against one another", tock.fig7),
    Recipe("tock-unicast-flooding", "unicast and flooding on many floors", tock.unicast_flooding),
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
    return FIGURES[name].run(quick=quick, seed=seed, progress=progress)
