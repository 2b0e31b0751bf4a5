"""`python -m tests.delivery.udp.commands publish ...`: the command line."""

from __future__ import annotations

from distributary.cli.app import main

if __name__ == "__main__":
    main()
