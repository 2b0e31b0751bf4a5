"""Run machines in real time: drivers with timers and tasks, and a durable store."""

from distributary.machines.real.direct import DirectDriver
from distributary.machines.real.driver import Driver
from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.store import Store
from distributary.machines.real.tasks import own_tasks
from distributary.machines.real.timers import Timers

__all__ = ["DirectDriver", "Driver", "Store", "Timers", "own_tasks", "take_lock"]
