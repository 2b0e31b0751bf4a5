"""The address plan: where the groups of a plan, and the control group, are on the network.

`publish` and `receive` send and join there, and `export` writes it down for other middleware.

A switch filters by Ethernet address, which holds only the low 23 bits of an IPv4 group's address
(RFC 1112, section 6.4): 32 groups share one Ethernet address, and joining one of them lets in all.
Hence:

- No two addresses of one plan agree in those bits. Blocks are at most a /10, so they cannot.
- None has the Ethernet address of a group in 224.0.0.0/24, which switches flood to every port (RFC
  4541, section 2.1.2).
- Addresses stay inside the block of their base: the scopes of RFC 2365 in 239/8; a /24 in 224/8,
  233/8 and 234/8, as assigned there; a /16 elsewhere.
- Groups have odd addresses. Aeron accepts no others, since it sends control messages to the next
  address. The control group has the even address just before that of group 0.
- With pairs, line A stays in the half of the block that its base lies in, and line B has the same
  address in the other half. Each line has one prefix, so it can be routed over its own network.

IPv6 groups map by their low 32 bits (RFC 2464, section 7). A block is the base's /104; group ids
below 40000 (hex), where the well-known groups are, and those of solicited-node groups are excluded.

Addresses depend only on the group's number and the base: a plan with more groups keeps the
addresses of the earlier ones, and asking for pairs leaves line A unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain, islice

from distributary.delivery.routes import CONTROL_GROUP, group_number
from distributary.errors import InputError
from distributary.model import Plan

__all__ = ["DEFAULT_BASE", "DEFAULT_PORT", "GroupAddress", "GroupAddresses"]

DEFAULT_BASE = "239.192.77.0"  # in the organisation-local scope of RFC 2365
DEFAULT_PORT = 7_702  # below the ports that systems hand out to anybody

_SCOPES = tuple(
    IPv4Network(scope)
    for scope in ("239.0.0.0/10", "239.64.0.0/10", "239.128.0.0/10", "239.192.0.0/14")
)
_ASSIGNED_BY_24 = (224, 233, 234)
_REFUSED = (
    (IPv4Network("224.0.0.0/24"), "routers do not forward it and switches flood it"),
    (IPv4Network("224.0.1.0/24"), "its addresses are assigned one by one, to NTP, PTP and others"),
    (IPv4Network("232.0.0.0/8"), "it is for source-specific multicast, and a plan has no sources"),
)
_SITE_OR_WIDER = range(3, 15)
_FLOODED, _WELL_KNOWN_V6, _SOLICITED_NODE = 256, 0x40000, 0xFF000000


@dataclass(frozen=True, slots=True)
class GroupAddress:
    """The destination of one line of a group: its IP address and the resulting Ethernet address."""

    group: int
    line: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True)
class _Block:
    """The addresses that a plan may use, as numbers from `first`; `size` is a power of two.

    A block is small enough that well-known groups can share Ethernet addresses only with its first
    addresses. This many, `reserved`, are skipped at the start of both halves.
    """

    first: int
    size: int
    reserved: int
    version: int

    def free(self, start: int, pairs: bool) -> list[range]:
        """The odd addresses from `start` to the end of its half (with pairs) or of the block."""
        half = self.size // 2
        begin = start - (start - self.first) % half
        begins = [begin] if pairs else range(begin, self.first + self.size, half)
        return [range(max(start, b + self.reserved) | 1, b + half, 2) for b in begins]

    def twin(self, address: int) -> int:
        """The address at the same position in the other half of the block."""
        return address ^ (self.size // 2)


@dataclass(frozen=True)
class GroupAddresses:
    """The addresses of groups from `base` upwards, and the port of all of them.

    With `pairs` each group has two lines, A and B; `publish` and `receive` use line A.
    Raises `ValueError` for a base or a port that groups cannot have.
    """

    base: str = DEFAULT_BASE
    port: int = DEFAULT_PORT
    pairs: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise ValueError(f"a port is a number from 1 to 65535, not {self.port}")
        _ = self._block  # raises for a base that groups cannot have

    @property
    def lines(self) -> tuple[str, ...]:
        """The names of the lines on which each group is sent."""
        return ("A", "B") if self.pairs else ("A",)

    @property
    def is_v6(self) -> bool:
        """Whether these are IPv6 addresses."""
        return self._block.version == 6

    @property
    def control(self) -> str:
        """The control group's address, on line A."""
        if not self._free:
            raise self._too_small(1)
        return _format_address(self._free[0][0] - 1, self._block.version)

    def of(self, group: str) -> str:
        """The address of a group by its name in actions, on line A."""
        if group == CONTROL_GROUP:
            return self.control
        place = number = group_number(group)
        for part in self._free:
            if place < len(part):
                return _format_address(part[place], self._block.version)
            place -= len(part)
        raise self._too_small(number + 1)

    def assign(self, n_groups: int) -> tuple[GroupAddress, ...]:
        """An address for each of so many groups and each of its lines, ordered by group.

        Raises `InputError` if the block has too few addresses from the base on.
        """
        if n_groups < 1:
            raise ValueError(f"a plan has at least one group, not {n_groups}")
        self._check_room(n_groups)
        block = self._block
        return tuple(
            _group_address(group, line, number, block.version)
            for group, address in enumerate(islice(chain(*self._free), n_groups))
            for line, number in zip(self.lines, (address, block.twin(address)), strict=False)
        )

    def check_room(self, plan: Plan) -> None:
        """Raise `InputError` unless all groups of a plan have addresses."""
        self._check_room(plan.n_groups)

    @cached_property
    def _block(self) -> _Block:
        return _find_block(_parse_base(self.base))

    @cached_property
    def _free(self) -> list[range]:
        """The addresses for groups, in order, as ranges that are not empty."""
        free = self._block.free(int(ip_address(self.base)), self.pairs)
        return [part for part in free if part]

    def _check_room(self, n_groups: int) -> None:
        if n_groups > sum(map(len, self._free)):
            raise self._too_small(n_groups)

    def _too_small(self, n_groups: int) -> InputError:
        block, room = self._block, sum(map(len, self._free))
        network_of = IPv4Network if block.version == 4 else IPv6Network
        bits = (32 if block.version == 4 else 128) - block.size.bit_length() + 1
        what = "pairs of addresses" if self.pairs else "addresses"
        return InputError(
            f"the plan has {n_groups:,} groups, but {network_of((block.first, bits))} has only "
            f"{room:,} {what} from {self.base} on",
            value=self.base,
            remedy="name a lower base, or one in a larger block such as 239.0.0.0",
        )


