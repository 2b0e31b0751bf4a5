"""The command line: parse, call the library, render."""

from distributary.cli.start import main

__all__ = ["main"]
