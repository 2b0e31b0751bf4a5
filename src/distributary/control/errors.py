"""Errors of the control plane.

    DistributaryError
    └── LiveError
        ├── ControlAwayError       no control service answers
        ├── ControlRefusedError    the control service did not do what it was asked for
        ├── ControlDeniedError     the server does not let these credentials do it
        ├── ControlReplacedError   another control service has taken over
        ├── KeptSettingsError      what operators set before does not go with what is given now
        ├── MemberNameTakenError   another publisher or receiver has the name
        ├── NoJetStreamError       the server cannot keep what a control plane must keep
        ├── PlanGoneError          a plan is not in the store, or damaged
        ├── ControlLostError       a member goes on without its control plane
        ├── CountsLostError        a publisher ended before its counts were stored
        ├── RecordTooLargeError    a member has too many flows for one message to the server
        └── SettingsTooLargeError  pins and limits take more than one message to the server

Those of the server itself are in `machines.nats.errors`. Each message says what happened, with
which value, and what to do next.
"""

from __future__ import annotations

from distributary.errors import LiveError
from distributary.machines.nats.errors import (
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
    hide_secrets,
)

__all__ = [
    "ControlAwayError",
    "ControlDeniedError",
    "ControlLostError",
    "ControlRefusedError",
    "ControlReplacedError",
    "CountsLostError",
    "KeptSettingsError",
    "MemberNameTakenError",
    "NoJetStreamError",
    "PlanGoneError",
    "RecordTooLargeError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "SettingsTooLargeError",
]


class ControlAwayError(LiveError):
    """No control service answers under `prefix`."""

    def __init__(self, prefix: str, waited: float) -> None:
        self.prefix = prefix
        self.waited = waited
        super().__init__(
            f"no control service answered under {prefix!r} within {waited:g} s; "
            "start one with `distributary control serve`"
        )


class ControlRefusedError(LiveError):
    """The control service did not do it; `says` has the reason."""

    def __init__(self, says: str) -> None:
        self.says = says
        super().__init__(says)


class ControlDeniedError(LiveError):
    """The server does not let these credentials do `what`."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the NATS server does not let these credentials {what}; use others, or add what "
            "`distributary control permissions` prints to the server"
        )


class ControlReplacedError(LiveError):
    """Another service has taken over `prefix` while this one was disconnected or asleep."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        super().__init__(
            f"another control service took over {prefix!r} while this one was disconnected; this "
            "one changes nothing any more"
        )


class KeptSettingsError(LiveError):
    """Pins or limits that operators set earlier do not go with the settings given now."""

    def __init__(self, prefix: str, reason: str) -> None:
        self.prefix = prefix
        self.reason = reason
        super().__init__(
            f"{prefix!r} keeps what operators have set, but {reason}; start with as many groups as "
            "before, then change pins and limits by `distributary control`"
        )


class MemberNameTakenError(LiveError):
    """Another `role` answers under `name`; `where` is its process and host, if known."""

    def __init__(self, role: str, name: str, where: str = "") -> None:
        self.role = role
        self.name = name
        self.where = where
        holder = f" ({where})" if where else ""
        super().__init__(
            f"the name {name!r} is taken by another {role}{holder}; stop that one, or choose "
            "another name"
        )


class NoJetStreamError(LiveError):
    """The server at `url` has no JetStream for these credentials."""

    def __init__(self, url: str) -> None:
        self.url = hide_secrets(url)
        super().__init__(
            f"{self.url}: the NATS server has no JetStream for these credentials, in which a "
            "control plane keeps interest and plans; enable it, or omit --nats for the embedded "
            "server"
        )


class PlanGoneError(LiveError):
    """The plan `name` is not in the store, or cannot be read."""

    def __init__(self, name: str, reason: str = "it is not in the store") -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"the plan {name!r} cannot be read: {reason}; the next version replaces it"
        )


class ControlLostError(LiveError):
    """A member has no connection to its control plane at `url` any more, and goes on without it."""

    def __init__(self, url: str, reason: str = "") -> None:
        self.url = hide_secrets(url)
        self.reason = reason
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"{self.url}: the control plane is away{why}; this member goes on by the plan that it "
            "has, and keeps its counts"
        )


class CountsLostError(LiveError):
    """A member ended while its control plane was away, with `messages` that no report has."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        super().__init__(
            f"{messages:,} messages are in no report, since the control plane was away at the end"
        )


class RecordTooLargeError(LiveError):
    """The record of the member `name` is larger than a message to the server may be."""

    def __init__(self, name: str, flows: int, size: int, most: int) -> None:
        self.name = name
        self.flows = flows
        super().__init__(
            f"the {flows:,} flows of {name!r} take {size:,} bytes, and the NATS server allows "
            f"{most:,}; raise its max_payload"
        )


class SettingsTooLargeError(LiveError):
    """The settings under `prefix`, with all pins, take more than a message to the server may."""

    def __init__(self, prefix: str, size: int, most: int) -> None:
        self.prefix = prefix
        super().__init__(
            f"the settings of {prefix!r} with its pins and limits take {size:,} bytes, and the "
            f"NATS server allows {most:,}; raise its max_payload, or pin fewer flows"
        )
