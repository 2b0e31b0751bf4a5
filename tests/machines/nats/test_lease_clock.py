"""The clock of a lease goes on while the machine sleeps, as other machines' clocks do."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLEPT = 100_000  # seconds, by which the clock of a namespace is ahead
CODE = """
import time
from distributary.machines.nats import KeptLease
lease = KeptLease(None, "b", RuntimeError)
print(lease._clock() - time.monotonic())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has namespaces of time")
def test_a_lease_counts_the_seconds_that_its_machine_slept() -> None:
    """In a namespace whose clock says that it slept for a day, as a laptop does."""
    words = ["unshare", "-rT", "--fork", "--boottime", str(SLEPT), sys.executable, "-c", CODE]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in ran.stderr:
        pytest.skip(f"no namespace of time here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) > SLEPT - 100
