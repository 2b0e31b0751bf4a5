"""The grammar that exports are held against can say no."""

from __future__ import annotations

import pytest

from tests.export.channel_uri import parse_channel


@pytest.mark.parametrize(
    "channel",
    [
        "udp?endpoint=239.192.0.1:40000",
        "aeron:ipc",
        "aeron:ipc?endpoint=239.192.0.1:40000",
        "aeron:udp",
        "aeron:udp?",
        "aeron:udp?endpoint",
        "aeron:udp?endpoint=239.192.0.2:40000",
        "aeron:udp?endpoint=10.0.0.1:40000",
        "aeron:udp?endpoint=239.192.0.1",
        "aeron:udp?endpoint=239.192.0.1:0",
        "aeron:udp?endpoint=ff15::1:40000",
        "aeron:udp?endpoint=239.192.0.1:40000|",
        "aeron:udp?endpoint=239.192.0.1:40000|interface=eth0",
        "aeron:udp?endpoint=239.192.0.1:40000|interface=10.0.0.0/40",
        "aeron:udp?endpoint=239.192.0.1:40000|tll=4",
    ],
)
def test_what_aeron_refuses_is_refused(channel: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_channel(channel)


def test_parameters_are_read() -> None:
    assert parse_channel("aeron:udp?endpoint=[ff15::1]:9|interface=[::1]/64|alias=a=b") == {
        "endpoint": "[ff15::1]:9",
        "interface": "[::1]/64",
        "alias": "a=b",
    }
