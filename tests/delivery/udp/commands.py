"""`python -m tests.delivery.udp.commands publish ...`: the command line, with these commands."""

from __future__ import annotations

from distributary.cli import calibrate, publish, receive
from distributary.cli.app import app, main

if __name__ == "__main__":
    known = {command.name for command in app.registered_commands}
    for name, command in (
        ("publish", publish.publish),
        ("receive", receive.receive),
        ("calibrate", calibrate.calibrate),
    ):
        if name not in known:
            app.command(name)(command)
    main()
