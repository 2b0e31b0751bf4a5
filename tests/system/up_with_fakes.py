"""`python -m tests.system.up_with_fakes FOLDER|- [DESKS]`: `up` with processes that only pretend.

With - it runs in a temporary folder, as `up` does without --out.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from distributary.cli import app, up
from distributary.system import SystemSettings
from distributary.workloads import ShiftingFloor

FAKE = (sys.executable, "-IS", str(Path(__file__).with_name("fake_program.py")))


def make_settings(folder: Path, desks: int = 0, port: int = 0) -> SystemSettings:
    floor = ShiftingFloor(desks=desks, leaves=0.0) if desks else None
    return SystemSettings(folder, port=port, floor=floor, program=FAKE)


def main() -> None:
    folder, desks = sys.argv[1], int(sys.argv[2])
    with up.find_folder(None) if folder == "-" else nullcontext(Path(folder)) as found:
        up.run_settings(make_settings(found, desks), as_document=True)


if __name__ == "__main__":
    app.app = main  # type: ignore[assignment]
    app.main()
