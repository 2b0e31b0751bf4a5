"""`distributary paper`: reproduce the papers' figures, ours beside theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from distributary.cli.console import results, show_progress
from distributary.cli.options import OUTPUT, option, seed_option
from distributary.papers import FIGURES, run_figure, write_figure, write_index
from distributary.planning import Progress

__all__ = ["app"]

RUN = "Run"

app = typer.Typer(no_args_is_help=True, help="Reproduce figures of the papers.")


@app.command("list")
def list_figures() -> None:
    """List the figures that can be reproduced."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, figure in FIGURES.items():
        table.add_row(name, figure.summary)
    results.print(table)


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(help="Name of a figure (see `paper list`), or all.")],
    quick: Annotated[bool, option("Run fewer instances, for a first look.", RUN)] = False,
    out: Annotated[Path, option("Folder for the CSV, SVG and Markdown files.", OUTPUT)] = Path(
        "papers"
    ),
    seed: Annotated[int, seed_option(RUN)] = 0,
) -> None:
    """Reproduce a figure: write its table, its chart and a comparison with the paper.

    README.md in the same folder becomes the index of all figures there.
    """
    if name not in ("all", *FIGURES):
        raise typer.BadParameter(f"no figure is called {name!r}; choose from {', '.join(FIGURES)}")
    figures = list(FIGURES) if name == "all" else [name]
    for number, chosen in enumerate(figures, 1):
        place = f"{chosen}, {number} of {len(figures)}: " if len(figures) > 1 else ""
        with show_progress() as progress:
            figure = run_figure(chosen, quick=quick, seed=seed, progress=_begin(place, progress))
        write_figure(figure, out)
        results.print(figure.text, markup=False)
        results.print(f"written: {out / chosen}.csv, .svg and .md\n", markup=False)
        write_index(out)


def _begin(words: str, progress: Progress) -> Progress:
    """Report each step with some words before its stage."""
    return lambda step: progress(replace(step, stage=f"{words}{step.stage}"))
