from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for a whole module: Hypothesis writes the same files there over and over."""
    return tmp_path_factory.mktemp("files")
