"""Machines in real time: tasks, and the folders where state is kept."""

from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.store import Store
from distributary.machines.real.tasks import own_tasks

__all__ = ["Store", "own_tasks", "take_lock"]
