"""The command line: parse, call the library, render."""

from distributary.cli.app import main

__all__ = ["main"]
