"""What every protocol stands on: machines without I/O, which take an input and the time and act."""

from distributary.machines.actions import (
    Action,
    Append,
    Deliver,
    Machine,
    Save,
    Send,
    SetTimer,
    Work,
)

__all__ = ["Action", "Append", "Deliver", "Machine", "Save", "Send", "SetTimer", "Work"]
