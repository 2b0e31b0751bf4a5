"""Addresses: how they are written, and which of them need TLS."""

from __future__ import annotations

import asyncio

import pytest

from distributary.machines.real import AddressError, NetworkAddress, parse_address
from distributary.machines.real.addresses import check_encryption, resolve


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:7000", "localhost", 7_000),
        ("[::1]:65535", "::1", 65_535),
    ],
)
def test_addresses_are_read_and_written(text: str, host: str, port: int) -> None:
    assert parse_address(text) == NetworkAddress(host, port)
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", ":7000", "host:x", "host:-1", "host:65536", "host:²", "[]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT"):
        parse_address(text)


def test_an_ipv6_address_needs_brackets() -> None:
    with pytest.raises(ValueError, match=r"\[ADDRESS\]:PORT"):
        parse_address("::1:7000")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_needs_no_encryption(host: str) -> None:
    check_encryption(NetworkAddress(host, 1), [host], encrypted=False, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "odd"])
def test_any_other_address_needs_encryption_or_the_user_s_word(host: str) -> None:
    address = NetworkAddress("somewhere", 1)
    with pytest.raises(AddressError, match=r"somewhere:1: .*--insecure"):
        check_encryption(address, ["127.0.0.1", host], encrypted=False, insecure=False)
    check_encryption(address, [host], encrypted=True, insecure=False)
    check_encryption(address, [host], encrypted=False, insecure=True)


def test_an_unknown_host_is_one_clear_line() -> None:
    with pytest.raises(AddressError, match=r"nowhere\.invalid:1: the host is unknown"):
        asyncio.run(resolve(NetworkAddress("nowhere.invalid", 1)))
    with pytest.raises(AddressError, match=r"the host is unknown"):
        asyncio.run(resolve(NetworkAddress("a" * 300, 1)))
