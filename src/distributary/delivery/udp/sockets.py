"""Opens sockets for groups and for unicast, with the same functions for IPv4 and IPv6."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from distributary.delivery.errors import NetworkError
from distributary.delivery.udp.datagrams import prepare_for_reader
from distributary.delivery.udp.network import NetworkOptions

__all__ = [
    "Interface",
    "can_share",
    "find_interface",
    "join",
    "leave",
    "open_group_socket",
    "open_own_socket",
    "packets_overrun",
]

LINUX = sys.platform == "linux"
_SIOCGIFADDR = 0x8915
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux: also get what others here have joined
_SO_MEMINFO, _DROPS = 55, 8
_SO_ATTACH_FILTER = 26
# Classic BPF: load a byte, and, jump if equal, return how much of the packet to keep.
_LOAD, _AND, _IF_EQUAL, _RETURN = 0x30, 0x54, 0x15, 0x06
_NETWORK_HEADER = 0xFFF0_0000  # where the IP header begins, to the filter of a socket


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface: its index (0: the system's choice), and this machine's address there."""

    index: int
    address: str


def find_interface(options: NetworkOptions) -> Interface:
    """The interface that the options name, by name or by address."""
    asked, v6 = options.interface, options.groups.is_v6
    anywhere = "::" if v6 else "0.0.0.0"
    if not asked:
        return Interface(0, anywhere)
    with suppress(ValueError):
        address = ip_address(asked)
        if v6 or address.version == 6:
            raise NetworkError(
                asked,
                f"is not enough to find an interface for {options.groups.base}",
                "give the interface's name",
            )
        return Interface(0, asked)
    try:
        index = socket.if_nametoindex(asked)
    except OSError:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise NetworkError(asked, "there is no such interface", f"there are {known}") from None
    return Interface(index, anywhere if v6 else _address_at(asked) or anywhere)


def _address_at(name: str) -> str | None:
    """The IPv4 address of an interface, if the system reports it."""
    if not LINUX:
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
        found = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(found[20:24])
    return None


def open_own_socket(options: NetworkOptions, interface: Interface) -> socket.socket:
    """Open the socket that a publisher or receiver sends through, and receives unicast at."""
    v6 = options.groups.is_v6
    opened = _open_datagram_socket(options)
    try:
        if v6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, options.ttl)
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
            if interface.index:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        else:
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, options.ttl)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            chosen = _ipv4_membership("0.0.0.0", interface)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, chosen)
        opened.bind((interface.address, options.own_port))
    except OSError as error:
        opened.close()
        raise _unusable(f"{interface.address} port {options.own_port}", error) from None
    return opened


def open_group_socket(
    options: NetworkOptions, interface: Interface, address: str | None = None
) -> socket.socket:
    """Open a socket that receives what is sent to the groups it joins; others may share the port.

    With an `address` it is for that group only. It receives no unicast packets: else anybody could
    impersonate the sender without sending to the group.
    """
    v6 = options.groups.is_v6
    opened = _open_datagram_socket(options)
    port = options.groups.port
    try:
        if address is None:
            _drop_unicast(opened)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not LINUX and hasattr(socket, "SO_REUSEPORT"):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if LINUX:
            with suppress(OSError):  # without it more packets arrive, which the filters drop
                if v6:
                    opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
                else:
                    opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        if v6:
            opened.bind((address or "::", port, 0, interface.index))
        else:
            opened.bind((address or "0.0.0.0", port))
    except OSError as error:
        opened.close()
        raise _unusable(f"port {port}", error) from None
    return opened


def can_share() -> bool:
    """Whether a socket for several groups receives nothing but their packets."""
    return LINUX


def _drop_unicast(opened: socket.socket) -> None:
    """Have the kernel drop unicast packets."""
    if opened.family == socket.AF_INET6:
        code = [(_LOAD, 0, 0, _NETWORK_HEADER + 24), (_IF_EQUAL, 0, 1, 0xFF)]
    else:
        code = [(_LOAD, 0, 0, _NETWORK_HEADER + 16), (_AND, 0, 0, 0xF0), (_IF_EQUAL, 0, 1, 0xE0)]
    code += [(_RETURN, 0, 0, 0xFFFF_FFFF), (_RETURN, 0, 0, 0)]  # all of the packet, or nothing
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    filter_program = struct.pack("@HP", len(code), ctypes.addressof(program))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_program)


def join(opened: socket.socket, address: str, interface: Interface) -> bool:
    """Join a group; returns False if the socket has joined as many as the system allows."""
    try:
        opened.setsockopt(*_membership(address, interface, join=True))
    except OSError as error:
        if error.errno in (errno.ENOBUFS, errno.ENOMEM):
            return False
        raise _unusable(address, error) from None
    return True


def leave(opened: socket.socket, address: str, interface: Interface) -> None:
    """Leave a group."""
    with suppress(OSError):  # the interface may be gone, and the membership with it
        opened.setsockopt(*_membership(address, interface, join=False))


def packets_overrun(opened: socket.socket) -> int:
    """How many packets the kernel dropped because the buffer was full, if it reports them."""
    if not LINUX:
        return 0
    try:
        found = opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36)
    except OSError:
        return 0
    return int(struct.unpack("=9I", found)[_DROPS]) if len(found) == 36 else 0


def _open_datagram_socket(options: NetworkOptions) -> socket.socket:
    family = socket.AF_INET6 if options.groups.is_v6 else socket.AF_INET
    try:
        opened = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise _unusable(options.groups.base, error) from None
    opened.setblocking(False)
    for which in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        with suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, which, options.socket_buffer)
    prepare_for_reader(opened, plain=options.plain)
    return opened


def _membership(address: str, interface: Interface, *, join: bool) -> tuple[int, int, Any]:
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address) + struct.pack("=I", interface.index)
        kind = socket.IPV6_JOIN_GROUP if join else socket.IPV6_LEAVE_GROUP
        return socket.IPPROTO_IPV6, kind, packed
    kind = socket.IP_ADD_MEMBERSHIP if join else socket.IP_DROP_MEMBERSHIP
    return socket.IPPROTO_IP, kind, _ipv4_membership(address, interface)


def _ipv4_membership(address: str, interface: Interface) -> bytes:
    group, ours = socket.inet_aton(address), socket.inet_aton(interface.address)
    # Linux takes the number of the interface too, and goes by it where it is not 0.
    return group + ours + (struct.pack("=i", interface.index) if LINUX else b"")


def _unusable(where: str, error: OSError) -> NetworkError:
    return NetworkError(
        where,
        f"cannot be used ({error.strerror or error})",
        "check the interface and the group base; `--interface` names one",
    )
