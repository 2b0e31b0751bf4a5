"""State machines without I/O: they take an input and the time, and return actions."""

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
