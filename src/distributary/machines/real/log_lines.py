"""What a service says about its work: a line for people, or one JSON object for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

__all__ = ["Log", "LogLevel", "LogLine", "log_nothing"]

LogLevel = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """Something that happened.

    `what` is the same for the same kind of event, `says` a sentence about it, or empty. `facts`
    are its values, as JSON has them.
    """

    level: LogLevel
    what: str
    says: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_text(self) -> str:
        """The line for people."""
        text = f"{self.what}: {self.says}" if self.says else self.what
        return text if self.level == "info" else f"{self.level}: {text}"

    def as_json(self, now: float) -> str:
        """The line for programs, at a time in seconds since 1970."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
            "level": self.level,
            "what": self.what,
        }
        if self.says:
            document["says"] = self.says
        return json.dumps({**document, **self.facts}, ensure_ascii=False, default=str)


Log = Callable[[LogLine], None]


def log_nothing(line: LogLine) -> None:
    """Drop a line."""
