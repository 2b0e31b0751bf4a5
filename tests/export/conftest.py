from __future__ import annotations

from tests.cli.conftest import cli, inputs

__all__ = ["cli", "inputs"]
