"""What the documentation shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROMISED = re.findall(r"It prints `([^`]+)`", README)


@pytest.mark.parametrize(("example", "promised"), [*zip(EXAMPLES, PROMISED, strict=True)])
def test_a_python_example_prints_what_the_text_says(example: str, promised: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == promised


def test_every_link_to_a_file_leads_somewhere() -> None:
    pages = (
        ROOT / "README.md",
        ROOT / "examples/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
