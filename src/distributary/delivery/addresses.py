"""Where groups are on the network: the control group at the base, group N behind it.

The control group has the base address itself and group N of a plan the address base + 1 + N, all
at one port. So both ends need the base and the port, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

from distributary.delivery import CONTROL_GROUP
from distributary.delivery.errors import NetworkError
from distributary.model import Plan

__all__ = ["DEFAULT_BASE", "DEFAULT_PORT", "GroupAddresses"]

DEFAULT_BASE = "239.192.77.0"  # in the organisation-local scope of RFC 2365
DEFAULT_PORT = 7_702
_LOCAL_CONTROL = IPv4Network("224.0.0.0/24")
_REMEDY = "use one such as 239.192.77.0 or ff15::7700:0"


@dataclass(frozen=True)
class GroupAddresses:
    """The addresses of groups, from the base on."""

    base: str = DEFAULT_BASE
    port: int = DEFAULT_PORT

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise ValueError(f"a port is a number from 1 to 65535, not {self.port}")
        first = self.first
        if not first.is_multicast:
            raise NetworkError(self.base, "is not a multicast address", _REMEDY)
        if isinstance(first, IPv4Address) and first in _LOCAL_CONTROL:
            raise NetworkError(
                self.base, "lies in 224.0.0.0/24, which is for routing protocols", _REMEDY
            )

    @cached_property
    def first(self) -> IPv4Address | IPv6Address:
        """The control group's address."""
        try:
            return ip_address(self.base)
        except ValueError:
            raise NetworkError(self.base, "is not an IP address", _REMEDY) from None

    @property
    def is_v6(self) -> bool:
        """Whether these are IPv6 addresses."""
        return self.first.version == 6

    def of(self, group: str) -> str:
        """The address of a group by its name in actions."""
        number = 0 if group == CONTROL_GROUP else 1 + int(group.removeprefix("group "))
        return str(self.first + number)

    def check_room(self, plan: Plan) -> None:
        """See that all groups of a plan have multicast addresses."""
        groups = int(plan.session_group.max()) + 1
        try:
            last = self.first + groups
        except ValueError:
            last = None
        if last is None or not last.is_multicast:
            raise NetworkError(
                self.base,
                f"has no room for {groups:,} groups behind it",
                "choose a lower base address",
            )
