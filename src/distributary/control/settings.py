"""How a control plane plans and decides."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ControlSettings", "NetworkSettings"]


class NetworkSettings(msgspec.Struct, frozen=True):
    """Where the groups of every plan are: all members use the same, and get it from here."""

    group_base: str = "239.192.77.0"
    port: int = 7_702
    pairs: bool = False
    source: str = ""
    ttl: int = 1


class ControlSettings(msgspec.Struct, frozen=True):
    """Times are in seconds, `drift` and `tolerance` shares.

    A version that was planned is judged `judge_after` seconds after it took over, by what receivers
    measured in `judge_over` seconds; it is rolled back if that is more than `tolerance` above what
    was predicted, and `slack` messages per second besides. Those that come meanwhile are judged
    together after it.
    """

    groups: int
    sessions: int
    mode: Literal["auto", "manual"] = "auto"
    drift: float = 0.1
    max_moves: int | None = None  # 2 % of the flows
    tolerance: float = 0.5
    slack: float = 5.0
    judge_after: float = 3.0
    judge_over: float = 10.0
    rate_window: float = 60.0
    trigger: float = 5.0  # of the stream
    place_after: float = 0.1  # interest that comes together is placed together
    gone_after: float = 5.0  # without a report a member counts as gone
    forget_after: float = 120.0  # then the interest of a receiver that is gone is dropped
    keep_versions: int = 20
    network: NetworkSettings = NetworkSettings()
    limits: str = ""  # the text of a limits file
    pins: dict[str, int] = {}
    prefix: str = "distributary"
