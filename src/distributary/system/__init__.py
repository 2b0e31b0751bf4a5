"""A whole system on one machine: its parts as processes, and a trading floor to watch it by."""

from distributary.extras import require

require("dashboard")  # before the imports that need it

from distributary.system.errors import PartFailedError
from distributary.system.running import RunningSystem, run_system
from distributary.system.settings import LOCK, SystemSettings

__all__ = ["LOCK", "PartFailedError", "RunningSystem", "SystemSettings", "run_system"]