def _parse_base(base: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(base)
    except ValueError:
        raise ValueError(f"{base!r} is not an IP address") from None
    if not address.is_multicast:
        raise ValueError(f"{base} is not a multicast address; they begin at 224.0.0.0 or ff00::")
    return address


def _find_block(base: IPv4Address | IPv6Address) -> _Block:
    if isinstance(base, IPv6Address):
        return _find_block_v6(base)
    for network, reason in _REFUSED:
        if base in network:
            raise ValueError(f"groups cannot be in {network}: {reason}; try {DEFAULT_BASE}")
    bits = 24 if base.packed[0] in _ASSIGNED_BY_24 else 16
    narrowest = IPv4Network((int(base) >> (32 - bits) << (32 - bits), bits))
    network = next((scope for scope in _SCOPES if base in scope), narrowest)
    first = int(network.network_address)
    return _Block(first, network.num_addresses, 0 if first & 0x7FFFFF else _FLOODED, 4)


def _find_block_v6(base: IPv6Address) -> _Block:
    flags, scope = divmod(base.packed[1], 16)
    if base.scope_id or scope not in _SITE_OR_WIDER:
        raise ValueError(f"{base} is link-local; use a wider scope, such as ff15::8000:0")
    if flags & 3 == 3 and base.packed[2:4] == b"\0\0":
        raise ValueError(f"{base} is for source-specific multicast, and a plan has no sources")
    network = IPv6Network((base, 104), strict=False)
    first = int(network.network_address)
    if first & _SOLICITED_NODE == _SOLICITED_NODE:
        raise ValueError(f"{network} looks like neighbour discovery to a switch; use another block")
    return _Block(first, network.num_addresses, 0 if first & 0xFFFFFFFF else _WELL_KNOWN_V6, 6)


def _group_address(group: int, line: str, number: int, version: int) -> GroupAddress:
    mac = 0x01005E000000 | number & 0x7FFFFF
    if version == 6:
        mac = 0x333300000000 | number & 0xFFFFFFFF
    return GroupAddress(group, line, _format_address(number, version), _format_mac(mac))


def _format_address(number: int, version: int) -> str:
    return str(IPv4Address(number) if version == 4 else IPv6Address(number))


def _format_mac(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")
