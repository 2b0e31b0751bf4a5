"""Settings of the command line, and those that operators have changed since."""

from __future__ import annotations

import msgspec

from distributary.control.settings import ControlSettings

__all__ = ["compare_settings", "keep_choices"]

# What operators change while a control plane runs: from then on the command line does not count.
_CHOICES = {"mode": "--approve", "limits": "--limits", "pins": "--pins"}
_COMMANDS = {
    "mode": "control mode",
    "limits": "control limits",
    "pins": "control pin and control unpin",
}


def keep_choices(given: ControlSettings, kept: ControlSettings | None) -> ControlSettings:
    """The settings to serve with: as given, but with what operators have chosen before."""
    if kept is None:
        return given
    return msgspec.structs.replace(given, **{name: getattr(kept, name) for name in _CHOICES})


def compare_settings(given: ControlSettings, kept: ControlSettings | None) -> list[str]:
    """What of the given settings does not count, in words."""
    if kept is None:
        return []
    return [
        f"{option} does not count any more: this control plane keeps what `{_COMMANDS[name]}` set"
        for name, option in _CHOICES.items()
        if getattr(given, name) != getattr(kept, name)
    ]
