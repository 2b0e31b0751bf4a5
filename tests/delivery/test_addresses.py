"""No two groups look alike to a switch, whatever the base; and addresses stay where they were."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributary.delivery.addresses import (
    DEFAULT_BASE,
    GroupAddress,
    GroupAddresses,
)
from distributary.delivery.routes import CONTROL_GROUP, group_name
from distributary.errors import InputError
from tests.delivery.machines import simple_plan

BASES_V4 = st.integers(int(ip_address("224.0.0.0")), int(ip_address("239.255.255.255"))).map(
    lambda number: str(ip_address(number))
)
BASES_V6 = st.builds(
    lambda head, tail: str(ip_address((0xFF << 120) | (head << 112) | tail)),
    st.integers(0, 255),
    st.integers(0, 2**34) | st.integers(0, 2**112 - 1),
)
BASES = BASES_V4 | BASES_V6 | st.sampled_from(("239.192.0.0", "239.0.0.0", "239.255.0.0"))
FLOODED = IPv4Network("224.0.0.0/24")


def assign_addresses(
    n_groups: int, base: str = DEFAULT_BASE, *, pairs: bool = False
) -> tuple[GroupAddress, ...]:
    return GroupAddresses(base, pairs=pairs).assign(n_groups)


def assign_or_skip(n_groups: int, base: str, *, pairs: bool) -> tuple[GroupAddress, ...]:
    """The addresses, where there are enough from that base on."""
    try:
        return assign_addresses(n_groups, base, pairs=pairs)
    except (ValueError, InputError):
        assume(False)
        raise


def mac_of(address: str) -> str:
    """Written down apart: 01:00:5e and 23 bits (RFC 1112), or 33:33 and 32 bits (RFC 2464)."""
    packed = ip_address(address).packed
    octets = [0x01, 0x00, 0x5E, packed[1] & 0x7F, *packed[2:]] if len(packed) == 4 else None
    return ":".join(f"{octet:02x}" for octet in octets or [0x33, 0x33, *packed[12:]])


def control_address(address: str) -> str:
    """Where Aeron sends control messages of a data address: its last byte and one."""
    packed = bytearray(ip_address(address).packed)
    packed[-1] = (packed[-1] + 1) % 256
    return str(ip_address(bytes(packed)))


@given(st.integers(1, 300), BASES, st.booleans())
def test_no_two_addresses_share_an_ethernet_address(n: int, base: str, pairs: bool) -> None:
    rows = assign_or_skip(n, base, pairs=pairs)
    assert [row.mac for row in rows] == [mac_of(row.address) for row in rows]
    every = [a for row in rows for a in (row.address, control_address(row.address))]
    assert len({mac_of(address) for address in every}) == len(every)


@given(st.integers(1, 300), BASES_V4, st.booleans())
def test_no_address_looks_like_one_that_switches_flood(n: int, base: str, pairs: bool) -> None:
    flooded = {mac_of(str(address)) for address in FLOODED}
    for row in assign_or_skip(n, base, pairs=pairs):
        assert not {row.mac, mac_of(control_address(row.address))} & flooded


@given(st.integers(1, 200), BASES, st.booleans())
def test_every_address_is_odd_and_multicast_and_not_below_the_base(
    n: int, base: str, pairs: bool
) -> None:
    for row in assign_or_skip(n, base, pairs=pairs):
        address = ip_address(row.address)
        assert address.is_multicast
        assert address.packed[-1] % 2 == 1
        assert row.line == "B" or address >= ip_address(base)


@given(st.integers(1, 200), st.integers(0, 100), BASES, st.booleans())
def test_more_groups_leave_the_addresses_before_as_they_were(
    n: int, more: int, base: str, pairs: bool
) -> None:
    larger = assign_or_skip(n + more, base, pairs=pairs)
    assert assign_addresses(n, base, pairs=pairs) == larger[: n * (1 + pairs)]


@given(st.integers(1, 200), BASES)
def test_asking_for_pairs_leaves_line_a_as_it_was(n: int, base: str) -> None:
    rows = assign_or_skip(n, base, pairs=True)
    assert [(row.group, row.line) for row in rows] == [(g, x) for g in range(n) for x in "AB"]
    assert assign_addresses(n, base) == rows[::2]


@given(st.integers(1, 200), BASES)
def test_the_two_lines_are_in_two_halves_of_one_block(n: int, base: str) -> None:
    rows = assign_or_skip(n, base, pairs=True)
    a, b = ([ip_address(row.address) for row in rows if row.line == line] for line in "AB")
    bit = {int(x) ^ int(y) for x, y in zip(a, b, strict=True)}
    assert len(bit) == 1
    half = bit.pop()
    assert half.bit_count() == 1
    assert len({int(address) // half for address in a}) == 1
    assert len({int(address) // half for address in b}) == 1


@given(st.integers(1, 200), BASES, st.booleans())
def test_what_is_assigned_is_where_groups_are_sent(n: int, base: str, pairs: bool) -> None:
    rows = assign_or_skip(n, base, pairs=pairs)
    groups = GroupAddresses(base, pairs=pairs)
    assert {row.group: row.address for row in rows if row.line == "A"} == {
        group: groups.of(group_name(group)) for group in range(n)
    }


@given(st.integers(1, 200), BASES, st.booleans())
def test_the_control_group_looks_like_no_other(n: int, base: str, pairs: bool) -> None:
    rows = assign_or_skip(n, base, pairs=pairs)
    control = GroupAddresses(base).of(CONTROL_GROUP)
    assert GroupAddresses(base, pairs=pairs).of(CONTROL_GROUP) == control
    assert ip_address(control) + 1 == ip_address(rows[0].address)
    taken = {row.mac for row in rows} | {mac_of(str(address)) for address in FLOODED}
    assert mac_of(control) not in taken


@given(st.integers(1, 50), BASES)
def test_a_base_behind_all_groups_of_another_plan_keeps_clear_of_it(n: int, base: str) -> None:
    rows = assign_or_skip(n, base, pairs=False)
    following = ip_address(rows[-1].address) + 1
    assume(following.is_multicast)
    behind = GroupAddresses(str(following))
    assert behind.of(CONTROL_GROUP) not in {row.address for row in rows}


def test_the_control_group_is_at_a_base_that_is_even() -> None:
    groups = GroupAddresses("239.1.2.254")
    assert groups.of(CONTROL_GROUP) == "239.1.2.254"
    assert groups.of(group_name(0)) == "239.1.2.255"
    assert groups.of(group_name(1)) == "239.1.3.1"
    assert GroupAddresses("239.1.2.255").of(CONTROL_GROUP) == "239.1.2.254"


def test_a_plan_whose_groups_do_not_fit_behind_the_base_is_refused() -> None:
    plan = simple_plan([0, 1], [0, 1])
    GroupAddresses("239.255.255.253").check_room(plan)
    refusing = GroupAddresses("239.255.255.254")
    with pytest.raises(InputError, match="has 2 groups"):
        refusing.check_room(plan)
    with pytest.raises(InputError, match="has 2 groups"):
        refusing.of(group_name(1))


def test_a_block_without_any_room_has_none_for_the_control_group() -> None:
    groups = GroupAddresses("224.128.0.0")  # switches take all of it for 224.0.0.0/24
    with pytest.raises(InputError, match="only 0 addresses"):
        groups.of(CONTROL_GROUP)


@pytest.mark.parametrize(
    ("base", "block"),
    [
        ("239.192.0.0", "239.192.0.0/14"),
        ("239.193.7.8", "239.192.0.0/14"),
        ("239.70.0.0", "239.64.0.0/10"),
        ("239.255.0.0", "239.255.0.0/16"),
        ("233.54.12.0", "233.54.12.0/24"),
        ("224.0.31.1", "224.0.31.0/24"),
        ("ff15::8000:0", "ff15::8000:0/104"),
    ],
)
@pytest.mark.parametrize("pairs", [False, True])
def test_addresses_fill_the_block_of_the_base_and_no_more(
    base: str, block: str, pairs: bool
) -> None:
    network = ip_network(block)
    with pytest.raises(InputError, match="addresses from") as refused:
        assign_addresses(network.num_addresses, base, pairs=pairs)
    assert str(network) in str(refused.value)
    most = int(str(refused.value).split("only ")[1].split()[0].replace(",", ""))
    if most <= 10_000:
        rows = assign_addresses(most, base, pairs=pairs)
        assert all(ip_address(row.address) in network for row in rows)
        assert rows[-1 - pairs].group == most - 1


def test_the_default_starts_where_organisations_have_their_own() -> None:
    assert assign_addresses(2, pairs=True) == (
        GroupAddress(0, "A", "239.192.77.1", "01:00:5e:40:4d:01"),
        GroupAddress(0, "B", "239.194.77.1", "01:00:5e:42:4d:01"),
        GroupAddress(1, "A", "239.192.77.3", "01:00:5e:40:4d:03"),
        GroupAddress(1, "B", "239.194.77.3", "01:00:5e:42:4d:03"),
    )


def test_addresses_that_alias_flooded_ones_are_passed_over() -> None:
    assert assign_addresses(1, "239.0.0.0")[0].address == "239.0.1.1"
    assert assign_addresses(1, "239.128.0.77")[0].address == "239.128.1.1"
    pair = assign_addresses(1, "239.32.0.0", pairs=True)  # the other half begins at 239.0.0.0
    assert [row.address for row in pair] == ["239.32.1.1", "239.0.1.1"]


def test_ipv6_groups_keep_clear_of_the_well_known_ones() -> None:
    assert assign_addresses(1, "ff15::8000:0")[0] == GroupAddress(
        0, "A", "ff15::8000:1", "33:33:80:00:00:01"
    )
    assert ip_address(assign_addresses(1, "ff05::")[0].address) not in IPv6Network("ff05::/110")


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("10.0.0.1", "not a multicast"),
        ("fd00::1", "not a multicast"),
        ("239.192.0", "not an IP address"),
        ("239.192.0.0/16", "not an IP address"),
        ("", "not an IP address"),
        ("224.0.0.251", "switches flood"),
        ("224.0.1.129", "one by one"),
        ("232.1.2.3", "source-specific"),
        ("ff02::1", "link"),
        ("ff02::1%eth0", "link"),
        ("ff35::8000:1", "source-specific"),
        ("ff05::ff00:0", "neighbour"),
    ],
)
def test_a_base_that_groups_cannot_be_in_is_refused(base: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        assign_addresses(1, base)


@pytest.mark.parametrize(
    ("base", "source", "address"),
    [("232.1.2.0", "10.0.0.7", "232.1.2.1"), ("ff35::8000:0", "fd00::7", "ff35::8000:1")],
)
def test_with_a_source_groups_may_be_in_the_ranges_for_it(
    base: str, source: str, address: str
) -> None:
    assert GroupAddresses(base, source=source).of(group_name(0)) == address


@pytest.mark.parametrize(
    "source", ["10.0.0", "239.1.2.3", "fd00::1", "0.0.0.0", "eth0", "10.0.0.0/8"]
)
def test_a_source_that_is_no_senders_address_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="source"):
        GroupAddresses(source=source)


def test_there_is_no_plan_without_groups() -> None:
    with pytest.raises(ValueError, match="at least one group"):
        assign_addresses(0)
