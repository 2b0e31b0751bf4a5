from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser import MISSING, find_chromium, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; without one, the tests of the module are skipped, loudly."""
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Playwright's own event loop
        with open_browser(program) as found:
            yield found
