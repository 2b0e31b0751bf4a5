"""Machines in real time: tasks, and locks on the folders where state is kept."""

from distributary.machines.real.folder_lock import take_lock
from distributary.machines.real.tasks import own_tasks

__all__ = ["own_tasks", "take_lock"]
