"""`distributary limits`: what known networks allow."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from distributary.cli.console import print_json, results
from distributary.cli.constraints import check_profile
from distributary.cli.options import Json
from distributary.files import limits_document, list_profiles, read_limits, read_profile

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="List and show what known networks allow.")


@app.command("list")
def list_all(as_document: Json = False) -> None:
    """List the profiles that `--limits` takes by name."""
    profiles = list_profiles()
    if as_document:
        print_json({"profiles": profiles})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, summary in profiles.items():
        table.add_row(name, summary)
    results.print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of a profile (see `limits list`).")],
    as_document: Json = False,
) -> None:
    """Print a profile as TOML, to save, change and use with `--limits`."""
    check_profile(name)
    if as_document:
        print_json({"name": name, "limits": limits_document(read_limits(name))})
    else:
        results.out(read_profile(name), end="", highlight=False)
