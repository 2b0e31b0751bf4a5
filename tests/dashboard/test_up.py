"""Every page over a whole running system, which plans on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distributary.dashboard.pages import PAGES
from tests.dashboard.browser import MISSING, find_chromium
from tests.dashboard.pictures import EXTRA, LOOKS
from tests.delivery.udp.namespace import ROOT, in_namespace, why_no_namespace

WITHIN = 1_200.0  # seconds after which it has failed: never how long it should take


@pytest.mark.slow
def test_every_page_of_a_running_system_has_live_data_and_orders_take_effect(
    tmp_path: Path,
) -> None:
    if find_chromium() is None:
        pytest.skip(MISSING)
    reason = why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.dashboard.up_scenario", str(tmp_path)]
    ran = subprocess.run(
        in_namespace(command), cwd=ROOT, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    taken = {path.name for path in (tmp_path / "pictures").glob("*.png")}
    names = (*(page.key for page in PAGES), *EXTRA)
    assert taken == {f"{name}-{look}.png" for name in names for look in LOOKS}
