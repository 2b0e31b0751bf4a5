"""The papers' figures, reproduced: our numbers beside theirs."""

from distributary.papers.catalogue import FIGURES, Recipe, run_figure
from distributary.papers.figure import Claim, Figure, write_figure
from distributary.papers.index import write_index

__all__ = [
    "FIGURES",
    "Claim",
    "Figure",
    "Recipe",
    "run_figure",
    "write_figure",
    "write_index",
]
