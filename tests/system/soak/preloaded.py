"""What members of a soak are forked from: everything is imported, and compiled code is loaded.

The fork of a process with several threads may hang, so there must be one only.
"""

from __future__ import annotations

import ctypes
import os
import signal

import numpy as np

import tests.system.soak.members
from distributary.delivery import ReceiverMachine

__all__ = ["members"]

_PR_SET_PDEATHSIG = 1

members = tests.system.soak.members
ReceiverMachine("nobody", (), rng=np.random.default_rng(0)).prepare()
assert len(os.listdir("/proc/self/task")) == 1
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
