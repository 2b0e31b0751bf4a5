"""Network settings of an export, which the operator decides and not the planner."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Interface, ip_address, ip_interface

from distributary.delivery.addresses import GroupAddresses

__all__ = ["Network"]


@dataclass(frozen=True)
class Network(GroupAddresses):
    """The addresses that `publish` and `receive` use, and the interfaces of the lines.

    `interfaces` has one address or prefix, such as 10.1.0.0/16, for each line, or is empty.
    """

    interfaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.interfaces) not in (0, len(self.lines)):
            raise ValueError(
                f"{len(self.interfaces)} interfaces for {len(self.lines)} lines; give one for each"
            )
        for interface in self.interfaces:
            if ip_interface(interface).version != ip_address(self.base).version:
                raise ValueError(
                    f"interface {interface} and base {self.base} are of different IP versions"
                )

    def interface(self, line: str) -> str | None:
        """The interface of a line in Aeron's notation, IPv6 in brackets."""
        if not self.interfaces:
            return None
        interface = ip_interface(self.interfaces[self.lines.index(line)])
        if isinstance(interface, IPv6Interface):
            return f"[{interface.ip}]/{interface.network.prefixlen}"
        return str(interface)
