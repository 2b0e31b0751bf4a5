"""What a page must have for everybody, found out in the browser: names, order, contrast, width."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["LEAST_CONTRAST", "list_faults"]

LEAST_CONTRAST = 4.5

_SCRIPT = (Path(__file__).parent / "inspection.js").read_text()


def list_faults(page: Page) -> list[str]:
    """What is wrong with a page, in sentences."""
    found: list[str] = page.evaluate(_SCRIPT, LEAST_CONTRAST)
    return found
