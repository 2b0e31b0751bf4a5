from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.dashboard.browser import MISSING
from tests.examples import THOROUGH
from tests.kernels import compile_kernels

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# No deadline: the first call of a kernel compiles it. A failure prints how to see it again.
settings.register_profile("distributary", deadline=None, max_examples=50, print_blob=True)
settings.register_profile(THOROUGH, settings.get_profile("distributary"))
settings.load_profile("distributary")

SPARK = "tests/pipeline/"
LONGEST = (SPARK, "tests/system/soak/")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile before the workers start, which would otherwise all compile the same."""
    if session.config.getoption("numprocesses", None):
        compile_kernels()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes the longest: Spark, whose tests two workers share, and the soak."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where nobody can miss it, that the pages were not tested."""
    if any(MISSING in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(MISSING, yellow=True, bold=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    from xdist.scheduler import LoadFileScheduling

    class TwoSparks(LoadFileScheduling):
        """A file is one worker's, and so is each half of the files that need a Spark session."""

        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if not nodeid.startswith(SPARK):
                return file
            return f"{SPARK}{zlib.crc32(file.encode()) % 2}"

    return TwoSparks(config, log)
