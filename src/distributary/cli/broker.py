"""`distributary broker`: run, use and simulate networks of content brokers."""

from __future__ import annotations

import typer

from distributary.cli.broker_simulate import simulate

__all__ = ["app"]

app = typer.Typer(help="Run, use and simulate networks of content brokers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run, use and simulate networks of content brokers."""


for _command in (simulate,):
    app.command(_command.__name__)(_command)
