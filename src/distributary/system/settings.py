"""What a system on one machine is to be like, and where its folder has what."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zlib import crc32

from distributary.workloads import ShiftingFloor

__all__ = ["LOCK", "SystemSettings"]

LOCK = "up.lock"
_PORTS = range(20_000, 30_000)


@dataclass(frozen=True, slots=True)
class SystemSettings:
    """`floor` is the trading floor that is simulated, if one is; `program` is this program."""

    folder: Path
    groups: int = 8
    sessions: int = 32
    approve: Literal["auto", "manual"] = "auto"
    spark: Literal["embedded", "external", "off"] = "embedded"
    port: int = 8_088  # of the dashboard; 0: a free one
    floor: ShiftingFloor | None = None
    seed: int = 0
    program: Sequence[str] = (sys.executable, "-m", "distributary")

    @property
    def state(self) -> Path:
        """The folder of the control plane, which members name to find it."""
        return self.folder / "state"

    @property
    def logs(self) -> Path:
        """What each part says."""
        return self.folder / "logs"

    @property
    def multicast_port(self) -> int:
        """The UDP port of all groups: another system on this machine has another."""
        return _PORTS[crc32(str(self.folder.absolute()).encode()) % len(_PORTS)]

    @property
    def token_file(self) -> Path:
        """The token with which an operator may act on the pages."""
        return self.folder / "operator-token"
