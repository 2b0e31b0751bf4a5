"""Machines in real time: drivers with timers and tasks, and locks on folders of state."""

from distributary.machines.real.direct import DirectDriver
from distributary.machines.real.driver import Driver
from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.tasks import owned_tasks
from distributary.machines.real.timers import Timers

__all__ = ["DirectDriver", "Driver", "Timers", "owned_tasks", "take_lock"]
