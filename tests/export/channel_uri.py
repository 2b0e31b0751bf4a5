"""Aeron's channel URIs, read as `io.aeron.ChannelUri` reads them, and the rules for UDP groups.

    uri   = "aeron:" media [ "?" param *( "|" param ) ]
    media = *( any but "?" and ":" )
    param = key "=" value        key = *( any but "=" )        value = *( any but "|" )

`UdpChannel` adds: the media is udp, a multicast data address is odd (control messages go to the
next), an endpoint has a port, and an interface is an address with an optional prefix length.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_interface

URI = re.compile(r"aeron:(?P<media>[^?:]*)(\?(?P<params>[^=]*=[^|]*(\|[^=]*=[^|]*)*))?")
ENDPOINT = re.compile(r"(?P<host>\[[0-9a-f:]+\]|[0-9.]+):(?P<port>[0-9]+)")
INTERFACE = re.compile(r"(?P<host>\[[0-9a-f:]+\]|[0-9.]+)(?P<prefix>/[0-9]+)?")
KEYS = {"endpoint", "interface", "alias"}


def parse_channel(channel: str) -> dict[str, str]:
    """The parameters of a multicast channel; `ValueError` where Aeron would refuse it."""
    uri = URI.fullmatch(channel)
    if uri is None or uri["media"] != "udp" or uri["params"] is None:
        raise ValueError(f"not a udp channel: {channel}")
    params = dict(param.split("=", 1) for param in uri["params"].split("|"))
    if not set(params) <= KEYS:
        raise ValueError(f"unknown keys: {channel}")
    endpoint = ENDPOINT.fullmatch(params["endpoint"])
    if endpoint is None or not 0 < int(endpoint["port"]) < 65536:
        raise ValueError(f"not an endpoint: {channel}")
    address = ip_address(endpoint["host"].strip("[]"))
    if not address.is_multicast or address.packed[-1] % 2 == 0:
        raise ValueError(f"not an odd multicast address: {channel}")
    if "interface" in params:
        interface = INTERFACE.fullmatch(params["interface"])
        if interface is None:
            raise ValueError(f"not an interface: {channel}")
        ip_interface(interface["host"].strip("[]") + (interface["prefix"] or ""))
    return params
