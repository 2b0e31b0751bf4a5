"""Network settings of an export, which the operator decides and not the planner."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Interface, ip_address, ip_interface

from distributary.export.addresses import (
    DEFAULT_BASE,
    GroupAddress,
    assign_addresses,
    check_base,
)

__all__ = ["DEFAULT_PORT", "Network"]

DEFAULT_PORT = 40_000


@dataclass(frozen=True, slots=True)
class Network:
    """The first address, the port of all groups, and whether each group has two lines.

    `interfaces` has one address or prefix, such as 10.1.0.0/16, for each line, or is empty.
    """

    base: str = DEFAULT_BASE
    port: int = DEFAULT_PORT
    pairs: bool = False
    interfaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_base(self.base)
        if not 0 < self.port < 65536:
            raise ValueError(f"a port is a number from 1 to 65535, not {self.port}")
        if len(self.interfaces) not in (0, len(self.lines)):
            raise ValueError(
                f"{len(self.interfaces)} interfaces for {len(self.lines)} lines; give one for each"
            )
        for interface in self.interfaces:
            if ip_interface(interface).version != ip_address(self.base).version:
                raise ValueError(
                    f"interface {interface} and base {self.base} are of different IP versions"
                )

    @property
    def lines(self) -> tuple[str, ...]:
        """The names of the lines on which each group is sent."""
        return ("A", "B") if self.pairs else ("A",)

    def addresses(self, n_groups: int) -> tuple[GroupAddress, ...]:
        """One address per group and line, ordered by group."""
        return assign_addresses(n_groups, self.base, pairs=self.pairs)

    def interface(self, line: str) -> str | None:
        """The interface of a line in Aeron's notation, IPv6 in brackets."""
        if not self.interfaces:
            return None
        interface = ip_interface(self.interfaces[self.lines.index(line)])
        if isinstance(interface, IPv6Interface):
            return f"[{interface.ip}]/{interface.network.prefixlen}"
        return str(interface)
