"""`distributary broker`: run, use and simulate networks of content brokers."""

from __future__ import annotations

import typer

from distributary.cli.broker_publish import publish
from distributary.cli.broker_serve import serve
from distributary.cli.broker_simulate import simulate
from distributary.cli.broker_status import status
from distributary.cli.broker_subscribe import subscribe

__all__ = ["app"]

app = typer.Typer(help="Run, use and simulate networks of content brokers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run, use and simulate networks of content brokers."""


for _command in (serve, publish, subscribe, status, simulate):
    app.command(_command.__name__)(_command)
